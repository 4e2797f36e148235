// Takes a lock and says how it went, for trying a server by hand, beside services that use it.
// Usage: probe [key requestor expiry_ms wait_ms], which it asks for otherwise; the server is
// $DISTLOCK_SERVER, a URI.
//        probe --diagnose [prefix]: what the server is like for locks whose names begin so; 1 when it has a
//            problem.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <distlock/diagnose.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>

using namespace std::chrono_literals;

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

template <class Connection>
int print_diagnosis(const std::string& server, const std::string& prefix) {
    Connection redis{server};
    const auto seen = distlock::diagnose(redis, {.prefix = prefix, .lease = 30s});
    std::cout << seen;
    return seen.worst() == distlock::severity::problem ? 1 : 0;
}

int diagnose(const std::string& server, const std::string& prefix) {
    const std::string_view scheme = std::string_view(server).substr(0, server.find("://"));
    if (scheme.ends_with("+sentinel")) return print_diagnosis<distlock::sentinel_connection>(server, prefix);
    if (scheme.ends_with("+cluster")) return print_diagnosis<distlock::cluster_connection>(server, prefix);
    return print_diagnosis<distlock::hiredis_connection>(server, prefix);
}

}  // namespace

int main(int argc, char** argv) {
    const char* const named = std::getenv("DISTLOCK_SERVER");
    const std::string server = named != nullptr ? named : "redis://127.0.0.1:6379";
    if ((argc == 2 || argc == 3) && argv[1] == std::string_view("--diagnose")) {
        try {
            return diagnose(server, argc == 3 ? argv[2] : "");
        } catch (const distlock::error& e) {
            std::fprintf(stderr, "%s\n", e.what());
            return 3;
        }
    }
    if (argc != 1 && argc != 5) {
        std::fprintf(stderr, "usage: %s [key requestor expiry_ms wait_ms]\n       %s --diagnose [prefix]\n",
                     argv[0], argv[0]);
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
    try {
        distlock::hiredis_connection redis{server};
        distlock::mutex<distlock::hiredis_connection, distlock::plain> lock{
            redis, key, {.lease = *expiry, .owner_info = requestor}};
        const auto asked = distlock::clock::now();
        const bool locked = lock.try_lock_for(*wait);
        std::printf("%s after %.1f ms\n", locked ? "locked" : "not locked: somebody else has it",
                    in_ms(distlock::clock::now() - asked));
        std::cout << distlock::inspect(redis, key) << '\n';
        return locked ? 0 : 1;
    } catch (const distlock::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 3;
    }
}
