// The characters, numbers and addresses that a URI is made of.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/small_letter.hpp>

namespace distlock::detail {

// No message repeats a byte of the input, only names this file knows: a password may stand anywhere in a URI
// that went wrong, be it as the host, the port, the database or the name of an option.
[[noreturn, gnu::cold]] inline void refuse_uri(std::initializer_list<text_piece> why) {
    throw_error(errc::invalid_uri, why);
}
[[noreturn, gnu::cold]] inline void refuse_uri(const char* why) { throw_error(errc::invalid_uri, {why}); }

/// A URI taken apart; nothing is decoded.
struct uri_parts {
    std::string_view scheme;
    std::optional<std::string_view> credentials;  ///< before the '@', if there is one
    std::string_view place;                       ///< one host and port, or several
    std::string_view path;                        ///< with its '/'
    std::string_view options;                     ///< behind the '?'
};

/// Effects: calls `add(std::string_view host_and_port)` for each of those that commas part.
/// Throws: error(errc::invalid_uri) that says `no_host`, where one has none.
template <class Add>
void for_each_host(std::string_view place, const char* no_host, Add add) {
    for (bool more = true; more;) {
        const std::string_view host = place.substr(0, place.find(','));
        more = host.size() < place.size();
        place.remove_prefix(std::min(host.size() + 1, place.size()));
        if (host.empty() || host.front() == ':') refuse_uri(no_host);
        add(host);
    }
}

/// Throws: error(errc::invalid_uri) for what could be read in two ways, be it as a URI of one
/// server or of several.
[[gnu::cold]] inline uri_parts split_uri(std::string_view text) {
    if (text.empty()) refuse_uri("the URI is empty (a variable that was not set?)");
    if (text.size() > 4096) refuse_uri("the URI is longer than 4096 bytes");
    for (const char c : text) {
        if (c > ' ' && c <= '~') continue;
        refuse_uri(
            "there is a space, a line break, a control or a non-ASCII character; remove it or "
            "percent-encode it (a space is %20)");
    }
    if (text.find('#') != std::string_view::npos) {
        refuse_uri("there is a '#'; in a password write it as %23");
    }
    const std::size_t scheme_end = text.find("://");
    if (scheme_end == std::string_view::npos) {
        refuse_uri("there is no \"://\"; write redis://host:6379 or unix:///run/redis/redis.sock");
    }
    uri_parts out;
    out.scheme = text.substr(0, scheme_end);
    text.remove_prefix(scheme_end + 3);

    // RFC 3986, 3.2: the authority ends at the first '/' or '?'. An '@' behind that, or a second one, means
    // that a delimiter inside a password was taken for one of the URI: the rest of the password would become
    // a host, and be shown.
    const std::string_view authority = text.substr(0, text.find_first_of("/?"));
    const std::size_t at = text.find('@');
    if (at != std::string_view::npos &&
        (at > authority.size() || text.find('@', at + 1) != std::string_view::npos)) {
        refuse_uri(
            "there are two '@', or one behind a '/' or '?'; in a user, a password or a path "
            "percent-encode them: @ is %40, / is %2F, ? is %3F, : is %3A, % is %25, # is %23");
    }
    out.place = authority;
    if (at != std::string_view::npos) {
        out.credentials = authority.substr(0, at);
        out.place.remove_prefix(at + 1);
    }
    text.remove_prefix(authority.size());
    out.path = text.substr(0, text.find('?'));
    if (out.place.ends_with(':') && out.path.starts_with("//"))
        refuse_uri("there are two schemes; write one, and the hosts behind it without any");
    out.options = text.substr(std::min(out.path.size() + 1, text.size()));
    return out;
}

constexpr bool is_ascii_alnum(char c) noexcept {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Returns: whether all of it may stand in a host's name, or in the zone of an address.
constexpr bool is_host_name(std::string_view text) noexcept {
    for (const char c : text) {
        if (!is_ascii_alnum(c) && c != '-' && c != '.' && c != '_') return false;
    }
    return true;
}

/// Returns: whether `text` is `lower` but for the case of ASCII letters.
constexpr bool equals_ignoring_case(std::string_view text, std::string_view lower) noexcept {
    if (text.size() != lower.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (small_letter(text[i]) != lower[i]) return false;
    }
    return true;
}

/// Effects: takes `suffix`, in small letters, off the end of `scheme`.
/// Returns: false, and takes nothing, where it is not there, or all there is.
constexpr bool take_suffix(std::string_view& scheme, std::string_view suffix) noexcept {
    if (scheme.size() <= suffix.size()) return false;
    const std::size_t begin = scheme.size() - suffix.size();
    if (!equals_ignoring_case(scheme.substr(begin), suffix)) return false;
    scheme.remove_suffix(suffix.size());
    return true;
}

/// Returns: the number that `digits` spells if it is nothing but digits and lies in the range.
[[gnu::cold]] inline std::optional<std::uint64_t> parse_number(std::string_view digits, std::uint64_t min,
                                                               std::uint64_t max) {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, failed] = std::from_chars(digits.data(), end, value);
    if (failed != std::errc{} || stop != end || value < min || value > max) return std::nullopt;
    return value;
}

/// Returns: `text` with %41 made A. '+' stays a plus: that it means a space is a rule of web forms.
[[gnu::cold]] inline std::string percent_decoded(std::string_view text, const char* what) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        unsigned value = 0;
        const char* const digits = text.data() + i + 1;
        if (text.size() - i <= 2 || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
            refuse_uri({"the ", what,
                        " has a '%' without two hexadecimal digits; write a percent sign itself as %25"});
        }
        out += static_cast<char>(value);
        i += 2;
    }
    return out;
}

