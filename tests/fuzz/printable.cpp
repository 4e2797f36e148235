// Fuzzes what becomes of a server's error text: an input is a limit, a byte that
// says what the text does, and the text.
//
// Checks: it is shown printable, short, and as far as it was printable unchanged; it is told apart by its
// first word, by a table of this file; what a lock, inspect() and force_release() throw because of it is fit
// for a message, and of the kind the table says. The same text as a status or a string, where an error was
// not expected, and what a client threw.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include <distlock/distlock.hpp>
#include <distlock/inspect.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/server_error.hpp>

#include "fuzz.hpp"

namespace {

using distlock::errc;
using distlock::reply;
using fuzz::must;

struct meaning {
    errc cause;
    bool transient;
};

// The first words servers are known to send.
const std::map<std::string, meaning, std::less<>> words{{"LOADING", {errc::unavailable, true}},
                                                        {"BUSY", {errc::unavailable, true}},
                                                        {"MASTERDOWN", {errc::unavailable, true}},
                                                        {"UNBLOCKED", {errc::unavailable, true}},
                                                        {"CLUSTERDOWN", {errc::unavailable, true}},
                                                        {"TRYAGAIN", {errc::unavailable, true}},
                                                        {"NOSCRIPT", {errc::unavailable, true}},
                                                        {"READONLY", {errc::read_only, true}},
                                                        {"MOVED", {errc::wrong_node, false}},
                                                        {"ASK", {errc::wrong_node, false}},
                                                        {"CROSSSLOT", {errc::wrong_node, false}},
                                                        {"OOM", {errc::out_of_memory, false}},
                                                        {"MISCONF", {errc::writes_refused, false}},
                                                        {"NOREPLICAS", {errc::writes_refused, false}},
                                                        {"NOAUTH", {errc::authentication_failed, false}},
                                                        {"WRONGPASS", {errc::authentication_failed, false}},
                                                        {"NOPERM", {errc::permission_denied, false}},
                                                        {"DENIED", {errc::server_error, false}},
                                                        {"WRONGTYPE", {errc::wrong_type, false}},
                                                        {"LIMITMISMATCH", {errc::limit_mismatch, false}}};

void check_meaning(const std::string& text) {
    const auto said = distlock::classify_error(text);
    // Both hold another error, at the end.
    if (text.starts_with("ERR Error running script") || text.starts_with("@user_script:")) return;
    const auto known = words.find(std::string_view(text).substr(0, text.find(' ')));
    if (known != words.end()) {
        must(said.cause == known->second.cause && said.transient == known->second.transient,
             "an error is told by its first word", text);
        return;
    }
    if (text.starts_with("ERR Protocol error: unauthenticated")) {
        must(said.cause == errc::authentication_failed && !said.transient,
             "a long command is refused for want of a password", text);
        return;
    }
    const bool full = text.starts_with("ERR max number of clients");
    const bool replica = text.starts_with("ERR WAIT cannot be used with replica");
    auto inner = distlock::detail::unwrap_script_error(text);
    if (inner.starts_with("ERR ")) inner.remove_prefix(4);
    const bool moves = inner.starts_with("Script attempted to access a non local key") ||
                       inner.starts_with("Lua script attempted to access a non local key");
    const bool asked_again =
        ((full || moves) && said.cause == errc::unavailable) || (replica && said.cause == errc::read_only);
    must(said.transient == asked_again, "what is not known is not asked again", text);
    must(said.cause == errc::server_error || said.cause == errc::permission_denied ||
             said.cause == errc::unsupported_command || full || replica || moves,
         "an error nobody knows is a server error", text);
}

template <class Call>
void check_thrown(const std::string& text, bool is_error, Call call) {
    try {
        call();
    } catch (const distlock::error& e) {
        // "lock <name>: <text>: <what it means and what to do>"
        fuzz::fit_for_a_message(e.what(), 600);
        if (is_error && text.starts_with("WRONGTYPE "))
            must(e.code() == errc::wrong_type, "a key of another type is called so", e.what());
    }
}

void check_lock(const std::string& text, const reply& answer, int before) {
    const bool is_error = answer.is(distlock::reply_kind::error);
    const distlock::lock_options once{
        .renew = false, .patience = std::chrono::milliseconds{0}, .release = distlock::confirmed};
    distlock::testing::scripted_connection redis;
    if (before != 0) redis.then(reply::nil());
    for (int i = 0; i < 4; ++i) redis.then(answer);
    distlock::mutex m(redis, "orders\x1b\r\n" + text.substr(0, 200), once);
    check_thrown(text, is_error, [&] { static_cast<void>(m.try_lock()); });
}

void check_operator(const std::string& text, const reply& answer) {
    const bool is_error = answer.is(distlock::reply_kind::error);
    // Each may ask once more, what type the key has.
    distlock::testing::scripted_connection redis{answer, answer, answer, answer};
    check_thrown(text, is_error, [&] { static_cast<void>(distlock::inspect(redis, "orders")); });
    check_thrown(text, is_error, [&] { static_cast<void>(distlock::force_release(redis, "orders")); });
}

void check_thrower(const std::string& text) {
    const auto thrower = [&](const distlock::command&) -> reply { throw std::runtime_error(text); };
    distlock::mutex m(thrower, "orders", {.renew = false, .patience = std::chrono::milliseconds{0}});
    check_thrown(text, false, [&] { static_cast<void>(m.try_lock()); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    const std::size_t limit = in.byte();
    const int what = in.byte();
    const std::string text = in.rest();
    const std::string shown = distlock::detail::printable(text, limit);
    fuzz::fit_for_a_message(shown, limit + 3);
    must(shown.ends_with("...") || shown.size() == text.size(), "what was cut is seen to be", shown);
    for (std::size_t i = 0; i < std::min(limit, text.size()); ++i) {
        const bool plain = text[i] >= ' ' && text[i] <= '~';
        must(shown[i] == (plain ? text[i] : '?'), "what can be shown is", shown);
    }
    check_meaning(text);
    if (text.find(":distlock:") != std::string::npos || text.find(":distlock.:") != std::string::npos)
        return 0;
    switch (what % 6) {
        case 0:
        case 1:
            return check_lock(text, reply::error(text), what % 2), 0;
        case 2:
            return check_lock(text, reply::status(text), what / 6 % 2), 0;
        case 3:
            return check_operator(text, reply::error(text)), 0;
        case 4:
            return check_operator(text, reply::string(text)), 0;
        default:
            return check_thrower(text), 0;
    }
}
