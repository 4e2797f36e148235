// An exchange puts another acquisition in the place of a guard's: which one that is, for the guard ends it.
//
//   struct serials { std::uint64_t read, write; };     // of one acquisition: the other is 0
//   class continuations {
//     serials begin(serials which, bool guarded);      // an exchange; may throw
//     bool finish(serials guards, serials now, std::thread::id by) noexcept;
//     void give_up(serials guards) noexcept;
//     serials now(serials guards) const noexcept;
//     serials take(serials guards) noexcept;           // the guard ends
//     void adopt(serials now) noexcept;                // another one ends it
//     serials write_by(std::thread::id, F is_held) const;
//   };
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace distlock::engine {

/// Names an acquisition of a shared lock object, or none.
struct serials {
    std::uint64_t read = 0;   ///< the serial of a reader's
    std::uint64_t write = 0;  ///< of a writer's

    explicit operator bool() const noexcept { return read != 0 || write != 0; }
    friend bool operator==(const serials&, const serials&) = default;
};

/// One entry for each guard that lives and whose acquisition was exchanged: until the guard ends, its thread
/// takes no later write for its own. `guards` is the acquisition as its guard knows it. Not thread-safe.
class continuations {
  public:
    /// Effects: an exchange of `which` begins, whose guard may end meanwhile; `guarded`: it has one.
    /// Returns: what its guard knows; {}: no guard ends it.
    /// Throws: std::bad_alloc; nothing has changed then.
    serials begin(const serials& which, bool guarded) {
        const auto known = of([&](const entry& one) { return one.now == which; });
        if (known != all_.end()) return known->guards;
        if (!guarded) return {};
        all_.push_back({which});
        return which;
    }
    /// `guards`: as begin() has returned it. `by`: the thread that writes now.
    /// Returns: false: its guard has ended meanwhile, and has not ended `now`.
    bool finish(const serials& guards, const serials& now, std::thread::id by) noexcept {
        if (!guards) return true;
        const auto known = of(guards);
        if (known == all_.end()) return false;
        known->now = now;
        known->by = by;
        return true;
    }
    /// Effects: the exchange was in vain.
    void give_up(const serials& guards) noexcept {
        const auto known = of(guards);
        if (known != all_.end() && !known->now) all_.erase(known);
    }

    /// Returns: {}: it was not exchanged, or not yet.
    serials now(const serials& guards) const noexcept {
        const auto known =
            std::find_if(all_.begin(), all_.end(), [&](auto& one) { return one.guards == guards; });
        return known != all_.end() ? known->now : serials{};
    }
    /// Effects: the guard ends.
    /// Returns: as now().
    serials take(const serials& guards) noexcept {
        const auto known = of(guards);
        if (known == all_.end()) return {};
        const serials last = known->now;
        all_.erase(known);
        return last;
    }
    /// Effects: another guard ends what one has become.
    void adopt(const serials& now) noexcept {
        const auto known = of([&](const entry& one) { return one.now == now; });
        if (known != all_.end()) all_.erase(known);
    }
    /// Returns: a write that `by` has made; {}: none that `is_held(serial)`.
    template <class F>
    serials write_by(std::thread::id by, F is_held) const {
        for (const auto& one : all_) {
            if (one.now.write != 0 && one.by == by && is_held(one.now.write)) return one.now;
        }
        return {};
    }

  private:
    struct entry {
        serials guards;
        serials now = {};  // {}: still that one, which is about to be exchanged
        std::thread::id by = {};
    };

    template <class F>
    std::vector<entry>::iterator of(F wanted) noexcept {
        return std::find_if(all_.begin(), all_.end(), wanted);
    }
    std::vector<entry>::iterator of(const serials& guards) noexcept {
        return of([&](const entry& one) { return one.guards == guards; });
    }

    std::vector<entry> all_;
};

}  // namespace distlock::engine
