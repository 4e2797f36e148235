// The background work of the locks of one connection: one thread, one pipeline for all that is due.
//
//   class background_io {
//     using task = background_task;               // something to say to the server at a time
//     background_io(std::unique_ptr<any_connection>, time_source);
//     any_connection& connection() noexcept;  time_source time() const noexcept;
//     void schedule_by(task&, time_point at);     // then, or earlier
//     void cancel(task&) noexcept;
//     bool adopt(std::shared_ptr<task>, time_point at, std::size_t most) noexcept;
//     void request_room() noexcept;  bool take_room_request() noexcept;
//     time_point master_since(lock) const noexcept;  // the server that is the master now
//     known_scripts& scripts() noexcept;
//     deadline_timer& deadlines() noexcept;
//     callback_pool& callbacks() noexcept;
//     std::string channel_of(lock) const;            // where the server finds this connection's waiters
//     std::shared_ptr<subscription> messages(dialect, unclaimed);
//   };
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/background_runner.hpp>
#include <distlock/engine/callback_pool.hpp>
#include <distlock/engine/deadline_timer.hpp>
#include <distlock/engine/known_scripts.hpp>
#include <distlock/engine/timer_thread.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/any_dialect.hpp>

namespace distlock::engine {

/// Thread-safe. The thread starts with the first task that is scheduled and is joined by the destructor; no
/// code of the user runs on it but the connection's. In a child after fork() nothing may be called, and the
/// destructor does nothing.
class background_io {
    using time_point = clock::time_point;

  public:
    using task = background_task;

    /// Throws: error(errc::no_entropy), std::bad_alloc.
    [[gnu::cold]] background_io(std::unique_ptr<any_connection> connection, time_source time)
        : connection_(std::move(connection)),
          time_(time),
          channel_(distlock::detail::concat({"distlock:", token::generate().view().substr(0, 16)})),
          master_since_(follows_slots() ? slot_count : 1),
          tasks_(time, std::make_unique<background_runner>(*connection_, time)) {
        for (auto& since : master_since_) since = time_point::min();
        connection_->on_master_change(present_);
    }
    background_io(const background_io&) = delete;
    background_io& operator=(const background_io&) = delete;

    /// Preconditions: no task is listed but adopted ones.
    /// Effects: those begin a last time, due or not, unless that takes too long; all are given up.
    [[gnu::cold]] ~background_io() {
        if (!process_.in_forked_child()) present_->end();
    }

    any_connection& connection() const noexcept { return *connection_; }
    time_source time() const noexcept { return time_; }

    /// Effects: `t` begins at `at`, or earlier when it was to before. It stays listed until it is cancelled.
    /// Throws: std::system_error, std::bad_alloc, and then nothing has changed; not for a
    /// task that is listed.
    void schedule_by(task& t, time_point at) { tasks_.schedule_by(t, at); }

    /// Preconditions: not called by `t` itself.
    /// Effects: `t` does not begin any more, and is not listed; waits for the end of what it has begun.
    void cancel(task& t) noexcept { tasks_.cancel(t); }

    /// So many are adopted, of all kinds together, before one of that kind is refused: what may come in
    /// crowds leaves room for what matters more.
    static constexpr std::size_t most_adopted = 4096;  ///< locks that are known to be ours
    static constexpr std::size_t most_handed_over = most_adopted / 4 * 3;  ///< by messages, or left
    static constexpr std::size_t most_questions = most_adopted / 2;
    static constexpr std::size_t most_in_doubt = most_adopted / 4;
    static constexpr std::size_t unlimited = timer_thread::unlimited;

    /// Effects: begins `t` at `at`, and keeps it alive until it is not to begin any more.
    /// Returns: false where there is no thread or no memory for it, or `most` were adopted already, not
    /// counting those that are `unlimited`.
    bool adopt(std::shared_ptr<task> t, time_point at, std::size_t most = most_adopted) noexcept {
        return tasks_.adopt(std::move(t), at, most);
    }

    /// Effects: of the places of releases in doubt a quarter is wanted, since one found no room.
    void request_room() noexcept { places_wanted_.store(most_in_doubt / 4); }
    /// Effects: one place less is wanted. Returns: whether one was: the caller gives up its own then.
    bool take_room_request() noexcept {
        auto wanted = places_wanted_.load();
        while (wanted > 0 && !places_wanted_.compare_exchange_weak(wanted, wanted - 1)) continue;
        return wanted > 0;
    }

    /// Returns: since when what is sent for that lock goes to the server that it goes to now;
    /// time_point::min(): since ever, as far as is known. All tasks begin once more then.
    time_point master_since(std::string_view lock) const noexcept {
        return master_since_[follows_slots() ? hash_slot(lock) : 0].load();
    }

    /// Of the server; in a Cluster, of none.
    known_scripts& scripts() noexcept { return scripts_; }

    deadline_timer& deadlines() noexcept { return deadlines_; }
    callback_pool& callbacks() noexcept { return callbacks_; }

    /// Returns: one channel for all locks; in a Cluster one for each hash tag, in the slot of its locks.
    [[gnu::cold]] std::string channel_of(std::string_view lock) const {
        if (!connection_->can.shard) return channel_;
        return distlock::detail::concat({"{", hash_tag(lock), "}:", channel_});
    }

