// How several locks are taken, compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/joint_acquire.hpp>
#include <distlock/engine/joint_executor.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/engine/lock_place.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/joint_try.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

namespace joint {

// Each lock object tries, and hands its command to this instead of the server; only the last one's is sent,
// with all others, and what the server says goes back to each. So every lock object knows of its own
// acquisition as if it had asked alone. Until then none has waited for anything.
template <class Lazy>
class joint_request final : public joint_executor {
  public:
    /// Preconditions: all are asked over one connection.
    joint_request(std::span<joint_member* const> members, clock::time_point until,
                  const std::stop_token& stop)
        : members_(members), until_(until), stop_(stop), results_(members.size()) {
        tries_.reserve(members.size());
    }

    /// Effects: tries all, once.
    /// Returns: whether it took all; if not, it took none.
    /// Throws: what the members throw; none is taken then.
    bool run() {
        try_next();
        const bool all =
            std::all_of(results_.begin(), results_.end(), [](const auto& one) { return one.granted(); });
        if (all) return true;
        for (std::size_t i = 0; i < members_.size(); ++i) {
            if (results_[i].granted()) members_[i]->undo();
        }
        if (thrown_) std::rethrow_exception(thrown_);
        return false;
    }
    /// Returns: of a run() in vain that sent nothing: the first one that no server will ever grant; null:
    /// there is none.
    const lock_core::result* hopeless() const noexcept {
        if (answer_) return nullptr;
        return first_that([](errc cause) {
            return cause == errc::invalid_option || cause == errc::lease_expired ||
                   cause == errc::wrong_process;
        });
    }
    /// Returns: of a run() in vain whose request was not answered, what one of them was told; null: it was,
    /// or none was sent.
    const lock_core::result* unanswered() const noexcept {
        if (!answer_) return nullptr;
        return first_that([](errc cause) { return cause == errc::no_reply; });
    }

    reply execute(const command& one) noexcept override {
        const std::size_t mine = tries_.size();
        try {
            tries_.push_back(one);
            try_next();
            if (!answer_ && !failed_) send();
            if (!answer_) return distlock::detail::joint_try::taken();
            return tries_.size() == 1 ? *answer_ : distlock::detail::joint_try::answer_to(mine, *answer_);
        } catch (const std::exception&) {
            failed_ = true;  // the command is a view of a frame that ends here
            return reply::no_answer(errc::no_reply, "no memory");
        }
    }

    bool asked_twice() const noexcept override { return asked_twice_; }

  private:
    template <class Is>
    const lock_core::result* first_that(Is is) const noexcept {
        const auto found =
            std::find_if(results_.begin(), results_.end(), [&](const auto& one) { return is(one.cause); });
        return found == results_.end() ? nullptr : &*found;
    }

    // Those after the first one that asks are tried from within its asking.
    void try_next() noexcept {
        while (next_ < members_.size() && !failed_) {
            const std::size_t at = next_++;
            try {
                results_[at] = members_[at]->acquire(until_, {.once = true, .together = this}, stop_);
            } catch (...) {
                thrown_ = std::current_exception();
            }
            if (!results_[at].granted()) failed_ = true;
        }
    }

    void send() {
        auto& connection = members_.front()->connection();
        if (tries_.size() == 1) {
            answer_ = connection.execute(bounded(tries_.front()));
            return;
        }
        const distlock::detail::joint_try all(tries_);
        answer_ = connection.execute(bounded(all.ask()));
        const bool lost = answer_->is(reply_kind::no_answer) && answer_->cause() == errc::no_reply;
        if (!lost || members_.front()->now() >= until_) return;
        // As one lock does: by the same tokens an earlier success is found.
        asked_twice_ = true;
        auto again = connection.execute(bounded(all.ask()));
        if (again.answered()) answer_ = std::move(again);
    }
    command bounded(command one) const {
        one.until(tries_.front().deadline());
        one.until(stop_);
        return one;
    }

    const std::span<joint_member* const> members_;
    const clock::time_point until_;
    const std::stop_token& stop_;
    std::vector<lock_core::result> results_;
    std::vector<command> tries_;
    std::optional<reply> answer_;
    std::exception_ptr thrown_;
    std::size_t next_ = 0;
    bool failed_ = false;  // one could not be had
    bool asked_twice_ = false;
};

template <class Lazy>
void put_in_order(std::span<joint_member*> members) {
    struct placed {
        lock_place at;
        joint_member* member;
    };
    std::vector<placed> places;
    for (auto* const one : members) places.push_back({place_of(one->name(), one->connection()), one});
    std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.at.before(b.at); });
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (i > 0 && places[i - 1].at.may_be(places[i].at))
            throw error(errc::deadlock, places[i - 1].at.shown());
        members[i] = places[i].member;
    }
}

/// Returns: how many of them, from the first on, one command can ask for.
template <class Lazy>
std::size_t together(std::span<joint_member* const> members) {
    const auto& first = *members.front();
    const auto goes_along = [&first](const joint_member& one) {
        const bool reachable =
            &one.connection() == &first.connection() &&
            (!first.connection().can.shard || hash_slot(one.name()) == hash_slot(first.name()));
        return reachable && one.may_join();
    };
    std::size_t count = 0;
    while (count < members.size() && goes_along(*members[count])) ++count;
    return count;
}

