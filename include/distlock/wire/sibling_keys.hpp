// What may be kept beside a lock, in its cluster slot: the fencing token, and who the owner is. And the
// answers that the scripts of several dialects share.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// The keys, and what the scripts are told about them.
struct sibling_keys {
    /// Throws: error(errc::invalid_name) for a name that cannot have keys beside it.
    [[gnu::cold]] sibling_keys(const key& lock, const lock_options& options)
        : fence(lock.sibling("fence")),
          owner(lock.sibling("owner")),
          fences(options.fencing),
          fence_life(options.fencing ? concat({life_of_fence(options.lease).count()}) : "0"),
          who(options.owner_info.empty() ? std::string() : describe_owner(options.owner_info.view())) {}

    static bool wanted(const lock_options& options) { return options.fencing || !options.owner_info.empty(); }

    // As long as clocks may be set back and owners be late; then the server's clock alone makes fences grow.
    static std::chrono::milliseconds life_of_fence(std::chrono::milliseconds lease) {
        return std::chrono::hours{1} + 10 * lease;
    }

    std::string fence;
    std::string owner;
    bool fences;
    std::string fence_life;
    std::string who;
};

/// Keys or arguments of a script, of which some may be left out.
class argument_list {
  public:
    argument_list(std::initializer_list<argument> first) {
        for (const argument& one : first) add(one);
    }
    /// Preconditions: there are less than eight.
    void add(const argument& one) noexcept { all_[count_++] = one; }
    std::span<const argument> all() const noexcept { return std::span(all_).first(count_); }

  private:
    std::array<argument, 8> all_{"", "", "", "", "", "", "", ""};
    std::size_t count_ = 0;
};

/// Returns: the number of these decimal digits; 0 for anything else.
inline std::uint64_t read_number(std::string_view digits) noexcept {
    std::uint64_t fence = 0;
    const auto end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, fence);
    return problem == std::errc{} && stop == end ? fence : 0;
}

/// Returns: what `{1, fence or ''}` and `{0, TTL left in ms}` mean, of which `which` and `what` are
/// the first two parts.
inline acquire_outcome read_taken(const reply& which, const reply& what, bool fences, const reply& whole) {
    if (which.is_integer(0) && what.is(reply_kind::integer) && what.number() >= -2)
        return acquire_outcome::busy(what.number());
    if (!which.is_integer(1) || !what.is(reply_kind::string)) return acquire_outcome::failure(whole);
    if (!fences) return acquire_outcome::granted();
    const auto fence = read_number(what.text());
    return fence == 0 ? acquire_outcome::failure(whole) : acquire_outcome::granted(fence);
}
inline acquire_outcome read_taken(const reply& r, bool fences) {
    const auto& parts = r.elements();
    return parts.size() == 2 ? read_taken(parts[0], parts[1], fences, r) : acquire_outcome::failure(r);
}

/// Returns: what 1, 0 and -1 mean of a renewal: kept, gone, somebody else's.
inline renew_outcome read_renewed(const reply& r) {
    using kind = renew_outcome::kind;
    if (r.is_integer(1)) return {kind::kept};
    if (r.is_integer(0)) return {kind::gone};
    if (r.is_integer(-1)) return {kind::taken};
    // A key of another type holds none of our tokens any more.
    if (r.is(reply_kind::error)) {
        const errc cause = classify_error(r.said()).cause;
        return cause == errc::wrong_type ? renew_outcome{kind::taken} : renew_outcome{kind::later, cause};
    }
    return {kind::later, r.answered() ? errc::protocol_error : r.cause()};
}

/// Returns: what 1, 0 and -1 mean of a release: released, nothing there, somebody else's.
inline release_verdict read_released(const reply& r) {
    if (r.is_integer(1)) return {release_outcome::released};
    if (r.is_integer(0)) return {release_outcome::expired};
    if (r.is_integer(-1)) return {release_outcome::taken};
    return release_verdict::failure(r);
}

}  // namespace distlock::detail
