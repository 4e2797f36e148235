// Takes a lock and says how it went, for trying a server by hand, beside services that use it.
// Usage: probe [key requestor expiry_ms wait_ms], which it asks for otherwise; the server is $DISTLOCK_SERVER, a URI.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>

namespace {

std::string ask(const char* what) {
    std::cout << what << ": " << std::flush;
    std::string answer;
    std::getline(std::cin, answer);
    return answer;
}

std::optional<std::chrono::milliseconds> milliseconds(const std::string& text) {
    long count = 0;
    const auto end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, count);
    if (problem != std::errc{} || stop != end || count < 0) return std::nullopt;
    return std::chrono::milliseconds(count);
}

double in_ms(distlock::clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace

int main(int argc, char** argv) {
    if (argc != 1 && argc != 5) {
        std::fprintf(stderr, "usage: %s [key requestor expiry_ms wait_ms]\n", argv[0]);
        return 2;
    }
    const auto value = [&](int which, const char* what) { return argc > which ? argv[which] : ask(what); };
    const std::string key = value(1, "key");
    const std::string requestor = value(2, "requestor");
    const auto expiry = milliseconds(value(3, "expiry in ms"));
    const auto wait = milliseconds(value(4, "longest wait in ms"));
    if (!expiry || !wait) {
        std::fprintf(stderr, "expiry and wait are whole numbers of milliseconds\n");
        return 2;
    }
    const char* const server = std::getenv("DISTLOCK_SERVER");
    try {
        distlock::hiredis_connection redis{server != nullptr ? server : "redis://127.0.0.1:6379"};
        distlock::mutex<distlock::hiredis_connection, distlock::plain> lock{
            redis, key, {.lease = *expiry, .owner_info = requestor}};
        const auto asked = distlock::clock::now();
        const bool locked = lock.try_lock_for(*wait);
        std::printf("%s after %.1f ms\n", locked ? "locked" : "not locked: somebody else has it",
                    in_ms(distlock::clock::now() - asked));
        const auto seen = distlock::inspect(redis, key);
        if (seen.holder) {
            std::printf("holder %s %s, ", seen.holder->token.c_str(), seen.holder->label.c_str());
            if (seen.remaining) {
                std::printf("for %lld ms\n", static_cast<long long>(seen.remaining->count()));
            } else {
                std::puts("without end: its key has no TTL");
            }
        } else {
            std::puts("free by now");
        }
        return locked ? 0 : 1;
    } catch (const distlock::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 3;
    }
}