/// Returns: `text` with everything encoded but letters, digits, "-._~" and the characters of `also`.
[[gnu::cold]] inline std::string percent_encoded(std::string_view text, std::string_view also = {}) {
    std::string out;
    for (const char c : text) {
        if (is_ascii_alnum(c) || std::string_view("-._~").find(c) != std::string_view::npos ||
            also.find(c) != std::string_view::npos) {
            out += c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        out += '%';
        out += "0123456789ABCDEF"[byte >> 4];
        out += "0123456789ABCDEF"[byte & 0xf];
    }
    return out;
}

/// The longest path of a unix socket: what `sun_path` of <sys/un.h> holds before its last zero byte.
#ifdef __linux__
inline constexpr std::size_t longest_socket_path = 107;
#else
inline constexpr std::size_t longest_socket_path = 103;
#endif

/// Returns: whether `text` is an IPv4 address of four decimal numbers, none with a zero before it.
[[gnu::cold]] inline bool is_ipv4_address(std::string_view text) {
    for (int left = 4; left > 0; --left) {
        const std::string_view number = text.substr(0, left == 1 ? std::string_view::npos : text.find('.'));
        if (number.size() > 3 || (number.size() > 1 && number.front() == '0') ||
            !parse_number(number, 0, 255))
            return false;
        if (left > 1 && number.size() == text.size()) return false;
        text.remove_prefix(std::min(number.size() + 1, text.size()));
    }
    return true;
}

/// Returns: whether `text` is an IPv6 address (RFC 4291, section 2.2), without a zone. As inet_pton() says,
/// whose header is the operating system's.
[[gnu::cold]] inline bool is_ipv6_address(std::string_view text) {
    int groups = 0;  // of 16 bits
    bool gap = text.starts_with("::");
    if (gap) text.remove_prefix(2);
    while (!text.empty()) {
        const std::string_view group = text.substr(0, text.find(':'));
        const bool last = group.size() == text.size();
        if (last && group.find('.') != std::string_view::npos) {
            if (!is_ipv4_address(group)) return false;
            groups += 2;
            break;
        }
        const char* const end = group.data() + group.size();
        unsigned value = 0;
        if (group.empty() || group.size() > 4 || std::from_chars(group.data(), end, value, 16).ptr != end)
            return false;
        ++groups;
        if (last) break;
        text.remove_prefix(group.size() + 1);
        if (text.empty()) return false;
        if (text.front() != ':') continue;
        if (gap) return false;
        gap = true;
        text.remove_prefix(1);
    }
    return gap ? groups < 8 : groups == 8;
}

}  // namespace distlock::detail