// Ends those that were taken, unless all were.
template <class Lazy>
class taken_members {
  public:
    explicit taken_members(std::span<joint_member* const> all) noexcept : all_(all) {}
    ~taken_members() {
        if (count_ < all_.size() || without_ != nullptr) undo();
    }
    taken_members(const taken_members&) = delete;
    taken_members& operator=(const taken_members&) = delete;

    std::span<joint_member* const> missing() const noexcept { return all_.subspan(count_); }
    void add(std::size_t more) noexcept { count_ += more; }
    void undo() noexcept {
        while (count_ > 0) {
            auto* const one = all_[--count_];
            if (one != without_) one->undo();
        }
        without_ = nullptr;
    }
    /// Returns: null: all are valid still.
    joint_member* first_ended() const noexcept {
        const auto found = std::find_if(all_.begin(), all_.end(), [](const auto* one) {
            const auto until = one->valid_until();  // before the clock is read: that may take long
            return one->now() >= until;
        });
        return found == all_.end() ? nullptr : *found;
    }
    /// Effects: takes the one that has ended without a wait, while the others are kept: or one that is waited
    /// for longer than another lasts could never be had with it.
    /// Returns: whether it is held.
    bool take_again(joint_member& ended, clock::time_point until, const std::stop_token& stop) {
        without_ = &ended;
        ended.undo();
        if (!ended.acquire(until, {.once = true}, stop).granted()) return false;
        without_ = nullptr;
        return true;
    }

  private:
    const std::span<joint_member* const> all_;
    std::size_t count_ = 0;
    const joint_member* without_ = nullptr;  // of those: it is not held
};

// The outcome of a try at several locks by one command.
struct attempt {
    std::size_t taken = 0;
    lock_core::result hopeless{};  // where one of them is never granted by any server
    lock_core::result doubt{};     // where it was not answered, and may have taken them
};

template <class Lazy>
attempt take_together(std::span<joint_member* const> missing, clock::time_point until,
                      const std::stop_token& stop) {
    const std::size_t count = together<Lazy>(missing);
    if (count < 2 || stop.stop_requested()) return {};
    const auto begun = missing.front()->now();
    joint_request<Lazy> request(missing.first(count), until, stop);
    if (request.run()) return {.taken = count};
    attempt got;
    if (const auto* const cause = request.hopeless()) got.hopeless = *cause;
    if (const auto* const cause = request.unanswered()) {
        got.doubt = *cause;
        // The trouble of earlier calls takes none of this one's patience.
        got.doubt.failing_since = begun;
    }
    return got;
}

/// `first_try`: null: there is none.
template <class Lazy>
lock_core::result acquire_in_order(std::span<joint_member*> members, clock::time_point until,
                                   const std::stop_token& stop, decltype(&take_together<Lazy>) first_try) {
    put_in_order<Lazy>(members);
    taken_members<Lazy> taken(members);
    lock_core::result last;
    lock_core::result doubt;
    for (;;) {
        while (!taken.missing().empty()) {
            const auto missing = taken.missing();
            if (first_try != nullptr) {
                const attempt tried = first_try(missing, until, stop);
                if (tried.taken > 0) {
                    taken.add(tried.taken);
                    last.serial = 1;
                    continue;
                }
                if (tried.hopeless.cause != errc{}) return tried.hopeless;
                if (tried.doubt.cause != errc{}) doubt = tried.doubt;
            }
            last = missing.front()->acquire(until, {.failing_since = doubt.failing_since}, stop);
            if (!last.granted()) {
                const bool may_be_ours = doubt.cause != errc{} && missing.front()->residual().count() > 0;
                return last.taken() && may_be_ours ? doubt : last;
            }
            taken.add(1);
            doubt.failing_since = clock::time_point::max();
        }
        // While the last one was waited for, the lease of the first may have run out.
        joint_member* ended = taken.first_ended();
        while (ended != nullptr && ended->now() < until && taken.take_again(*ended, until, stop))
            ended = taken.first_ended();
        if (ended == nullptr) return last;
        taken.undo();
        if (members.front()->now() >= until)
            return {.cause = errc::lease_expired,
                    .detail = distlock::detail::shown_lock(ended->name()) +
                              ": its lease ran out while others were waited for, and none is held"};
    }
}

}  // namespace joint

template <class Lazy>
lock_core::result acquire_all(std::span<joint_member*> members, clock::time_point until,
                              const std::stop_token& stop) {
    return joint::acquire_in_order<Lazy>(members, until, stop, &joint::take_together<Lazy>);
}
template <class Lazy>
lock_core::result acquire_each(std::span<joint_member*> members, clock::time_point until,
                               const std::stop_token& stop) {
    return joint::acquire_in_order<Lazy>(members, until, stop, nullptr);
}
#ifdef DISTLOCK_SEPARATE_COMPILATION
template lock_core::result acquire_all<void>(std::span<joint_member*>, clock::time_point,
                                             const std::stop_token&);
template lock_core::result acquire_each<void>(std::span<joint_member*>, clock::time_point,
                                              const std::stop_token&);
#endif

}  // namespace distlock::engine
