// One semaphore object, shared by threads: a lock object for each of its permits that are out or waited for.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/acquire_after_releases.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/lock_core_impl.hpp>
#include <distlock/engine/permit_core.hpp>
#include <distlock/engine/surplus.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::engine {

/// Thread-safe. A set that was given back is kept, with some others, for the next that wants as many: a warm
/// cycle makes nothing.
template <class Lazy>
class permit_pool final : public permit_core {
    using guard = distlock::detail::annotated_lock;

  public:
    permit_pool(std::shared_ptr<background_io> io, std::string name, std::int64_t limit,
                const lock_options& options, waiters_channel channel,
                std::shared_ptr<lease_observer> observer)
        : options_(of_permits(options)),
          observer_(std::move(observer)),
          io_(std::move(io)),
          channel_(std::move(channel)),
          name_(std::move(name)),
          limit_(limit) {
        check_limit(limit);
        const permits checked(name_, options_);
    }

    const std::string& name() const noexcept override { return name_; }
    std::int64_t limit() const noexcept override { return limit_; }
    clock::time_point now() const noexcept override { return io_->time().now(); }

    bool may_join() const override { return options_.replicas == 0; }
    any_connection& connection() const noexcept override { return io_->connection(); }

    result acquire(std::int64_t n, clock::time_point until, lock_core::manner how,
                   const std::stop_token& stop) override {
        if (in_forked_child()) return {failed(errc::wrong_process), nullptr};
        how.guarded = true;  // it may end on another thread
        std::uint64_t changes = 0;
        int refusals = 0;  // since the last change: by this object's limit and its next one in turn
        for (;;) {
            slot* mine = nullptr;
            {
                surplus<slot> over;
                const guard here(mutex_);
                if (n < 1 || n > limit_) return {wrong_number(n, limit_), nullptr};
                if (std::exchange(changes, changes_) != changes_) refusals = 0;
                const bool by_next = refusals % 2 == 1 && n <= next_limit_;
                mine = &idle_slot(n, by_next ? next_limit_ : limit_.load(), over);
            }
            result got;
            try {
                static_cast<lock_core::result&>(got) = ask(*mine, until, how, stop);
            } catch (...) {
                free(*mine);
                throw;
            }
            if (got.granted()) {
                got.of = mine->core.get();
                return got;
            }
            free(*mine);
            if (got.cause != errc::limit_mismatch || how.together != nullptr) return got;
            // While this object is resized, nobody knows which limit the server has.
            {
                const guard here(mutex_);
                if (changes != changes_) continue;
                if (next_limit_ == 0) return got;
            }
            if (++refusals == 1) continue;
            // It has neither: somebody else resized it, too, and this resizing may take long.
            const auto at = now();
            if (how.once || at >= until) return got;
            distlock::detail::pause_until(stop, std::min(until, at + refused_pause), io_->time());
        }
    }

    release_outcome release(lock_core& of, std::uint64_t serial) noexcept override {
        const auto done = of.unlock(serial);
        if (done != release_outcome::wrong_process) free(of);
        return done;
    }
    void undo(lock_core& of, std::uint64_t serial) noexcept override {
        of.undo(serial);
        if (!in_forked_child()) free(of);
    }

    std::int64_t resize(std::int64_t limit) override {
        if (in_forked_child()) throw error(errc::wrong_process, failed(errc::wrong_process).detail);
        check_limit(limit);
        const permits about(name_, options_);
        const std::string digits = std::to_string(limit);
        const command ask = about.resize(digits).with_body();
        const guard alone(resizing_);
        const change one(*this, limit);
        reply answer = io_->connection().execute(ask);
        const bool lost = answer.is(reply_kind::no_answer);
        if (lost) {
            auto again = io_->connection().execute(ask);
            if (again.answered()) answer = std::move(again);
        }
        const auto out = about.read_resize(answer);
        if (!out) {
            const bool said = answer.is(reply_kind::error);
            const server_error why_not = said ? classify_error(answer.said()) : server_error{};
            const bool may_be_done = lost || (said && !why_not.certain);
            const auto why = distlock::detail::behind_server(io_->connection().identity(), answer.text());
            throw error(said                ? why_not.cause
                        : answer.answered() ? errc::protocol_error
                                            : answer.cause(),
                        distlock::detail::concat(
                            {"resize ", distlock::detail::printable(name_, 100), why.empty() ? "" : ": ", why,
                             may_be_done ? "; it may have been done: resize it again" : ""}));
        }
        const guard here(mutex_);
        limit_ = limit;
        return *out;
    }

    clock::duration residual() const noexcept override {
        clock::duration longest{};
        if (in_forked_child()) return longest;
        const guard here(mutex_);
        for (const auto& one : slots_) longest = std::max(longest, one->core->residual());
        return longest;
    }

  private:
    static constexpr std::chrono::milliseconds refused_pause{5};

    struct slot {
        std::shared_ptr<lock_core> core;
        std::int64_t n;
        std::int64_t limit;  // that it tells the server
        bool busy;
    };

    // Until it is destroyed the server may have this limit, or the one before.
    class change {
      public:
        change(permit_pool& of, std::int64_t limit) : of_(of) { tell(limit); }
        ~change() { tell(0); }
        change(const change&) = delete;
        change& operator=(const change&) = delete;

