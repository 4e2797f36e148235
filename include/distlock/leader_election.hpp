// distlock::leader_election: one of a fleet leads at a time, and knows when it does no more.
//
//   template <connection Conn, class Clock = clock>
//   class leader_election {
//     leader_election(Conn&, std::string name, election_options = {},
//         std::shared_ptr<election_observer> = {});
//     void run(std::stop_token, work);                 // work(const leadership&), again and again
//     std::uint64_t term() const noexcept;             // of this object's leadership; 0: it does not lead
//     std::optional<leader_report> leader() const;     // whoever leads; or with a std::error_code&
//   };
//   class leadership { lost(); term(); };
//   class election_observer { started(std::uint64_t); stopped(std::uint64_t, stop_reason);
//       failed(std::error_code); };
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/without_throwing.hpp>
#include <distlock/inspect.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/scoped_lock.hpp>

namespace distlock {

/// An aggregate for designated initialisers: `election_options{.identity = "worker 7"}`.
struct election_options {
    /// What leader() says of this candidate, beside host and process id: any text of up to 256 bytes. Empty:
    /// leader() returns an empty identity and host, and process id 0.
    owner_label identity = "candidate";

    /// How long nobody leads after a leader died, at most. As lock_options::lease.
    time_span lease = std::chrono::seconds{10};
};

/// Why a leadership ended.
enum class stop_reason {
    done,  ///< work() returned, or threw
    lost,  ///< somebody else may lead
};

constexpr std::string_view to_string(stop_reason why) noexcept {
    return why == stop_reason::done ? "done" : "lost";
}

/// Is told what becomes of a candidate, on the thread that is in run(), in order: `stopped` only after its
/// `started`. term() of the election has its new value by then. An exception that leaves one of the functions
/// ends the program.
class election_observer {
  public:
    virtual ~election_observer() = default;
    virtual void started(std::uint64_t /*term*/) noexcept {}
    virtual void stopped(std::uint64_t /*term*/, stop_reason) noexcept {}
    /// An attempt failed: the server was unreachable, loading, silent or a replica for 2 s, or refused it.
    /// The candidate stands again, 100 ms later.
    virtual void failed(std::error_code) noexcept {}
};

/// The leadership that work() was called for. Good until it returns.
class leadership {
  public:
    /// Returns: a token that is stopped when the leadership is lost. If its lease ends: before anybody else
    /// leads, whatever the server does. If the key was deleted or taken by force: at the next renewal. Give
    /// up then.
    std::stop_token lost() const noexcept { return lost_; }
    /// Returns: a number larger than that of every leader before: the fencing token. A resource that compares
    /// it refuses a leader that was paused for too long.
    std::uint64_t term() const noexcept { return term_; }

  private:
    template <connection Conn, class Clock>
    friend class leader_election;
    leadership(std::stop_token lost, std::uint64_t term) noexcept : lost_(std::move(lost)), term_(term) {}

    std::stop_token lost_;
    std::uint64_t term_;
};

/// Who leads, as the server knows it; out of date on arrival.
struct leader_report {
    std::string identity;
    std::string host;
    std::int64_t pid = 0;
    /// The term that began last. A mutex without fencing that has the same name begins no term.
    std::uint64_t term = 0;
    std::chrono::sys_time<std::chrono::microseconds>
        since{};                            ///< by the server's clock, unless it was set back
    std::chrono::milliseconds remaining{};  ///< of the lease that was begun last
};

/// A mutex with fencing: whoever has it leads, and the candidates that wait for it are its queue. Nothing
/// else is on the server.
///
/// All members may be called from several threads. `Conn` must outlive the election.
template <connection Conn, class Clock = clock>
class leader_election {
  public:
    using connection_type = Conn;
    using clock_type = Clock;

    /// Effects: none on the server.
    /// Throws: error with errc::invalid_name, errc::invalid_lease, errc::invalid_option or
    /// errc::no_entropy; std::bad_alloc.
    leader_election(Conn& connection, std::string name, const election_options& options = {},
                    std::shared_ptr<election_observer> observer = {})
        : connection_(connection),
          mutex_(connection, std::move(name), as_lock_options(options)),
          observer_(std::move(observer)) {}
    leader_election(const leader_election&) = delete;
    leader_election& operator=(const leader_election&) = delete;
    /// Preconditions: no thread is in a member function.
    ~leader_election() = default;

    /// Effects: until `stop` is requested: waits to lead, in order; calls `work(const leadership&)` on this
    /// thread; gives the leadership up when that returns, also after a loss; and waits again, behind all
    /// others where waiters are queued (subscribing_connection). Work that returns at once is called no more
    /// often than every 100 ms: candidates whose work cannot be done must not pass the leadership round as
    /// fast as the server can. `work` should return soon after lost(), or after a stop request, which it must
    /// check itself. After these errors run() calls failed() of the observer and tries again, however long
    /// they last: errc::unreachable, no_reply, unavailable, read_only, out_of_memory, writes_refused,
    /// protocol_error, lease_expired, no_thread, no_entropy and tls_failed.
    /// Throws: what `work` throws; every other error, as a wrong key, a refused password or permission, or a
    /// call from a child after fork(); std::bad_alloc.
    template <class Work>
    void run(std::stop_token stop, Work work) {
        static_assert(
            requires(Work & todo, const leadership& mine) { todo(mine); },
            "run(stop, work) calls work(const distlock::leadership&): give it a function that takes that "
            "alone");
        while (!stop.stop_requested()) {
            bool leads = false;  // what the work throws is no failure of the server
            clock::time_point next{};
            try {
                const scoped_lock guard(mutex_, stop);
                next = clock::now() + shortest_pause;
                lead(guard, work, leads);
            } catch (const error& e) {
                if (leads) throw;
                if (e.code() == errc::cancelled && stop.stop_requested()) return;
                if (e.code().category() != error_category() ||
                    !is_transient(static_cast<errc>(e.code().value())))
                    throw;
                if (observer_) observer_->failed(e.code());
                next = clock::now() + shortest_pause;
            }
            detail::pause_until(stop, next);
        }
    }

