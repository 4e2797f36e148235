// One seed, played to its end: processes that take something, what goes wrong meanwhile, and the quiet time
// after it. What they take: scenario.hpp, family.hpp.
//
//   struct tally;                  // what came of it
//   class participant {            // one virtual process with its threads
//     process home;
//     std::vector<int> waiters;    // by name: threads that wait without limit
//   };
//   class simulation {
//     tally play();                // a violation ends the program
//   };
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

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
    nanos longest_wait{0};      // for what nobody has, in the quiet time
    nanos longest_handover{0};  // the same, where locks are handed over and nothing goes wrong
    nanos longest_overrun{0};   // of a deadline
};

class simulation;

/// One virtual process with its threads. Its main fiber makes the connection and the locks, and ends them.
class participant {
  public:
    participant(simulation& s, std::uint64_t number, nanos offset, std::int64_t ppm);
    participant(const participant&) = delete;
    participant& operator=(const participant&) = delete;
    virtual ~participant() = default;

    void kill();
    bool over() const { return over_; }
    process home;
    std::vector<int> waiters;  // by name: threads that wait without limit

  protected:
    virtual void make_locks(link& to) = 0;
    virtual void end_locks() = 0;
    virtual void ask_once(bool patiently) = 0;

    /// Effects: another thread requests the stop at that time, unless it was called off.
    void stop_at(nanos when, std::stop_source whom);
    void call_off(const std::stop_source& whom);
    void hold_for_a_while(std::size_t name);

  private:
    struct cancellation {
        nanos when;
        std::stop_source whom;
    };

    static void* run_main(void* self);
    static void* run_worker(void* self);
    static void* run_canceller(void* self);
    void main();
    void work();
    void cancel();

    simulation& simulation_;
    std::unique_ptr<link> link_;
    std::vector<cancellation> to_cancel_;
    fiber* canceller_ = nullptr;
    bool workers_over_ = false;
    bool over_ = false;
};

class simulation : public happening, public nemesis {
  public:
    simulation(std::uint64_t seed, bool trace);
    tally play();

    world where;
    const plan how;
    scheduler threads;
    server peer;
    bool quiet = false;
    nanos all_is_well = end_of_time;  // from here on no call fails
    tally result;

    /// A participant's process is dead from now on.
    virtual void bury(const process& /*dead*/) {}
    [[noreturn]] virtual void fail(std::size_t name, const std::string& what) const = 0;

  protected:
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

    ~simulation() = default;

    virtual std::unique_ptr<participant> make_participant(std::uint64_t number, nanos offset,
                                                          std::int64_t ppm) = 0;
    /// Returns: how often it happens; zero: never.
    virtual nanos mean_of(std::uint64_t what) const;
    virtual void lose_data(std::uint64_t /*what*/) {}
    virtual void look() = 0;
    virtual bool held(std::size_t name) const = 0;
    /// Returns: when somebody got or gave back what has that name.
    virtual nanos progress(std::size_t /*name*/) const { return nanos(0); }
    /// Whether everything is handed over, and nothing goes wrong.
    virtual bool hands_over() const { return false; }
    virtual void end() = 0;

    void run_until(nanos end);

  private:
    void happen(std::uint64_t what) override;
    void again(std::uint64_t what);
    void strike(std::uint64_t what);
    void strike_at(process& whom) override;
    void stop_or_kill(participant& whom, bool stop);
    void start_process();
    void be_quiet();
    void watch_progress();
    participant* pick();

    std::list<std::unique_ptr<participant>> participants_;
    std::uint64_t started_ = 0;
    nanos quiet_since_{0};
    bool healed_ = false;
    std::vector<nanos> idle_since_;  // by name: since when somebody waits for what nobody has
    std::vector<std::pair<nanos, participant*>> stopped_;
};

}  // namespace sim
