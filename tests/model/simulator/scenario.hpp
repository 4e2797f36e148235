// One seed, played to its end: processes that lock, what goes wrong meanwhile, and the quiet time after it.
//
//   struct tally;                  // what came of it
//   class scenario {
//     scenario(seed, trace);
//     tally play();                // a violation ends the program
//   };
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "model/simulator/any_lock.hpp"
#include "model/simulator/checks.hpp"
#include "model/simulator/link.hpp"
#include "model/simulator/plan.hpp"
#include "model/simulator/server.hpp"
#include "model/simulator/world.hpp"

namespace sim {

struct tally {
    std::uint64_t events = 0;
    std::uint64_t switches = 0;
    std::uint64_t commands = 0;
    std::uint64_t grants = 0;
    std::uint64_t hash = 0;
    std::array<std::uint64_t, static_cast<std::size_t>(act::count_of_acts)> by_act{};
    nanos simulated{0};
    nanos longest_wait{0};      // for a lock that nobody has, in the quiet time
    nanos longest_handover{0};  // the same, where locks are handed over and nothing goes wrong
    nanos longest_overrun{0};   // of a deadline
};

class scenario;

/// One virtual process with its threads. Its main fiber makes the connection and the locks, and ends them.
class actor {
  public:
    actor(scenario& s, std::uint64_t number, nanos offset, std::int64_t ppm);
    actor(const actor&) = delete;
    actor& operator=(const actor&) = delete;

    void kill();
    bool over() const { return over_; }
    process home;

    /// Whether a thread waits without limit for the lock of that name.
    std::vector<int> waiters;

  private:
    struct cancellation {
        nanos when;
        std::stop_source whom;
    };
    class watcher;

    static void* run_main(void* self);
    static void* run_worker(void* self);
    static void* run_canceller(void* self);
    void main();
    void work();
    void cancel();
    void lock_once(bool patiently);
    void hold_it(any_lock& l, std::size_t which, std::uint64_t serial, bool guarded);
    void check_time(const char* what, nanos begun, nanos least, nanos slack) const;

    scenario& scenario_;
    std::unique_ptr<link> link_;
    std::vector<std::unique_ptr<any_lock>> locks_;
    std::vector<std::size_t> names_;  // of locks_
    std::vector<cancellation> to_cancel_;
    fiber* canceller_ = nullptr;
    bool workers_over_ = false;
    bool disconnected_ = false;
    bool over_ = false;
};

class scenario final : public happening, public nemesis {
  public:
    scenario(std::uint64_t seed, bool trace);
    tally play();

    world where;
    const plan how;
    scheduler threads;
    server peer;
    checks check;
    bool quiet = false;
    nanos quiet_since{0};
    nanos all_is_well = end_of_time;  // from here on no call fails
    tally result;

  private:
    enum trouble : std::uint64_t {
        pause,
        kill,
        stall,
        restart,
        flush,
        forget,
        evict,
        cut,
        go_on,
        end_of_trouble,
        begin_anew
    };

    void happen(std::uint64_t what) override;
    void run_until(nanos end);
    nanos mean_of(std::uint64_t what) const;
    void again(std::uint64_t what);
    void strike(std::uint64_t what);
    void strike_at(process& whom) override;
    void stop_or_kill(actor& whom, bool stop);
    void start_process();
    void be_quiet();
    void watch_progress();
    actor* pick();

    std::list<std::unique_ptr<actor>> actors_;
    std::uint64_t started_ = 0;
    bool healed_ = false;
    const bool hands_over_;          // every lock, and nothing goes wrong
    std::vector<nanos> idle_since_;  // by name: since when somebody waits for a lock that nobody has
    std::vector<std::pair<nanos, actor*>> stopped_;
};

}  // namespace sim
