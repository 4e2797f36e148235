// One seed of processes that lock mutexes.
//
//   class scenario {
//     scenario(seed, trace);
//     tally play();                // a violation ends the program
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/simulator/any_lock.hpp"
#include "model/simulator/checks.hpp"
#include "model/simulator/simulation.hpp"

namespace sim {

class scenario;

/// One virtual process with its threads.
class actor final : public participant {
  public:
    actor(scenario& s, std::uint64_t number, nanos offset, std::int64_t ppm);

  private:
    class watcher;

    void make_locks(link& to) override;
    void end_locks() override;
    void ask_once(bool patiently) override;
    void hold_it(any_lock& l, std::size_t which, std::uint64_t serial, bool guarded);
    void check_time(const char* what, nanos begun, nanos least, nanos slack) const;

    scenario& scenario_;
    std::vector<std::unique_ptr<any_lock>> locks_;
    std::vector<std::size_t> names_;  // of locks_
};

class scenario final : public simulation {
  public:
    scenario(std::uint64_t seed, bool trace);

    checks check;

    void bury(const process& dead) override { check.bury(dead); }
    [[noreturn]] void fail(std::size_t name, const std::string& what) const override {
        check.fail(name, what);
    }

  private:
    std::unique_ptr<participant> make_participant(std::uint64_t number, nanos offset,
                                                  std::int64_t ppm) override {
        return std::make_unique<actor>(*this, number, offset, ppm);
    }
    nanos mean_of(std::uint64_t what) const override;
    void lose_data(std::uint64_t what) override;
    void look() override { check.look(); }
    bool held(std::size_t name) const override { return check.held(name); }
    nanos progress(std::size_t name) const override { return check.progress(name); }
    bool hands_over() const override { return hands_over_; }
    void end() override;

    const bool hands_over_;
};

}  // namespace sim