    /// Returns: the subscription to channel_of(lock), shared by all locks that have it. `unclaimed(*this,
    /// dialect, text)` is called for every message that no waiter is there for, by each kind of dialect that
    /// had one, as long as this lives and somebody has the subscription; it must not wait.
    /// Preconditions: connection().can.subscribe.
    /// Returns: null where it cannot all the same.
    /// Throws: as any_connection::subscribe, std::bad_alloc.
    template <class F>
    std::shared_ptr<subscription> messages(const std::shared_ptr<const any_dialect>& dialect, F unclaimed) {
        const distlock::detail::annotated_lock guard(lock_);
        present_->speaks(dialect);
        if (messages_) return messages_;
        auto made = connection_->subscribe(channel_of(dialect->name()));
        if (!made) return nullptr;
        made->on_unclaimed([of = present_, this, unclaimed](std::string_view text) {
            of->use_each([&](const any_dialect& one) { unclaimed(*this, one, text); });
        });
        // In a Cluster a channel is left when the last lock that has it goes.
        if (!connection_->can.shard) messages_ = made;
        return made;
    }

  private:
    // A connection may deliver messages, or follow its master, for longer than there is background I/O.
    class presence final : public master_listener {
      public:
        explicit presence(background_io& of) noexcept : io_(of) {}
        [[gnu::cold]] void master_changed() noexcept override {
            use([this] {
                const auto now = io_.time_.now();
                io_.scripts_.forget();
                for (auto& since : io_.master_since_) since = now;
                io_.tasks_.advance_all(now);
            });
        }
        [[gnu::cold]] void master_changed_of(std::span<const std::uint16_t> which) noexcept override {
            if (!io_.follows_slots()) return master_changed();
            use([this, which] {
                const auto now = io_.time_.now();
                for (const auto slot : which) io_.master_since_[slot] = now;
                io_.tasks_.advance_all(now);
            });
        }
        template <class F>
        void use(F f) {
            const distlock::detail::annotated_lock guard(lock_);
            if (!ended_) f();
        }
        /// Throws: std::bad_alloc.
        [[gnu::cold]] void speaks(const std::shared_ptr<const any_dialect>& dialect) {
            const distlock::detail::annotated_lock guard(lock_);
            for (const auto& known : spoken_) {
                if (known->kind() == dialect->kind()) return;
            }
            spoken_.push_back(dialect);
        }
        template <class F>
        void use_each(F f) {
            const distlock::detail::annotated_lock guard(lock_);
            if (ended_) return;
            for (const auto& known : spoken_) f(*known);
        }
        void end() noexcept {
            const distlock::detail::annotated_lock guard(lock_);
            ended_ = true;
        }

      private:
        background_io& io_;
        distlock::detail::annotated_mutex lock_;
        bool ended_ DISTLOCK_GUARDED_BY(lock_) = false;
        // One of each kind.
        std::vector<std::shared_ptr<const any_dialect>> spoken_ DISTLOCK_GUARDED_BY(lock_);
    };

    bool follows_slots() const noexcept { return connection_->can.follow && connection_->can.shard; }

    const std::unique_ptr<any_connection> connection_;
    const time_source time_;
    const std::string channel_;
    const distlock::detail::own_process process_;
    const std::shared_ptr<presence> present_ = std::make_shared<presence>(*this);
    std::vector<std::atomic<time_point>> master_since_;  // of each slot; else one for all locks
    distlock::detail::annotated_mutex lock_;
    std::shared_ptr<subscription> messages_ DISTLOCK_GUARDED_BY(lock_);  // of all locks
    std::atomic<std::size_t> places_wanted_{0};
    known_scripts scripts_;
    deadline_timer deadlines_{time_};
    callback_pool callbacks_{deadlines_, time_};
    timer_thread tasks_;
};

// The background I/O of connections that have no member for it: each lives as long as a
// lock of its connection.
class background_io_register {
    using io = background_io;

  public:
    template <class Make>
    static std::shared_ptr<io> get(const void* connection, const void* kind, Make make) {
        background_io_register& here = present();
        const std::lock_guard guard(here.lock_);
        for (entry& e : here.known_) {
            if (e.connection != connection || e.kind != kind) continue;
            ++e.users;
            return handle(e.kept.get());
        }
        here.known_.push_back({connection, kind, make(), 1});
        return handle(here.known_.back().kept.get());
    }

  private:
    struct entry {
        const void* connection;
        const void* kind;
        std::unique_ptr<io> kept;
        std::size_t users;
    };

    static std::shared_ptr<io> handle(io* of) {
        return {of, [](const io* one) noexcept { leave(one); }};
    }

    static void leave(const io* of) noexcept {
        std::unique_ptr<io> last;  // its end waits for threads, and for nothing of ours
        background_io_register* const here = present_.load();
        if (here->process_.in_forked_child()) return;
        const std::lock_guard guard(here->lock_);
        const auto found = std::find_if(here->known_.begin(), here->known_.end(),
                                        [&](const entry& e) { return e.kept.get() == of; });
        if (found == here->known_.end() || --found->users > 0) return;
        last = std::move(found->kept);
        here->known_.erase(found);
    }

    // Never destroyed: destructors of static objects ask, too. A child begins another: what its parent has is
    // nobody's, and a thread that is not there may have had the lock.
    static background_io_register& present() {
        background_io_register* known = present_.load();
        while (known == nullptr || known->process_.in_forked_child()) {
            auto made = std::make_unique<background_io_register>();
            if (present_.compare_exchange_strong(known, made.get())) known = made.release();
        }
        return *known;
    }

    static inline std::atomic<background_io_register*> present_{nullptr};
    std::recursive_mutex lock_;  // a handle there is no memory for is left at once
    std::vector<entry> known_;
    const distlock::detail::own_process process_;
};

}  // namespace distlock::engine
