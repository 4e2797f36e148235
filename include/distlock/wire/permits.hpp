// The dialect of counting_semaphore: so many permits under a name, in the order in which they were asked for.
//
//   class permits {
//     permits(std::string name, const lock_options&, std::string_view channel = {}, channel_kind = ordinary,
//             std::int64_t limit = 1, std::int64_t n = 1);
//                 // concept queueing_dialect: for one that wants n of them
//     command resize(std::string_view limit) const;
//     std::optional<std::int64_t> read_resize(const reply&) const;
//   };
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/permit_inspector.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/queue_keys.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/sibling_keys.hpp>
#include <distlock/wire/ticket.hpp>

namespace distlock {

/// All functions are pure; commands are views into this object and the token.
class permits {
  public:
    using inspector = permit_inspector;

    /// The type of the key, as the server names it.
    static constexpr std::string_view stored_as = "zset";
    static constexpr std::string_view noun = "semaphore";

    /// Preconditions: the options are checked; limit and n are from 1 to 2^31, n no more than limit.
    /// Throws: error(errc::invalid_name), also for a name that can have no keys beside it.
    permits(std::string name, const lock_options& options, std::string_view channel = {},
            channel_kind kind = channel_kind::ordinary, std::int64_t limit = 1, std::int64_t n = 1)
        : key_(std::move(name)),
          lease_(options.lease),
          lease_text_(detail::concat({lease_.count()})),
          queue_(key_.sibling("queue")),
          limit_key_(key_.sibling("limit")),
          limit_(detail::concat({limit})),
          n_(detail::concat({n})),
          life_(detail::concat({handoff::queue_life(options).count()})) {
        needs_ = detail::waiter_needs({.lease = lease_, .kind = kind, .channel = channel, .permits = n});
    }

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return lease_; }
    static constexpr bool hands_over() noexcept { return true; }
    static constexpr bool acquire_is_script() noexcept { return true; }
    static constexpr bool allows_local_fences() noexcept { return false; }
    static constexpr bool is_shared() noexcept { return true; }

    command acquire(const token& owner) const { return look(owner); }
    command look(const token& owner) const { return enter(owner, enter_mode::try_once); }
    command enter(const token& owner, enter_mode mode) const {
        return {detail::permit_enter,
                {name(), queue_, limit_key_},
                {owner.view(), needs_.of(owner), detail::word(mode), life_, limit_}};
    }
    command renew(const token& owner) const { return renew(owner, lease_text_); }
    /// Ends no earlier for it; `ttl` as plain::renew().
    command renew(const token& owner, std::string_view ttl) const {
        return {detail::permit_renew, {name(), queue_, limit_key_}, {owner.view(), ttl, n_, life_}};
    }
    command release(const token& owner) const {
        return {detail::permit_leave, {name(), queue_, limit_key_}, {owner.view(), needs_.of(owner), life_}};
    }
    /// There is none that needs less: what is out must be counted.
    command release_minimal(const token& owner) const { return release(owner); }
    /// `limit`: decimal digits, which outlive the command.
    command resize(std::string_view limit) const {
        return {detail::permit_resize, {name(), queue_, limit_key_}, {limit, life_}};
    }

    acquire_outcome read_acquire(const reply& r) const { return read_enter(r); }
    acquire_outcome read_look(const reply& r) const { return read_enter(r); }
    acquire_outcome read_enter(const reply& r) const { return detail::read_entered(r, false, lease_); }
    renew_outcome read_renew(const reply& r) const { return detail::read_renewed(r); }
    release_verdict read_release(const reply& r) const { return detail::read_released(r); }
    /// Returns: how many are out; none for a reply that does not say.
    std::optional<std::int64_t> read_resize(const reply& r) const {
        if (!r.is(reply_kind::integer)) return std::nullopt;
        return r.number();
    }

    static std::optional<handover> read_message(std::string_view text) {
        return detail::read_handover(text, "n");
    }
    static std::string_view name_in(std::string_view text) { return detail::name_in_handover(text); }

  private:
    key key_;
    std::chrono::milliseconds lease_;
    std::string lease_text_;
    std::string queue_;
    std::string limit_key_;
    std::string limit_;
    std::string n_;
    std::string life_;
    detail::waiter_needs needs_;
};

}  // namespace distlock
