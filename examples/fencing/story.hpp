// The story both examples play: an owner that was stopped for longer than its lease
// writes after the next one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>

namespace fencing {

// Tells what happens, a line each, and remembers whether it was what had to happen.
class narrator {
  public:
    void tell(const std::string& what, const std::string& came_of_it) {
        std::printf("  %-34s%s\n", what.c_str(), came_of_it.c_str());
    }
    void tell(const std::string& what, bool accepted, bool expected) {
        if (accepted != expected) failures_ = 1;
        tell(what, std::string(accepted ? "accepted" : "refused") +
                       (accepted == expected ? "" : "  <- WRONG, this must not be"));
    }
    void check(bool holds, const char* what) {
        if (!holds) failures_ = 1;
        std::printf("  %s: %s\n", holds ? "ok" : "FAILED", what);
    }
    int failures() const { return failures_; }

  private:
    int failures_ = 0;
};

// Returns: whether it came, within five seconds.
inline bool wait_for_loss(const std::stop_token& lost) {
    std::mutex m;
    std::unique_lock lock{m};
    std::condition_variable_any never;
    never.wait_for(lock, lost, std::chrono::seconds{5}, [] { return false; });
    return lost.stop_requested();
}

// `account` holds 100 and has two functions, which show the caller's token:
//   std::optional<std::int64_t> read(std::uint64_t fence);       // none: refused
//   bool write(std::uint64_t fence, std::int64_t balance);       // false: refused
template <class Account>
void play(narrator& teller, const std::string& server, Account& account) {
    using namespace std::chrono_literals;

    // These stand for two processes. One that is stopped cannot renew its lease: here none is renewed.
    const distlock::lock_options options{.lease = 500ms, .renew = false, .fencing = true};
    distlock::hiredis_connection redis_of_a{server};
    distlock::hiredis_connection redis_of_b{server};
    distlock::mutex lock_of_a{redis_of_a, "account:7", options};
    distlock::mutex lock_of_b{redis_of_b, "account:7", options};

    distlock::scoped_lock a{lock_of_a};
    teller.tell("A takes the lock", "token " + std::to_string(a.fencing_token()));
    const auto seen_by_a = account.read(a.fencing_token());
    teller.check(a.owns_lock() && seen_by_a == 100, "A reads 100, asks whether it owns the lock, and does");
    teller.tell("A is stopped", "for longer than its lease");
    teller.check(wait_for_loss(a.lost()) && !a.owns_lock(), "the lease is over; A does not ask again");

    distlock::scoped_lock b{lock_of_b};
    teller.tell("B takes the lock", "token " + std::to_string(b.fencing_token()));
    teller.check(b.fencing_token() > a.fencing_token(), "B's token is larger");
    teller.check(account.read(b.fencing_token()) == 100, "B reads 100");

    // A must not get in although B has written nothing yet: B would write over it, not knowing.
    teller.tell("A goes on and writes 100 - 30", account.write(a.fencing_token(), 70), false);
    teller.tell("B writes 100 + 50", account.write(b.fencing_token(), 150), true);
    teller.tell("A writes 100 - 30 again", account.write(a.fencing_token(), 70), false);
    teller.tell("B writes 150 + 25", account.write(b.fencing_token(), 175), true);
    teller.check(account.read(b.fencing_token()) == 175, "the account holds 175, all of B's and none of A's");
}

}  // namespace fencing
