// Which thread reads by which grant: one entry for each time that it was let in.
//
//   template <class Batch> class reader_holds {
//     struct hold { std::thread::id thread; std::uint64_t serial; Batch* in; ended_by ends; };
//     void make_room(std::size_t more);              // may throw
//     void add(const hold&) noexcept;
//     const hold* find(std::uint64_t serial) const noexcept;
//     const hold* newest() const noexcept;            // of the calling thread
//     const hold* newest_unguarded() const noexcept;
//     void set_ended_by(const hold&, ended_by) noexcept;
//     void remove(const hold&) noexcept;
//     std::size_t size() const noexcept;
//   };
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace distlock::engine {

/// A hold is ended by its thread, by a guard that knows its serial, or by the one that does so first.
enum class ended_by { thread, guard, both };

/// A hash table by thread, with linear probing: a thousand readers end as fast as one does. Not thread-safe.
template <class Batch>
class reader_holds {
  public:
    struct hold {
        std::thread::id thread;
        std::uint64_t serial = 0;  // not 0
        Batch* in = nullptr;
        ended_by ends = ended_by::thread;
    };

    std::size_t size() const noexcept { return size_; }

    /// Effects: so many more can be added.
    /// Throws: std::bad_alloc; nothing has changed then.
    void make_room(std::size_t more) {
        if (2 * (size_ + more) <= slots_.size()) return;
        reader_holds larger;
        larger.slots_.resize(std::bit_ceil(4 * (size_ + more)));
        for (const hold& one : slots_) {
            if (one.serial != 0) larger.add(one);
        }
        *this = std::move(larger);
    }

    /// Preconditions: make_room().
    void add(const hold& one) noexcept {
        auto at = home_of(one);
        while (slots_[at].serial != 0) at = next(at);
        slots_[at] = one;
        ++size_;
    }

    /// Returns: that hold, whichever thread it is of; null: it is over. Until the next change.
    const hold* find(std::uint64_t serial) const noexcept {
        if (size_ == 0) return nullptr;
        // Most ask for their own.
        for (auto at = home_of({std::this_thread::get_id()}); slots_[at].serial != 0; at = next(at)) {
            if (slots_[at].serial == serial) return &slots_[at];
        }
        for (const hold& one : slots_) {
            if (one.serial == serial) return &one;
        }
        return nullptr;
    }

    /// A thread may have lost what it reads under, and read anew before it ended that.
    /// Returns: the calling thread's last hold; null: none. Until the next change.
    const hold* newest() const noexcept {
        return newest_of([](const hold&) { return true; });
    }
    /// Returns: the same, of those that the thread may end.
    const hold* newest_unguarded() const noexcept {
        return newest_of([](const hold& one) { return one.ends != ended_by::guard; });
    }

    /// `which`: as one of those has returned it.
    void set_ended_by(const hold& which, ended_by who) noexcept { slot_of(which).ends = who; }

    /// `which`: as one of those has returned it.
    void remove(const hold& which) noexcept {
        auto gap = static_cast<std::size_t>(&which - slots_.data());
        // A hold that others pushed on moves back, or find() would miss it.
        for (auto at = next(gap); slots_[at].serial != 0; at = next(at)) {
            if (distance(home_of(slots_[at]), at) < distance(gap, at)) continue;
            slots_[gap] = slots_[at];
            gap = at;
        }
        slots_[gap] = {};
        --size_;
    }

  private:
    template <class F>
    const hold* newest_of(F wanted) const noexcept {
        if (size_ == 0) return nullptr;
        const auto me = std::this_thread::get_id();
        const hold* found = nullptr;
        for (auto at = home_of({me}); slots_[at].serial != 0; at = next(at)) {
            const hold& one = slots_[at];
            if (one.thread != me || !wanted(one)) continue;
            if (found == nullptr || found->serial < one.serial) found = &one;
        }
        return found;
    }

    hold& slot_of(const hold& which) noexcept {
        return slots_[static_cast<std::size_t>(&which - slots_.data())];
    }
    std::size_t home_of(const hold& one) const noexcept {
        return std::hash<std::thread::id>{}(one.thread) & (slots_.size() - 1);
    }
    std::size_t next(std::size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }
    std::size_t distance(std::size_t from, std::size_t to) const noexcept {
        return (to - from) & (slots_.size() - 1);
    }

    std::vector<hold> slots_;  // a power of two, at least half of it free
    std::size_t size_ = 0;
};

}  // namespace distlock::engine
