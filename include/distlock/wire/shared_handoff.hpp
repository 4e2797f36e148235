// The two sides of a shared lock: writers one at a time, readers together, in one queue.
//
//   class exclusive_handoff;   // concept queueing_dialect: of a writer
//   class shared_handoff;      // the same, of a reader
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/queue_keys.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_inspector.hpp>
#include <distlock/wire/shared_scripts.hpp>
#include <distlock/wire/sibling_keys.hpp>

namespace distlock {

namespace detail {

// What both sides have in common. All functions are pure; commands are views into this object and the token.
class shared_queue {
  public:
    using inspector = shared_inspector;
    static constexpr std::string_view stored_as = "string";

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return lease_; }

    // A name that can have no keys beside it is refused.
    static constexpr bool hands_over() noexcept { return true; }

    /// Readers are told the last writer's, also where its process has died and told nobody.
    static constexpr bool allows_local_fences() noexcept { return false; }

    command look(const token& owner) const { return enter(owner, enter_mode::try_once); }
    command enter(const token& owner, enter_mode mode) const {
        const argument_list keys{name(), keys_.queue, keys_.fence, keys_.owner, readers_};
        argument_list arguments{owner.view(), keys_.needs.of(owner), word(mode), keys_.life};
        if (reads_ && !tells_fences()) arguments.add(lease_text_);
        return {shared_enter, keys.all(), arguments.all()};
    }
    command release(const token& owner) const {
        return {shared_leave,
                {name(), keys_.queue, keys_.fence, keys_.owner, readers_},
                {owner.view(), keys_.needs.of(owner)}};
    }

    /// A writer becomes a reader, or the only reader the writer.
    command exchange(const token& owner, const token& from) const {
        return {shared_exchange,
                {name(), keys_.queue, keys_.fence, keys_.owner, readers_},
                {owner.view(), keys_.needs.of(owner), from.view()}};
    }

    acquire_outcome read_look(const reply& r) const { return read_enter(r); }
    acquire_outcome read_enter(const reply& r) const { return read_entered(r, tells_fences(), lease_); }
    renew_outcome read_renew(const reply& r) const { return read_renewed(r); }
    release_verdict read_release(const reply& r) const {
        release_verdict verdict = read_released(r);
        verdict.note_refusal(r);
        return verdict;
    }

    static std::string_view name_in(std::string_view text) { return name_in_handover(text); }

  protected:
    shared_queue(std::string name, const lock_options& options, std::string_view channel, channel_kind kind,
                 bool reads)
        : key_(std::move(name)),
          lease_(options.lease),
          lease_text_(concat({lease_.count()})),
          readers_(key_.sibling("readers")),
          reads_(reads),
          keys_(key_, options, handoff::queue_life(options), channel, kind, reads) {}
    ~shared_queue() = default;
    shared_queue(const shared_queue&) = default;

    bool tells_fences() const noexcept { return !keys_.fence_life.empty(); }
    const std::string& readers() const noexcept { return readers_; }
    const std::string& lease_text() const noexcept { return lease_text_; }
    /// Returns: its key, and its life in ms; that is empty where none is kept.
    std::pair<const std::string&, const std::string&> kept_fence() const noexcept {
        return {keys_.fence, keys_.fence_life};
    }

  private:
    key key_;
    std::chrono::milliseconds lease_;
    std::string lease_text_;
    std::string readers_;
    bool reads_;
    queue_keys keys_;
};

}  // namespace detail

/// A writer of a shared_mutex: the lock's key is its token, as in `handoff`, so that every client that takes
/// locks by SET NX PX and frees them by compare-and-delete excludes it, and is excluded by it.
class exclusive_handoff final : public detail::shared_queue {
  public:
    using inspector = exclusive_inspector;

    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), also for a name that can have no keys beside it.
    exclusive_handoff(std::string name, const lock_options& options, std::string_view channel = {},
                      channel_kind kind = channel_kind::ordinary)
        : shared_queue(std::move(name), options, channel, kind, false), plain_(this->name(), options) {}

    static std::optional<handover> read_message(std::string_view text) {
        return detail::read_handover(text, "w");
    }

    bool acquire_is_script() const noexcept { return plain_.acquire_is_script(); }
    /// A lock that is free is granted for its whole lease, also where waiters are queued.
    command acquire(const token& owner) const {
        return acquire_is_script() ? look(owner) : plain_.acquire(owner);
    }
    acquire_outcome read_acquire(const reply& r) const {
        return acquire_is_script() ? read_look(r) : plain_.read_acquire(r);
    }
    command renew(const token& owner) const { return plain_.renew(owner); }
    command renew(const token& owner, std::string_view ttl) const { return plain_.renew(owner, ttl); }
    command release_minimal(const token& owner) const { return plain_.release_minimal(owner); }

  private:
    plain plain_;
};

/// A reader of a shared_mutex.
class shared_handoff final : public detail::shared_queue {
  public:
    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), also for a name that can have no keys beside it.
    shared_handoff(std::string name, const lock_options& options, std::string_view channel = {},
                   channel_kind kind = channel_kind::ordinary)
        : shared_queue(std::move(name), options, channel, kind, true) {}

    static std::optional<handover> read_message(std::string_view text) {
        return detail::read_handover(text, "r");
    }

    static constexpr bool acquire_is_script() noexcept { return true; }
    static constexpr bool is_shared() noexcept { return true; }

    command acquire(const token& owner) const { return look(owner); }
    acquire_outcome read_acquire(const reply& r) const {
        return r.is_status("OK") ? acquire_outcome::granted() : read_look(r);
    }
    /// As a writer takes a free lock, for a reader that assumes that nobody waits then. See any_dialect.
    /// Returns: nothing where readers are told a fence.
    std::optional<command> acquire_unqueued(const token& owner, std::span<char> room) const {
        if (tells_fences()) return std::nullopt;
        const auto value = detail::put_together(room, {"distlock:readers ", owner.view()});
        return command({"SET", name(), value, "NX", "PX", lease_text()}, name());
    }
    command renew(const token& owner) const { return renew(owner, lease_text()); }
    /// Ends no earlier for it; `ttl` as plain::renew().
    command renew(const token& owner, std::string_view ttl) const {
        const auto& [fence, life] = kept_fence();
        if (life.empty()) return {detail::shared_renew, {name(), readers()}, {owner.view(), ttl}};
        return {detail::shared_renew, {name(), readers(), fence}, {owner.view(), ttl, life}};
    }
    command release_minimal(const token& owner) const {
        return {detail::shared_leave_minimal, {name(), readers()}, {owner.view()}};
    }
};

static_assert(check_dialect<exclusive_handoff>());
static_assert(check_dialect<shared_handoff>());

}  // namespace distlock
