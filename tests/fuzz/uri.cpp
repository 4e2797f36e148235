// Fuzzes net/uri.hpp: an input is a URI, as text; behind a zero byte, the fields of one that
// is filled in by hand.
//
// Checks: parsing gives a value or error(errc::invalid_uri) and nothing else; what was parsed is within its
// limits and usable, and printed again (by an encoder of this file) it parses to the same; a password is in
// no message, be it put where a password belongs or anywhere else in the text; what is shown of a URI is
// printable and the same for every password.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/hiredis/connection.hpp>
#include <distlock/net/uri.hpp>

#include "fuzz.hpp"

namespace {

using namespace std::chrono_literals;
using distlock::uri;
using distlock::uri_scheme;
using fuzz::must;

std::optional<uri> parsed(std::string_view text) {
    try {
        return distlock::parse_uri(text);
    } catch (const distlock::error& e) {
        must(e.code() == distlock::errc::invalid_uri, "a URI that is refused is invalid_uri", e.what());
        fuzz::fit_for_a_message(e.what(), 400);
        must(!fuzz::holds_canary(e.what()), "no message about a URI holds a password", e.what());
        return std::nullopt;
    }
}

std::string encoded(std::string_view text) {
    std::string out;
    for (const char c : text) {
        char three[4];
        std::snprintf(three, sizeof three, "%%%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
        out += three;
    }
    return out;
}

std::string printed(const uri& where) {
    const bool local = where.scheme == uri_scheme::unix_socket;
    std::string out = local ? "unix://" : where.scheme == uri_scheme::tls ? "rediss://" : "redis://";
    if (!where.password.empty()) out += encoded(where.user) + ":" + encoded(where.password) + "@";
    if (local) {
        out += "/" + encoded(std::string_view(where.path).substr(1));
    } else if (const auto zone = where.host.find('%'); where.host.find(':') == std::string::npos) {
        out += encoded(where.host) + ":" + std::to_string(where.port);
    } else {
        const bool has_zone = zone != std::string::npos;
        out += "[" + where.host.substr(0, zone) + (has_zone ? "%25" + where.host.substr(zone + 1) : "") +
               "]:" + std::to_string(where.port);
    }
    return out + "?db=" + std::to_string(where.database) +
           "&connect_timeout=" + std::to_string(where.connect_timeout.count()) +
           "ms&command_timeout=" + std::to_string(where.command_timeout.count()) +
           "ms&max_idle=" + std::to_string(where.max_idle);
}

bool usable(const uri& where) {
    const auto time = [](std::chrono::milliseconds t) { return t >= 1ms && t <= 1h; };
    const auto has_zero = [](const std::string& text) { return text.find('\0') != std::string::npos; };
    const bool there =
        where.scheme == uri_scheme::unix_socket
            ? where.path.size() < 108 && where.path.substr(0, 1) == "/" && !has_zero(where.path)
            : !where.host.empty() && where.host.size() <= 300 && !has_zero(where.host) && where.port != 0;
    return there && (where.user.empty() || !where.password.empty()) && where.database >= 0 &&
           time(where.connect_timeout) && time(where.command_timeout) && where.max_idle >= 1 &&
           where.max_idle <= 1024;
}

void check_shown(uri where) {
    const std::string shown = distlock::redacted(where);
    fuzz::fit_for_a_message(shown, 4096 * 3);
    where.password = "another";
    must(distlock::redacted(where) == shown, "what is shown of a URI does not depend on the password", shown);
}

void check_by_hand(fuzz::input in) {
    uri where;
    where.scheme = static_cast<uri_scheme>(in.byte() % 3);
    where.port = static_cast<std::uint16_t>(in.byte() << 8 | in.byte());
    where.database = static_cast<int>(in.number());
    where.connect_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(in.number()));
    where.command_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(in.number() % 7'200'000));
    where.max_idle = static_cast<std::size_t>(in.byte() << 8 | in.byte());
    where.user = in.text(in.byte());
    if (in.byte() % 2 != 0) where.password = fuzz::password_canary;
    where.host = in.text(static_cast<std::size_t>(in.byte() << 8 | in.byte()));
    where.path = in.rest();
    bool refused = false;
    try {
        distlock::check_uri(where);
    } catch (const distlock::error& e) {
        refused = true;
        must(e.code() == distlock::errc::invalid_uri, "a URI that is refused is invalid_uri", e.what());
        fuzz::fit_for_a_message(e.what(), 400);
        must(!fuzz::holds_canary(e.what()), "no message about a URI holds a password", e.what());
    }
    must(refused != usable(where), "exactly what is out of its limits is refused");
    if (!refused) check_shown(where);
}

void check_connection(const uri& where, const std::string& text) {
    try {
        const distlock::hiredis_connection redis{std::string_view(text)};
        must(where.scheme != uri_scheme::tls, "TLS is never left out");
        must(redis.identity().find(fuzz::password_canary) == std::string_view::npos,
             "an identity holds no password", redis.identity());
    } catch (const distlock::error& e) {
        must(where.scheme == uri_scheme::tls && e.code() == distlock::errc::tls_unavailable,
             "a URI that parses can be connected to", e.what());
        must(!fuzz::holds_canary(e.what()), "no message about a URI holds a password", e.what());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    const std::string text = in.rest();
    if (text.starts_with('\0')) {
        check_by_hand(fuzz::input(data + 1, size - 1));
        return 0;
    }
    if (const auto where = parsed(text)) {
        must(usable(*where), "what was parsed is within its limits", text);
        distlock::check_uri(*where);
        const std::string again = printed(*where);
        const auto same = parsed(again);
        must(same.has_value() || again.size() > 4096, "what was parsed can be written", again);
        must(!same || *same == *where, "what was parsed and is written parses to the same", again);
        check_shown(*where);
    }
    // Where a password belongs; and at a place that depends on the text.
    const auto colon = text.find(':', text.find("://") + 3);
    if (text.find("://") != std::string::npos && colon != std::string::npos &&
        text.find('@', colon) != std::string::npos) {
        const std::string with = text.substr(0, colon + 1) + fuzz::password_canary + text.substr(colon + 1);
        if (const auto where = parsed(with)) {
            must(where->password.starts_with(fuzz::password_canary), "a password is a password", with);
            if (fuzz::holds_canary(where->user + "\n" + where->host + "\n" + where->path)) return 0;
            must(!fuzz::holds_canary(distlock::redacted(*where)), "what is shown holds no password", with);
            check_connection(*where, with);
        }
    }
    std::uint32_t at = 0;
    for (const char c : text) at = at * 31 + static_cast<unsigned char>(c);
    static_cast<void>(parsed(std::string(text).insert(at % (text.size() + 1), fuzz::password_canary)));
    return 0;
}