    /// Returns: the term in which this object leads; 0 when it does not, or has lost it, and on a thread
    /// whose work() has not yet returned from a term that was lost.
    std::uint64_t term() const noexcept {
        // Of several threads that run, one may have lost its term before the next one's is known.
        const std::uint64_t mine = term_;
        return mine == mutex_.fencing_token() && mutex_.owns_lock() ? mine : 0;
    }

    /// Returns: the leader; none if nobody leads. With `ec`, none also on an error, which is in `ec` then.
    /// Throws: error.
    /// Round trips: as inspect().
    [[nodiscard]] std::optional<leader_report> leader() const { return leader(detail::failure_detail::text); }
    [[nodiscard]] std::optional<leader_report> leader(std::error_code& ec) const noexcept {
        return detail::without_throwing(ec, [&] { return leader(detail::failure_detail::code_only); });
    }

    /// Returns: as mutex::name().
    const std::string& name() const noexcept { return mutex_.name(); }

  private:
    std::optional<leader_report> leader(detail::failure_detail wanted) const {
        const lock_report seen = detail::inspect(connection_, wanted, family_inspector(mutex_.name()));
        if (!seen.holder) return std::nullopt;
        leader_report told{
            .identity = seen.holder->label, .host = seen.holder->host, .pid = seen.holder->pid};
        told.term = seen.fence.value_or(0);
        // A fence is the server's clock in microseconds when it was made, unless that clock was set back.
        told.since = decltype(told.since)(std::chrono::microseconds(static_cast<std::int64_t>(told.term)));
        told.remaining = seen.remaining.value_or(std::chrono::milliseconds{0});
        return told;
    }

    using lock = mutex<Conn, handoff, Clock>;

    static lock_options as_lock_options(const election_options& options) {
        if (options.identity.size() > owner_label::max_size) {
            throw error(errc::invalid_option, detail::concat({"identity has ", options.identity.size(),
                                                              " bytes, give 256 at most"}));
        }
        return {.lease = options.lease,
                .fencing = true,
                .owner_info = options.identity,
                .local_budget = std::chrono::milliseconds{0}};
    }

    // Says that it stops, whatever ends the work.
    class announced_term {
      public:
        announced_term(leader_election& of, const scoped_lock<lock>& guard)
            : of_(of), guard_(guard), term_(guard.fencing_token()) {
            // Another thread that runs may lead by now, in a later term.
            for (auto known = of_.term_.load();
                 known < term_ && !of_.term_.compare_exchange_weak(known, term_);)
                continue;
            if (of_.observer_) of_.observer_->started(term_);
        }
        ~announced_term() {
            const auto why = guard_.owns_lock() ? stop_reason::done : stop_reason::lost;
            auto mine = term_;  // another thread that runs may lead by now
            of_.term_.compare_exchange_strong(mine, 0);
            if (of_.observer_) of_.observer_->stopped(term_, why);
        }
        announced_term(const announced_term&) = delete;
        announced_term& operator=(const announced_term&) = delete;

      private:
        leader_election& of_;
        const scoped_lock<lock>& guard_;
        const std::uint64_t term_;
    };

    template <class Work>
    void lead(const scoped_lock<lock>& guard, Work& work, bool& leads) {
        const leadership mine(guard.lost(), guard.fencing_token());
        leads = true;
        const announced_term now(*this, guard);
        work(mine);
    }

    static bool is_transient(errc cause) noexcept {
        switch (cause) {
            case errc::unreachable:
            case errc::no_reply:
            case errc::unavailable:
            case errc::read_only:
            case errc::out_of_memory:
            case errc::writes_refused:
            case errc::protocol_error:
            case errc::lease_expired:
            case errc::no_thread:
            case errc::no_entropy:
            case errc::tls_failed:
                return true;
            default:
                return false;
        }
    }

    // From the begin of one run of the work to that of the next: work that returns at once must not ask the
    // server as fast as that can answer.
    static constexpr std::chrono::milliseconds shortest_pause{100};

    Conn& connection_;
    lock mutex_;
    const std::shared_ptr<election_observer> observer_;
    std::atomic<std::uint64_t> term_{0};
};

template <connection Conn>
leader_election(Conn&, std::string) -> leader_election<Conn>;
template <connection Conn>
leader_election(Conn&, std::string, election_options) -> leader_election<Conn>;
template <connection Conn>
leader_election(Conn&, std::string, election_options, std::shared_ptr<election_observer>)
    -> leader_election<Conn>;
template <class C, class Name, class... More>
leader_election(C&&, Name&&, More&&...) -> leader_election<detail::refused_connection_t<C>>;

}  // namespace distlock
