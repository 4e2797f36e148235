// One seed of another world: readers and writers, and permits, under the same faults as the
// mutexes of scenario.hpp.
//
//   class family {
//     family(seed, trace);
//     tally play();                // a violation ends the program
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/counting_semaphore.hpp>
#include <distlock/shared_mutex.hpp>

#include "model/simulator/link.hpp"
#include "model/simulator/plan.hpp"
#include "model/simulator/scenario.hpp"
#include "model/simulator/server.hpp"
#include "model/simulator/world.hpp"

namespace sim {

class family;

/// What a thread has, as long as it believes so.
struct share {
    process* who = nullptr;
    std::size_t name = 0;
    std::int64_t n = 0;            // permits; 0: reads; -1: writes
    std::function<nanos()> until;  // by its process' clock
};

/// One virtual process with its threads.
class relative {
  public:
    relative(family& f, std::uint64_t number, nanos offset, std::int64_t ppm);
    relative(const relative&) = delete;
    relative& operator=(const relative&) = delete;

    void kill();
    bool over() const { return over_; }
    process home;
    std::vector<int> waiters;  // by name: threads that wait without limit

  private:
    using shared = distlock::shared_mutex<link>;
    using semaphore = distlock::counting_semaphore<link>;
    struct object {
        std::size_t name;
        std::unique_ptr<shared> lock;
        std::unique_ptr<semaphore> pool;
    };
    struct cancellation {
        nanos when;
        std::stop_source whom;
    };
    // How a thread asks.
    struct asking {
        bool patient;
        bool once;
        nanos span;
        std::stop_token stop;
    };

    static void* run_main(void* self);
    static void* run_worker(void* self);
    static void* run_canceller(void* self);
    void main();
    void work();
    void cancel();
    void ask_once(bool patiently);
    void write(object& o, const asking& how);
    void read(object& o, const asking& how);
    void take_permits(object& o, const asking& how);
    void take_several(const asking& how);
    void hold_for_a_while(std::size_t name);
    void judge(const asking& how, std::size_t name, bool got, std::error_code ec);

    family& family_;
    std::unique_ptr<link> link_;
    std::vector<object> objects_;
    std::vector<cancellation> to_cancel_;
    fiber* canceller_ = nullptr;
    bool workers_over_ = false;
    bool over_ = false;
};

class family final : public happening, public nemesis, public witness {
  public:
    family(std::uint64_t seed, bool trace);
    tally play();

    world where;
    const plan how;
    scheduler threads;
    server peer;
    bool quiet = false;
    nanos all_is_well = end_of_time;  // from here on no call fails
    tally result;

    bool is_pool(std::size_t name) const { return limits_[name] > 0; }
    std::int64_t limit(std::size_t name) const { return limits_[name]; }
    std::list<share>::iterator begin(share what);
    void let_go(std::list<share>::iterator what);

  private:
    enum trouble : std::uint64_t {
        pause,
        kill,
        stall,
        restart,
        flush,
        cut,
        go_on,
        end_of_trouble,
        begin_anew
    };

    void sent(process&, const distlock::command&) override {}
    void executed(process&, std::span<const std::string_view>, const model_server&) override {}
    void heard(process&, std::string_view) override {}

    void happen(std::uint64_t what) override;
    nanos mean_of(std::uint64_t what) const;
    void again(std::uint64_t what);
    void strike(std::uint64_t what);
    void strike_at(process& whom) override;
    void stop_or_kill(relative& whom, bool stop);
    void start_process();
    void be_quiet();
    void look();
    void watch_progress();
    void nothing_left();
    relative* pick();
    void run_until(nanos end);
    [[noreturn]] void fail(std::size_t name, const std::string& what) const {
        where.fail("'" + how.names[name] + "': " + what);
    }

    std::list<std::unique_ptr<relative>> relatives_;
    std::list<share> shares_;
    std::vector<std::int64_t> limits_;  // by name; 0: a shared lock
    std::vector<nanos> idle_since_;     // by name: since when somebody waits for what nobody has
    std::vector<std::pair<nanos, relative*>> stopped_;
    std::uint64_t started_ = 0;
    nanos quiet_since_{0};
    bool healed_ = false;
};

}  // namespace sim
