// Does what locks need done in the background over one connection: one thread, one pipeline for all that is due.
//
//   template <connection Conn, class Clock> class lease_keeper {
//     struct chore { begin, end };                // something to say to the server at a time
//     explicit lease_keeper(Conn&);
//     void list(chore&, time_point at);
//     void strike(chore&) noexcept;
//     void owe(std::unique_ptr<chore>, time_point at) noexcept;
//     loss_timer<Clock>& timer() noexcept;
//   };
//   std::shared_ptr<lease_keeper<Conn, Clock>> keeper_of(Conn&);
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/agenda.hpp>
#include <distlock/detail/parent_only.hpp>
#include <distlock/detail/process.hpp>
#include <distlock/detail/quiet_thread.hpp>
#include <distlock/engine/loss_timer.hpp>
#include <distlock/net/companion.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// Thread-safe. The thread starts with the first chore that is listed and is joined by the destructor; no code of
/// the user runs on it but the connection's. In a child after fork() nothing may be called, and the destructor does
/// nothing.
template <connection Conn, class Clock>
class lease_keeper {
    using time_point = clock::time_point;

  public:
    /// What is to be said to the server, again and again. Both functions are called without a lock of the keeper.
    class chore : public distlock::detail::agenda_item<clock::time_point> {
      public:
        chore() = default;
        chore(const chore&) = delete;
        chore& operator=(const chore&) = delete;
        virtual ~chore() = default;

        struct step {
            std::optional<command> send;  ///< good until end() was called
            time_point next;  ///< without a command: when to ask again; time_point::max(): not any more
        };
        virtual step begin(time_point now) noexcept = 0;

        /// `sent` is before the first byte of the pipeline that the command went with.
        /// Returns: when to begin again; time_point::max(): not any more.
        virtual time_point end(const reply& answer, time_point sent, time_point now) noexcept = 0;

      protected:
        /// How much earlier than asked for it may begin when others do.
        clock::duration early{};

      private:
        friend class lease_keeper;
        bool busy_ = false;    // between begin and what follows end
        bool struck_ = false;  // not to begin again
        bool owed_ = false;    // the keeper's own
    };

    explicit lease_keeper(Conn& connection) : connection_(connection) {}
    lease_keeper(const lease_keeper&) = delete;
    lease_keeper& operator=(const lease_keeper&) = delete;

    /// Preconditions: no chore is listed but what is owed, which is given up.
    ~lease_keeper() {
        if (!work_.here()) return;
        work& w = work_.get();
        {
            const std::lock_guard guard(w.lock);
            w.ending = true;
            w.wake.notify_one();
        }
        if (w.thread.joinable()) w.thread.join();
    }

    /// Effects: `c` begins at `at`, or earlier when it was to before.
    /// Throws: std::system_error, std::bad_alloc; nothing has changed then.
    void list(chore& c, time_point at) {
        work& w = work_.get();
        const std::lock_guard guard(w.lock);
        start(w);
        if (!c.listed() || at < c.at()) w.chores.put(c, at);
        if (at < w.wake_at) w.wake.notify_one();
    }

    /// Effects: `c` does not begin any more; waits for the end of what it has begun.
    void strike(chore& c) noexcept {
        work& w = work_.get();
        std::unique_lock guard(w.lock);
        c.struck_ = true;  // or it could begin again before this thread has the lock
        w.settled.wait(guard, [&] { return !c.busy_; });
        w.chores.drop(c);
        c.struck_ = false;
    }

    /// Effects: takes over `c`, begins it at `at`, and destroys it when it is not to begin any more. Gives it up, when
    /// there is no thread, no memory, or more of the kind than anybody can be waiting for.
    void owe(std::unique_ptr<chore> c, time_point at) noexcept {
        constexpr std::size_t most = 4096;
        work& w = work_.get();
        const std::lock_guard guard(w.lock);
        try {
            if (w.owed.size() >= most) return;
            start(w);
            w.owed.reserve(w.owed.size() + 1);
            w.chores.put(*c, at);
        } catch (...) {
            return;
        }
        c->owed_ = true;
        w.owed.push_back(std::move(c));
        if (at < w.wake_at) w.wake.notify_one();
    }

    loss_timer<Clock>& timer() noexcept { return timer_; }

  private:
    // As many as go in one pipeline: enough that round trips do not count, few enough for a server's patience. Without a
    // pipeline each goes alone: the answer of one must not wait for that of the next.
    static constexpr std::size_t batch_size = pipelining_connection<Conn> ? 1024 : 1;

    // As in loss_timer: the system's timers stand still while the machine is suspended.
    static constexpr std::chrono::milliseconds longest_wait{std::same_as<Clock, clock> ? 1000 : 1};

    struct work {
        std::mutex lock;
        std::condition_variable wake;
        std::condition_variable settled;
        distlock::detail::agenda<chore> chores;
        std::vector<std::unique_ptr<chore>> owed;
        std::thread thread;
        time_point wake_at = time_point::max();
        bool ending = false;
    };

    struct batch {
        batch() {
            chores.reserve(batch_size);
            asked.reserve(batch_size);
            commands.reserve(batch_size);
            replies.reserve(batch_size);
            next.reserve(batch_size);
        }
        std::vector<chore*> chores;
        std::vector<chore*> asked;  // those of them that have something to send
        std::vector<command> commands;
        std::vector<reply> replies;
        std::vector<time_point> next;  // of `chores`
    };

    void start(work& w) {
        if (w.thread.joinable()) return;
        // Made here, where somebody hears of it that there is no memory.
        w.thread = distlock::detail::quiet_thread([this, b = std::make_unique<batch>()] { run(*b); });
    }

