// The switching of fibers: makecontext for the first entry, _setjmp and _longjmp, which ask nothing of the
// system, from then on. Nothing public: see fibers.hpp.
#include "model/simulator/fibers.hpp"

#include <cxxabi.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>

namespace sim {

scheduler* scheduler::present_ = nullptr;

namespace {

constexpr std::size_t stack_size = 128 * 1024;
constexpr std::size_t guard_size = 4096;

// Kept from one world to the next.
std::vector<void*>& spare_stacks() {
    static std::vector<void*> stacks;
    return stacks;
}

void* new_stack(world& w) {
    auto& spare = spare_stacks();
    if (!spare.empty()) {
        void* const stack = spare.back();
        spare.pop_back();
        return stack;
    }
    void* const stack =
        ::mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) w.fail("no memory for a stack");
    ::mprotect(stack, guard_size, PROT_NONE);  // what overflows is to crash
    return stack;
}

// What the language keeps for each thread about the exceptions in flight ([Itanium C++ ABI, 2.2.2]).
struct exceptions_in_flight {
    void* caught;
    unsigned uncaught;
};
exceptions_in_flight& in_flight() {
    return *reinterpret_cast<exceptions_in_flight*>(abi::__cxa_get_globals());
}

}  // namespace

scheduler::scheduler(world& w, const habits& how) : world_(w), habits_(how) {
    present_ = this;
    distlock::engine::callback::last_serial() = 0;  // each world is played as if it were the first
    __libc_single_threaded = 0;  // or libstdc++ wakes nobody who waits for the end of a stop callback
}

scheduler::~scheduler() { present_ = nullptr; }

fiber& scheduler::spawn(domain& home, fiber::body what, void* argument) {
    all_.emplace_back(new fiber(*this, home, what, argument, all_.size() + 1));
    ++left_;
    fiber& made = *all_.back();
    made.stack_ = new_stack(world_);
    world_.at(soon(), made, 0);
    return made;
}

void scheduler::park(nanos until) {
    fiber& me = *running_;
    me.state_ = fiber::state::parked;
    ++me.epoch_;
    if (until != end_of_time)
        world_.at(std::max(until, world_.now()) + nanos(world_.random().below(2000)), me,
                  me.epoch_ << 1U | 1U);
    leave();
}

void scheduler::wake(fiber& whom) {
    if (whom.state_ != fiber::state::parked) return;
    whom.state_ = fiber::state::ready;
    world_.at(soon(), whom, whom.epoch_ << 1U);
}

void scheduler::go_on(domain& which) {
    which.stopped_ = false;
    which.went_on_ = world_.now();
    for (fiber* const one : which.frozen_) {
        one->state_ = fiber::state::ready;
        world_.at(soon(), *one, one->epoch_ << 1U);
    }
    which.frozen_.clear();
}

void fiber::happen(std::uint64_t what) {
    if (what >> 1U != epoch_) return;
    const bool timer = (what & 1U) != 0;
    if (state_ != (timer ? state::parked : state::ready)) return;
    owner_.world_.note(timer ? act::timer : act::wake, id_);
    if (home_.stopped_) {
        state_ = state::frozen;
        home_.frozen_.push_back(this);
        return;
    }
    owner_.run(*this);
}

void scheduler::run(fiber& next) {
    ++switches_;
    auto& globals = in_flight();
    const exceptions_in_flight mine = globals;
    globals = {next.exceptions_.caught, next.exceptions_.uncaught};
    distlock::engine::callback::current() = next.callback_;
    running_ = &next;
    next.state_ = fiber::state::running;
    if (_setjmp(place_) == 0) {
        if (next.begun_) _longjmp(next.place_, 1);
        next.begun_ = true;
        ucontext_t first{};
        ::getcontext(&first);
        first.uc_stack.ss_sp = static_cast<char*>(next.stack_) + guard_size;
        first.uc_stack.ss_size = stack_size - guard_size;
        ::makecontext(&first, &scheduler::enter, 0);
        ::setcontext(&first);
    }
    fiber& last = *running_;
    running_ = nullptr;
    last.exceptions_ = {in_flight().caught, in_flight().uncaught};
    in_flight() = mine;
    last.callback_ = std::exchange(distlock::engine::callback::current(), {});
    if (last.state_ == fiber::state::over) {
        spare_stacks().push_back(last.stack_);
        last.stack_ = nullptr;
        --left_;
        if (last.joiner_ != nullptr) wake(*last.joiner_);
        if (last.detached_) bury(last);
    }
}

void scheduler::leave() {
    if (_setjmp(running_->place_) == 0) _longjmp(place_, 1);
}

void scheduler::enter() {
    scheduler& here = *present_;
    fiber& me = *here.running_;
    me.result_ = me.body_(me.argument_);
    me.state_ = fiber::state::over;
    _longjmp(here.place_, 1);
}

void* scheduler::join(std::uint64_t id) {
    fiber* const other = all_[id - 1].get();
    if (other->buried_ || other->detached_ || other->joiner_ != nullptr)
        world_.fail("no such thread to join");
    other->joiner_ = running_;
    while (other->state_ != fiber::state::over) park(end_of_time);
    void* const result = other->result_;
    bury(*other);
    return result;
}

void scheduler::detach(std::uint64_t id) {
    fiber* const other = all_[id - 1].get();
    if (other->buried_ || other->detached_) world_.fail("no such thread to detach");
    other->detached_ = true;
    if (other->state_ == fiber::state::over) bury(*other);
}

// It stays: happenings that are stale by now still know it.
void scheduler::bury(fiber& dead) { dead.buried_ = true; }

}  // namespace sim