      private:
        void tell(std::int64_t limit) {
            const guard here(of_.mutex_);
            of_.next_limit_ = limit;
            ++of_.changes_;
        }

        permit_pool& of_;
    };

    // Nothing that is said of permits has a fence: a waiter for one would ask once more.
    static lock_options of_permits(lock_options options) {
        options.fencing = false;
        options.owner_info = {};
        return options;
    }

    static constexpr std::int64_t most = std::int64_t{1} << 31;

    void check_limit(std::int64_t limit) const {
        if (limit >= 1 && limit <= most) return;
        throw error(errc::invalid_option, "semaphore " + distlock::detail::printable(name_, 100) +
                                              ": a limit of " + std::to_string(limit) +
                                              "; give one from 1 to 2^31");
    }
    // Another thread of the parent may have had the mutex.
    bool in_forked_child() const noexcept { return process_.in_forked_child(); }

    lock_core::result failed(errc cause) const {
        return {.cause = cause, .detail = "semaphore " + distlock::detail::printable(name_, 100)};
    }
    lock_core::result wrong_number(std::int64_t n, std::int64_t limit) const {
        auto told = failed(errc::invalid_option);
        told.detail += ": " + std::to_string(n) + " permits were asked for";
        told.detail += n < 1 ? "; give one or more" : ", and there are " + std::to_string(limit);
        return told;
    }

    lock_core::result ask(slot& mine, clock::time_point until, const lock_core::manner& how,
                          const std::stop_token& stop) DISTLOCK_EXCLUDES(mutex_) {
        const auto asks = [&] { return mine.core->acquire(until, how, stop); };
        if (!how.once && until == clock::time_point::max()) return asks();
        const auto all = [this](std::size_t i) -> std::shared_ptr<lock_core> {
            const guard here(mutex_);
            return i < slots_.size() ? slots_[i]->core : nullptr;
        };
        return acquire_after_releases(all, mine.core.get(), until, how, stop, asks);
    }

    // Effects: the slot is busy. Some that nobody needs go to `over`.
    // Throws: std::bad_alloc.
    slot& idle_slot(std::int64_t n, std::int64_t limit, surplus<slot>& over) DISTLOCK_REQUIRES(mutex_) {
        for (const auto& one : slots_) {
            if (one->busy || one->n != n || one->limit != limit) continue;
            slot& found = *one;
            found.busy = true;
            if (std::ssize(slots_) > most_idle) take_surplus(over);
            return found;
        }
        take_surplus(over);
        auto dialect = std::make_shared<const any_dialect_of<permits>>(name_, options_, channel_.name,
                                                                       channel_.kind, limit, n);
        slots_.push_back(std::make_unique<slot>(
            slot{make_lock_core(io_, std::move(dialect), options_, observer_), n, limit, true}));
        return *slots_.back();
    }
    void take_surplus(surplus<slot>& over) noexcept DISTLOCK_REQUIRES(mutex_) {
        const auto is_idle = [](const slot& one) { return !one.busy; };
        // Told the server a limit which it has no more. It is called with the mutex.
        const auto is_outdated = [this](const slot& one) DISTLOCK_UNCHECKED {
            return one.limit != limit_ && one.limit != next_limit_;
        };
        over.take(slots_, is_idle, is_outdated);
    }
    void free(const lock_core& of) noexcept DISTLOCK_EXCLUDES(mutex_) {
        const guard here(mutex_);
        for (const auto& one : slots_) {
            if (one->core.get() == &of) one->busy = false;
        }
    }
    void free(slot& one) noexcept DISTLOCK_EXCLUDES(mutex_) {
        const guard here(mutex_);
        one.busy = false;
    }

    const lock_options options_;
    const std::shared_ptr<lease_observer> observer_;  // may own the connection, which io_ uses
    const std::shared_ptr<background_io> io_;
    const waiters_channel channel_;
    const std::string name_;

    const distlock::detail::own_process process_;

    mutable distlock::detail::annotated_mutex mutex_;
    std::atomic<std::int64_t> limit_;                          // changes with the mutex
    std::int64_t next_limit_ DISTLOCK_GUARDED_BY(mutex_) = 0;  // while it is being resized; else 0
    std::uint64_t changes_ DISTLOCK_GUARDED_BY(mutex_) = 0;    // beginnings and ends of those
    // One resizes at a time, or the last one here would not be the last one on the server.
    distlock::detail::annotated_mutex resizing_;
    std::vector<std::unique_ptr<slot>> slots_ DISTLOCK_GUARDED_BY(mutex_);
};

template <class Lazy>
std::unique_ptr<permit_core> make_permit_core(std::shared_ptr<background_io> io, std::string name,
                                              std::int64_t limit, const lock_options& options,
                                              std::shared_ptr<lease_observer> observer) {
    check_options(*io, name, options);
    const auto channel = channel_of(*io, name);
    return std::make_unique<permit_pool<Lazy>>(std::move(io), std::move(name), limit, options, channel,
                                               std::move(observer));
}
#ifdef DISTLOCK_SEPARATE_COMPILATION
template std::unique_ptr<permit_core> make_permit_core<void>(std::shared_ptr<background_io>, std::string,
                                                             std::int64_t, const lock_options&,
                                                             std::shared_ptr<lease_observer>);
#endif

}  // namespace distlock::engine