    void run(batch& b) {
        work& w = work_.get();
        std::unique_lock guard(w.lock);
        while (!w.ending) {
            const auto now = Clock::now();
            collect(w, b, now);
            if (b.chores.empty()) {
                wait(w, now, guard);
                continue;
            }
            guard.unlock();
            work_off(b, now);
            guard.lock();
            put_back(w, b);
        }
    }

    static void collect(work& w, batch& b, time_point now) {
        b.chores.clear();
        // What is in hand stays listed, at the end of time: to enter it again could need memory.
        for (chore* c = w.chores.first(); c != nullptr && b.chores.size() < batch_size;
             c = w.chores.first()) {
            if (c->busy_ || c->at() == time_point::max() || now < c->at() - c->early) break;
            if (b.chores.empty() && now < c->at()) break;
            c->busy_ = true;
            w.chores.put(*c, time_point::max());
            b.chores.push_back(c);
        }
    }

    void work_off(batch& b, time_point now) {
        b.asked.clear();
        b.commands.clear();
        b.next.clear();
        for (chore* c : b.chores) {
            const auto step = c->begin(now);
            b.next.push_back(step.next);
            if (!step.send) continue;
            b.asked.push_back(c);
            b.commands.push_back(*step.send);
        }
        if (b.asked.empty()) return;
        b.replies.assign(b.asked.size(), reply{});
        const auto sent = Clock::now();
        execute_all(connection_, std::span<const command>(b.commands), std::span<reply>(b.replies));
        const auto came = Clock::now();
        std::size_t i = 0;
        for (std::size_t k = 0; k < b.chores.size() && i < b.asked.size(); ++k) {
            if (b.chores[k] != b.asked[i]) continue;
            b.next[k] = b.asked[i]->end(b.replies[i], sent, came);
            ++i;
        }
    }

    static void put_back(work& w, batch& b) {
        for (std::size_t k = 0; k < b.chores.size(); ++k) {
            chore& c = *b.chores[k];
            c.busy_ = false;
            const auto at = std::min(b.next[k], c.at());
            if (at != time_point::max() && !c.struck_) {
                w.chores.put(c, at);
                continue;
            }
            w.chores.drop(c);
            if (c.owed_) std::erase_if(w.owed, [&](const auto& owed) { return owed.get() == &c; });
        }
        w.settled.notify_all();
    }

    static void wait(work& w, time_point now, std::unique_lock<std::mutex>& guard) {
        const chore* const next = w.chores.first();
        w.wake_at = next != nullptr ? next->at() : time_point::max();
        if (next == nullptr) {
            w.wake.wait(guard);
            return;
        }
        clock::duration span = longest_wait;
        if (std::same_as<Clock, clock> && w.wake_at - now < span) span = w.wake_at - now;
        w.wake.wait_for(guard, span);
    }

    Conn& connection_;
    loss_timer<Clock> timer_;
    distlock::detail::parent_only<work> work_;
};

// The keepers of connections that have no place for one: each lives as long as a lock of its connection.
template <class Conn, class Clock>
class keeper_register {
    using keeper = lease_keeper<Conn, Clock>;

  public:
    static std::shared_ptr<keeper> get(Conn& connection) {
        keeper_register& here = present();
        const std::lock_guard guard(here.lock_);
        for (entry& e : here.known_) {
            if (e.connection != &connection) continue;
            ++e.users;
            return handle(e.kept.get());
        }
        here.known_.reserve(here.known_.size() + 1);
        here.known_.push_back({&connection, std::make_unique<keeper>(connection), 1});
        return handle(here.known_.back().kept.get());
    }

  private:
    struct entry {
        const Conn* connection;
        std::unique_ptr<keeper> kept;
        std::size_t users;
    };

    static std::shared_ptr<keeper> handle(keeper* of) {
        return {of, [](const keeper* k) noexcept { leave(k); }};
    }

    static void leave(const keeper* of) noexcept {
        std::unique_ptr<keeper> last;  // its end waits for threads, and for nothing of ours
        keeper_register* const here = present_.load();
        if (here->process_ != distlock::detail::current_process()) return;
        const std::lock_guard guard(here->lock_);
        const auto found = std::find_if(here->known_.begin(), here->known_.end(),
                                        [&](const entry& e) { return e.kept.get() == of; });
        if (found == here->known_.end() || --found->users > 0) return;
        last = std::move(found->kept);
        here->known_.erase(found);
    }

    // Never destroyed: destructors of static objects ask, too. A child begins another: its parent's keepers are nobody's,
    // and a thread that is not there may have had the lock.
    static keeper_register& present() {
        keeper_register* known = present_.load();
        while (known == nullptr || known->process_ != distlock::detail::current_process()) {
            auto made = std::make_unique<keeper_register>();
            if (present_.compare_exchange_strong(known, made.get())) known = made.release();
        }
        return *known;
    }

    static inline std::atomic<keeper_register*> present_{nullptr};
    std::recursive_mutex lock_;  // a handle there is no memory for is left at once
    std::vector<entry> known_;
    const pid_t process_ = distlock::detail::current_process();
};

/// Returns: the keeper of `connection`: the one that lives in it, or one that lives as long as somebody keeps it.
template <class Clock, connection Conn>
std::shared_ptr<lease_keeper<Conn, Clock>> keeper_of(Conn& connection) {
    using keeper = lease_keeper<Conn, Clock>;
    if constexpr (hosting_connection<Conn>) {
        return connection.host().template get<keeper>([&] { return std::make_shared<keeper>(connection); });
    } else {
        return keeper_register<Conn, Clock>::get(connection);
    }
}

}  // namespace distlock::engine
