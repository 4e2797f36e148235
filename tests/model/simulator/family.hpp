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
#include "model/simulator/server.hpp"
#include "model/simulator/simulation.hpp"
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
class relative final : public participant {
  public:
    relative(family& f, std::uint64_t number, nanos offset, std::int64_t ppm);

  private:
    using shared = distlock::shared_mutex<link>;
    using semaphore = distlock::counting_semaphore<link>;
    struct object {
        std::size_t name;
        std::unique_ptr<shared> lock;
        std::unique_ptr<semaphore> pool;
    };
    // How a thread asks.
    struct asking {
        bool patient;
        bool once;
        nanos span;
        std::stop_token stop;
    };

    void make_locks(link& to) override;
    void end_locks() override { objects_.clear(); }
    void ask_once(bool patiently) override;
    void write(object& o, const asking& how);
    void read(object& o, const asking& how);
    void take_permits(object& o, const asking& how);
    void take_several(const asking& how);
    void judge(const asking& how, std::size_t name, bool got, std::error_code ec);

    family& family_;
    std::vector<object> objects_;
};

class family final : public simulation {
  public:
    family(std::uint64_t seed, bool trace);

    bool is_pool(std::size_t name) const { return limits_[name] > 0; }
    std::int64_t limit(std::size_t name) const { return limits_[name]; }
    std::list<share>::iterator begin(share what);
    void let_go(std::list<share>::iterator what);

    [[noreturn]] void fail(std::size_t name, const std::string& what) const override {
        where.fail("'" + how.names[name] + "': " + what);
    }

  private:
    std::unique_ptr<participant> make_participant(std::uint64_t number, nanos offset,
                                                  std::int64_t ppm) override {
        return std::make_unique<relative>(*this, number, offset, ppm);
    }
    void look() override;
    bool held(std::size_t name) const override;
    void end() override;
    void nothing_left();

    std::list<share> shares_;
    std::vector<std::int64_t> limits_;  // by name; 0: a shared lock
};

}  // namespace sim
