// Threads of the library as fibers: one runs at a time, in virtual time, on one thread of the system.
//
//   class domain;                  // a virtual process: its clock, and whether it is stopped
//   class fiber;
//   class scheduler {
//     fiber& spawn(domain&, body, argument);
//     void park(nanos until);      // of the running fiber: until wake(), or until then
//     void wake(fiber&);
//     void stray();                // the running fiber may lose the processor for a while here
//   };
//
// interpose.cpp makes pthreads, futexes, clocks and getrandom() of these.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <memory>
#include <pthread.h>
#include <ucontext.h>
#include <utility>
#include <vector>

#include <distlock/engine/callback_pool.hpp>

#include "model/simulator/world.hpp"

namespace sim {

class fiber;

/// A process as its threads see it. Its clock runs at a rate of its own; a stopped process runs none of them.
class domain {
  public:
    /// `ppm`: by how many millionths its clock is fast.
    domain(nanos offset, std::int64_t ppm) : offset_(offset), ppm_(ppm) {}
    domain(const domain&) = delete;
    domain& operator=(const domain&) = delete;

    nanos local(nanos at) const { return offset_ + at + nanos(at.count() * ppm_ / 1'000'000); }
    /// Returns: the first instant at which the clock shows `shown` or more.
    nanos when(nanos shown) const {
        const nanos since = shown - offset_;
        if (since <= nanos(0)) return nanos(0);
        if (since > std::chrono::hours{2}) return end_of_time;
        nanos at{static_cast<nanos::rep>(since.count() * 1'000'000 / (1'000'000 + ppm_))};
        while (local(at) < shown) ++at;
        while (at > nanos(0) && local(at - nanos(1)) >= shown) --at;
        return at;
    }

    bool stopped() const { return stopped_; }
    /// Returns: when it went on the last time after having been stopped.
    nanos went_on() const { return went_on_; }

  private:
    friend class scheduler;
    friend class fiber;
    const nanos offset_;
    const std::int64_t ppm_;
    bool stopped_ = false;
    nanos went_on_{0};
    std::vector<fiber*> frozen_;
};

class fiber final : public happening {
  public:
    using body = void* (*)(void*);

    domain& home() { return home_; }
    std::uint64_t id() const { return id_; }

    // Of who waits in a line of a mutex or a condition.
    fiber* behind = nullptr;
    bool called = false;
    const void* waits_at = nullptr;  // the address of its futex

  private:
    friend class scheduler;
    enum class state { parked, ready, frozen, running, over };

    fiber(class scheduler& owner, domain& home, body what, void* argument, std::uint64_t id)
        : owner_(owner), home_(home), body_(what), argument_(argument), id_(id) {}
    void happen(std::uint64_t what) override;

    class scheduler& owner_;
    domain& home_;
    const body body_;
    void* const argument_;
    const std::uint64_t id_;
    void* result_ = nullptr;
    fiber* joiner_ = nullptr;
    bool detached_ = false;
    bool buried_ = false;  // joined, or over and detached
    bool begun_ = false;
    state state_ = state::ready;
    std::uint64_t epoch_ = 0;  // of the present rest: what was meant for another is stale
    void* stack_ = nullptr;
    std::jmp_buf place_{};
    struct {
        void* caught = nullptr;
        unsigned uncaught = 0;
    } exceptions_;
    distlock::engine::subject callback_;  // of the callback that it runs
};

class scheduler {
  public:
    /// How threads get and lose the processor, in this world.
    struct habits {
        nanos usual = 20us;           // at most, until somebody who was woken runs
        nanos stray = 500us;          // at most, for who loses the processor
        std::uint32_t strays = 2000;  // chances per million, at each chance
        std::uint32_t no_thread = 0;  // chances per million that a thread cannot be made
    };

    scheduler(world& w, const habits& how);
    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;
    /// Preconditions: no fiber is left.
    ~scheduler();

    static scheduler* present() { return present_; }
    fiber* running() const { return running_; }

    /// While it lives the running fiber looks from outside: no lock holds it up, and it does
    /// not lose the processor.
    class aside {
      public:
        explicit aside(scheduler& s) : scheduler_(s), before_(std::exchange(s.aside_, true)) {}
        aside(const aside&) = delete;
        aside& operator=(const aside&) = delete;
        ~aside() { scheduler_.aside_ = before_; }

      private:
        scheduler& scheduler_;
        const bool before_;
    };
    bool looks_on() const { return aside_; }
    /// Who looks from outside may see what nobody else could: a thread is in the middle of a
    /// change, under a lock.
    bool saw_locked = false;

    world& where() { return world_; }
    const habits& how() const { return habits_; }
    void calm() { habits_.no_thread = 0; }
    std::size_t left() const { return left_; }
    std::uint64_t switches() const { return switches_; }

    fiber& spawn(domain& home, fiber::body what, void* argument);
    /// Effects: the running fiber rests until it is woken, or until then. There is no telling which.
    void park(nanos until);
    void wake(fiber& whom);
    void sleep(nanos span) { park(world_.now() + span); }
    void stray() {
        if (running_ != nullptr && world_.random().chance(habits_.strays))
            sleep(world_.random().between(nanos(0), habits_.stray));
    }

    void stop(domain& which) { which.stopped_ = true; }
    void go_on(domain& which);

    /// Effects: the running fiber waits for the end of the other, which is then no more.
    void* join(std::uint64_t id);
    void detach(std::uint64_t id);

    /// Of futexes: by address, in order.
    std::vector<fiber*> sleepers;

  private:
    friend class fiber;
    static void enter();
    void run(fiber& next);
    void leave();
    void bury(fiber& dead);
    nanos soon() { return world_.now() + world_.random().between(nanos(100), habits_.usual); }

    static scheduler* present_;
    world& world_;
    habits habits_;
    fiber* running_ = nullptr;
    std::vector<std::unique_ptr<fiber>> all_;  // by id - 1
    bool aside_ = false;
    std::size_t left_ = 0;
    std::uint64_t switches_ = 0;
    std::jmp_buf place_{};
};

}  // namespace sim
