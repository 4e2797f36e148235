// Parsers for INFO, ROLE, CONFIG GET and TIME. They accept anything that a server may send.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// What TIME tells: the clock of the server's machine, which may be set.
using wall_time = std::chrono::sys_time<std::chrono::microseconds>;

/// Returns: whether a server counts to that. Sums and differences of such numbers do not overflow.
constexpr bool is_count(std::int64_t number) noexcept {
    return number >= 0 && number <= std::int64_t{1} << 60U;
}

/// Returns: the number that `text` is; none: it is none, or is_count() says no.
inline std::optional<std::int64_t> count_in(std::string_view text) noexcept {
    std::int64_t value = 0;
    const auto end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value);
    if (problem != std::errc{} || stop != end) return std::nullopt;
    if (!is_count(value)) return std::nullopt;
    return value;
}

/// Returns: what is behind `name` and `says` in that part of `text`, of those that `ends` ends, which begins
/// so; none: there is no such part. A view.
inline std::optional<std::string_view> field_in(std::string_view text, char ends, std::string_view name,
                                                char says) noexcept {
    while (!text.empty()) {
        const auto end = std::min(text.find(ends), text.size());
        const auto part = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (part.size() > name.size() && part.starts_with(name) && part[name.size()] == says)
            return part.substr(name.size() + 1);
    }
    return std::nullopt;
}

/// The text of INFO or CLUSTER INFO: lines of `field:value`. A view.
class info_text {
  public:
    /// Of a reply that is no text: without any field.
    explicit info_text(const reply& answer) noexcept {
        if (answer.is(reply_kind::string) || answer.is(reply_kind::status)) text_ = answer.text();
    }

    std::optional<std::string_view> field(std::string_view name) const noexcept {
        auto found = field_in(text_, '\n', name, ':');
        if (found && found->ends_with('\r')) found->remove_suffix(1);
        return found;
    }
    std::optional<std::int64_t> number(std::string_view name) const noexcept {
        const auto value = field(name);
        return value ? count_in(*value) : std::nullopt;
    }
    bool is(std::string_view name, std::string_view value) const noexcept { return field(name) == value; }

  private:
    std::string_view text_;
};

/// `append`: the answer to CONFIG GET *append*.
/// Returns: whether nothing is synced while a child process writes a file or fills a replica.
inline bool waits_for_rewrites(const reply& append) noexcept {
    return value_of(append, "no-appendfsync-on-rewrite") == "yes";
}
/// Returns: whether a write is on the disk of a server with an append-only file before it is answered.
inline bool syncs_each_write(const reply& append) noexcept {
    return value_of(append, "appendfsync") == "always" && !waits_for_rewrites(append);
}

struct server_version {
    std::array<int, 3> number{};
    friend auto operator<=>(const server_version&, const server_version&) = default;
};

/// Returns: the version in "7.0.15" or "8.1.0-rc1"; none: it is no version.
inline std::optional<server_version> read_version(std::string_view text) noexcept {
    server_version read;
    for (int& part : read.number) {
        const auto end = text.data() + text.size();
        const auto [stop, problem] = std::from_chars(text.data(), end, part);
        if (problem != std::errc{}) return std::nullopt;
        text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
        if (!text.starts_with('.')) break;
        text.remove_prefix(1);
    }
    return read;
}

/// One replica, as its master sees it.
struct replica_state {
    std::string where;
    bool online = true;
    std::optional<std::int64_t> lag;     ///< seconds since it was heard; none: the server does not say
    std::optional<std::int64_t> behind;  ///< bytes that it has not acknowledged
};

/// Returns: the replicas in INFO; all that have a line.
inline std::vector<replica_state> replicas_in(const info_text& info) {
    std::vector<replica_state> all;
    const auto written = info.number("master_repl_offset");
    for (int i = 0;; ++i) {
        const auto line = info.field("slave" + std::to_string(i));
        if (!line) return all;
        const auto part = [&](std::string_view name) {
            return field_in(*line, ',', name, '=').value_or(std::string_view());
        };
        replica_state one;
        one.where = std::string(part("ip")) + ":" + std::string(part("port"));
        one.online = part("state") == "online";
        one.lag = count_in(part("lag"));
        if (const auto got = count_in(part("offset")); got && written)
            one.behind = std::max<std::int64_t>(*written - *got, 0);
        all.push_back(std::move(one));
    }
}

/// Returns: the replicas in a master's answer to ROLE.
inline std::vector<replica_state> replicas_in(const reply& role) {
    std::vector<replica_state> all;
    const auto& said = role.elements();
    if (said.size() < 3 || said[0].text() != "master") return all;
    for (const reply& each : said[2].elements()) {
        const auto& parts = each.elements();
        if (parts.size() < 3) continue;
        replica_state one;
        one.where = parts[0].text() + ":" + parts[1].text();
        const auto written = said[1].number();
        if (const auto got = count_in(parts[2].text()); got && is_count(written))
            one.behind = std::max<std::int64_t>(written - *got, 0);
        all.push_back(std::move(one));
    }
    return all;
}

/// Returns: how many of them are online.
inline std::int64_t online(const std::vector<replica_state>& all) {
    return std::count_if(all.begin(), all.end(), [](const replica_state& one) { return one.online; });
}

/// Returns: what the server's clock says, in the answer to TIME.
inline std::optional<wall_time> time_in(const reply& answer) noexcept {
    const auto& parts = answer.elements();
    if (parts.size() != 2) return std::nullopt;
    std::array<std::int64_t, 2> values{};
    for (std::size_t i = 0; i < 2; ++i) {
        const auto value = parts[i].is(reply_kind::integer) ? parts[i].number() : count_in(parts[i].text());
        if (!value || *value < 0 || *value > 1'000'000'000'000) return std::nullopt;
        values[i] = *value;
    }
    return wall_time(std::chrono::seconds(values[0]) + std::chrono::microseconds(values[1]));
}

}  // namespace distlock::detail
