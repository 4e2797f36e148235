// A history of what the owners of a lock did and believed, which survives them; and its checker.
//
//   struct history_event;
//   class recorder;              // events of many threads and processes, on one clock; survives SIGKILL
//   history_report check_history(std::vector<history_event>);
//   std::vector<belief> beliefs_in(std::vector<history_event>);
//       // who believed to have it, from when to when
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/testing/child_process.hpp>

namespace distlock::testing {

struct history_event {
    enum class kind : std::uint8_t {
        granted,   ///< of a hold: called in `from`, ours at `at`, valid until `until`; perhaps `fence`,
                   ///< `owner`
        held,      ///< of a hold: at `at` its owner was told that it has the lock, until `until`
        not_held,  ///< of a hold: at `at` its owner was told that it has it no more: by a look, or by lost()
        released,  ///< of a hold: its owner let go in `from`
        wrote,     ///< a resource was written to, under `fence`; it was accepted or not
        fault,     ///< the server lost the lock, or time, in `from`: overlaps are excused until `until`
        died,      ///< the process of that number was gone at `at`, and believes nothing any more
    };

    kind what{};
    bool accepted = false;         ///< of wrote
    std::int32_t process = 0;      ///< its number
    std::uint64_t hold = 0;        ///< tells holds apart, in all processes
    clock::time_point from{};      ///< before the call
    clock::time_point at{};        ///< after it
    clock::time_point until{};     ///< end of validity, or of the excuse
    std::uint64_t fence = 0;       ///< 0: none
    std::array<char, 40> lock{};   ///< its name, cut off; empty of a fault: all locks
    std::array<char, 32> owner{};  ///< its token on the server, where it is known

    std::string_view lock_name() const noexcept { return text(lock); }
    std::string_view owner_token() const noexcept { return text(owner); }

    template <std::size_t N>
    static std::string_view text(const std::array<char, N>& of) noexcept {
        return {of.data(), static_cast<std::size_t>(std::find(of.begin(), of.end(), '\0') - of.begin())};
    }
};

/// A list of events in memory that processes share: with children after fork(), or, in a file, with anybody
/// who opens the same file. An entry stays, whatever becomes of the process that wrote it. Thread-safe, and
/// neither waits nor allocates. Times are of distlock::clock, which is one for all processes of a machine.
class recorder {
    using kind = history_event::kind;

  public:
    using time_point = clock::time_point;

    static constexpr std::size_t default_capacity = 1U << 18U;

    /// In memory that children after fork() share.
    /// Throws: std::system_error.
    explicit recorder(std::size_t capacity = default_capacity)
        : recorder(-1, capacity, MAP_SHARED | MAP_ANONYMOUS) {}

    /// In a file, which is made if there is none; all who share it name the same capacity.
    /// Throws: std::system_error.
    explicit recorder(const std::string& file, std::size_t capacity = default_capacity)
        : recorder(impl::unique_fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).get(), capacity,
                   MAP_SHARED) {}

    recorder(const recorder&) = delete;
    recorder& operator=(const recorder&) = delete;
    ~recorder() { ::munmap(book_, size_of(capacity_)); }

    /// Effects: notes a grant, asked for since `called`, that is valid until `until`. An owner that may be
    /// stopped between the grant and this call says when it `came`.
    /// Returns: the number of the hold, never 0.
    std::uint64_t granted(std::string_view lock, time_point called, time_point until, std::uint64_t fence = 0,
                          std::string_view owner = {}, time_point came = {}) noexcept {
        const auto hold = book_->holds.fetch_add(1, std::memory_order_relaxed) + 1;
        history_event e = of_hold(kind::granted, hold);
        e.from = called;
        if (came != time_point{}) e.at = came;
        e.until = until;
        e.fence = fence;
        copy(lock, e.lock);
        copy(owner, e.owner);
        write(e);
        return hold;
    }
    /// Effects: notes what the owner was told when it looked; `until` of a lock it has not is in the past.
    void looked(std::uint64_t hold, time_point until) noexcept {
        history_event e = of_hold(kind::held, hold);
        e.until = until;
        if (until <= e.at) e.what = kind::not_held;
        write(e);
    }
    /// Effects: notes that the owner was told that it has lost the lock.
    void lost(std::uint64_t hold) noexcept { write(of_hold(kind::not_held, hold)); }
    /// Effects: notes that the owner let go, in a call that began in `called`.
    void released(std::uint64_t hold, time_point called) noexcept {
        history_event e = of_hold(kind::released, hold);
        e.from = called;
        write(e);
    }
    /// Effects: notes that a resource was written to under `fence`, and whether it accepted that.
    void wrote(std::string_view resource, std::uint64_t fence, bool accepted) noexcept {
        history_event e = of_hold(kind::wrote, 0);
        e.accepted = accepted;
        e.fence = fence;
        copy(resource, e.lock);
        write(e);
    }
    /// Effects: notes that the server lost the lock, or all of them where no name is given, since `from`; two
    /// may believe to have one until `until`.
    void fault(time_point from, time_point until, std::string_view lock = {}) noexcept {
        history_event e = of_hold(kind::fault, 0);
        e.from = from;
        e.until = until;
        copy(lock, e.lock);
        write(e);
    }
    /// Preconditions: the process is gone, or will never run again.
    void died(pid_t process) noexcept {
        history_event e = of_hold(kind::died, 0);
        e.process = process;
        write(e);
    }

    /// Returns: whether an event found no room.
    bool full() const noexcept { return book_->claimed.load() > capacity_; }

    /// Returns: the events that are there whole, in the order in which they were written.
    /// Throws: std::length_error when there was no room for all; std::bad_alloc.
    std::vector<history_event> events() const {
        const auto count = book_->claimed.load();  // once: others write on
        if (count > capacity_) throw std::length_error("the history is full: give it a larger capacity");
        std::vector<history_event> found;
        for (std::size_t i = 0; i < count; ++i) {
            const slot& s = places()[i];
            if (s.ready.load(std::memory_order_acquire)) found.push_back(s.event);
        }
        return found;
    }

  private:
    struct slot {
        history_event event;
        std::atomic<bool> ready;
    };
    struct alignas(slot) book {
        std::atomic<std::uint64_t> claimed;
        std::atomic<std::uint64_t> holds;
    };
    static_assert(std::is_trivially_copyable_v<history_event> &&
                  std::atomic<std::uint64_t>::is_always_lock_free);

    // Memory from the system is all zeros, which is an empty book.
    recorder(int file, std::size_t capacity, int how) : capacity_(capacity) {
        if (capacity > (std::numeric_limits<std::size_t>::max() - sizeof(book)) / sizeof(slot)) fail(ENOMEM);
        const bool in_file = (how & MAP_ANONYMOUS) == 0;
        if (in_file && (file < 0 || ::ftruncate(file, static_cast<off_t>(size_of(capacity))) != 0))
            fail(errno);
        void* const memory = ::mmap(nullptr, size_of(capacity), PROT_READ | PROT_WRITE, how, file, 0);
        if (memory == MAP_FAILED) fail(errno);
        book_ = static_cast<book*>(memory);
    }
    [[noreturn]] static void fail(int why) {
        throw std::system_error(why, std::generic_category(), "no history");
    }
    static std::size_t size_of(std::size_t capacity) { return sizeof(book) + capacity * sizeof(slot); }

    slot* places() const noexcept { return reinterpret_cast<slot*>(book_ + 1); }

    static history_event of_hold(kind what, std::uint64_t hold) noexcept {
        history_event e;
        e.what = what;
        e.process = ::getpid();
        e.hold = hold;
        e.at = clock::now();
        return e;
    }
    template <std::size_t N>
    static void copy(std::string_view text, std::array<char, N>& into) noexcept {
        std::copy_n(text.begin(), std::min(text.size(), N), into.begin());
    }
    void write(const history_event& e) noexcept {
        const auto at = book_->claimed.fetch_add(1, std::memory_order_relaxed);
        if (at >= capacity_) return;
        slot& s = places()[static_cast<std::size_t>(at)];
        s.event = e;
        s.ready.store(true, std::memory_order_release);
    }

    const std::size_t capacity_;
    book* book_ = nullptr;
};

struct history_report {
    std::vector<std::string> violations;  ///< a sentence each
    std::size_t grants = 0;
    std::size_t excused = 0;  ///< overlaps within the time of a declared fault
    /// Returns: the sentences, a line each; empty when all can be true.
    std::string text() const {
        std::string all;
        for (const std::string& v : violations) all += v + '\n';
        return all;
    }
};

/// An owner's belief that it holds the lock, from the grant to the first of: its own release, the latest end
/// of validity that it was told, being told that the lock is lost, the end of its process.
struct belief {
    history_event granted;
    clock::time_point to;
    bool over = false;  ///< it let go, or was told
};

namespace impl {

// A template, as what follows: a program that checks none compiles none of it.
template <class Lazy>
class history_check {
    using kind = history_event::kind;

  public:
    explicit history_check(std::vector<history_event> events) {
        std::stable_sort(events.begin(), events.end(),
                         [](const auto& a, const auto& b) { return a.at < b.at; });
        for (const history_event& e : events) take(e);
    }

    std::vector<belief> beliefs() const {
        std::vector<belief> all;
        for (const auto& [number, b] : holds_) all.push_back(b);
        std::stable_sort(all.begin(), all.end(),
                         [](const belief& a, const belief& b) { return a.granted.at < b.granted.at; });
        return all;
    }

    history_report report() && {
        std::map<std::string_view, std::vector<const belief*>> by_lock;
        for (const auto& [number, b] : holds_) {
            if (b.to > b.granted.at) by_lock[b.granted.lock_name()].push_back(&b);
        }
        for (auto& [name, holds] : by_lock) check_lock(name, holds);
        return std::move(report_);
    }

  private:
    void take(const history_event& e) {
        switch (e.what) {
            case kind::granted:
                return grant(e);
            case kind::fault:
                faults_.push_back(e);
                return;
            case kind::wrote:
                return write(e);
            case kind::died:
                for (auto& [number, b] : holds_) {
                    if (b.granted.process == e.process) end(b, e.at);
                }
                return;
            default:
                break;
        }
        const auto found = holds_.find(e.hold);
        if (found == holds_.end()) return say(e, "is of a hold that was never granted");
        belief& b = found->second;
        if (e.what == kind::held) {
            if (b.over) return say(b.granted, "is believed held again after its end");
            b.to = std::max(b.to, e.until);
        } else {
            end(b, e.what == kind::released ? e.from : e.at);
        }
    }

    void grant(const history_event& e) {
        ++report_.grants;
        if (e.until <= e.at) say(e, "was over when it was granted");
        if (!e.owner_token().empty() && !tokens_.emplace(e.owner_token()).second)
            say(e, "has the token of an earlier one: " + std::string(e.owner_token()));
        if (!holds_.emplace(e.hold, belief{e, e.until}).second) say(e, "is granted twice");
    }

    static void end(belief& b, clock::time_point at) {
        b.to = std::min(b.to, at);
        b.over = true;
    }

    void write(const history_event& e) {
        auto& largest = written_[std::string(e.lock_name())];
        if (e.accepted && e.fence < largest) {
            say(e, "accepted a write under " + std::to_string(e.fence) + " after one under " +
                       std::to_string(largest));
        }
        if (e.accepted) largest = std::max(largest, e.fence);
    }

    void check_lock(std::string_view name, std::vector<const belief*>& holds) {
        std::sort(holds.begin(), holds.end(),
                  [](const belief* a, const belief* b) { return a->granted.at < b->granted.at; });
        const belief* last = nullptr;  // of those so far, the one that ends last
        std::set<std::uint64_t> fences;
        std::uint64_t largest = 0;  // of the holds that had ended
        auto ended = holds;
        std::sort(ended.begin(), ended.end(), [](const belief* a, const belief* b) { return a->to < b->to; });
        auto next_end = ended.begin();
        for (const belief* const b : holds) {
            const auto begun = b->granted.at;
            if (last != nullptr && last->to > begun) overlap(name, *last, *b);
            if (last == nullptr || b->to > last->to) last = b;
            const auto fence = b->granted.fence;
            if (fence == 0) continue;
            if (!fences.insert(fence).second)
                say(b->granted, "has the fence of another: " + std::to_string(fence));
            for (; next_end != ended.end() && (*next_end)->to <= begun; ++next_end)
                largest = std::max(largest, (*next_end)->granted.fence);
            if (fence <= largest && !excused(name, begun)) {
                say(b->granted, "has the fence " + std::to_string(fence) + " after a hold with " +
                                    std::to_string(largest) + " had ended");
            }
        }
    }

    void overlap(std::string_view name, const belief& a, const belief& b) {
        const auto begun = b.granted.at;
        if (excused(name, begun)) {
            ++report_.excused;
            return;
        }
        say(b.granted, "overlaps hold " + std::to_string(a.granted.hold) + " of process " +
                           std::to_string(a.granted.process) + " by " +
                           std::to_string((std::min(a.to, b.to) - begun).count()) + " ns");
    }

    bool excused(std::string_view name, clock::time_point at) const {
        return std::any_of(faults_.begin(), faults_.end(), [&](const history_event& f) {
            return (f.lock_name().empty() || f.lock_name() == name) && f.from <= at && at < f.until;
        });
    }

    void say(const history_event& e, const std::string& what) {
        report_.violations.push_back(std::string(e.lock_name()) + ": hold " + std::to_string(e.hold) +
                                     " of process " + std::to_string(e.process) + " " + what);
    }

    history_report report_;
    std::map<std::uint64_t, belief> holds_;
    std::vector<history_event> faults_;
    std::set<std::string> tokens_;
    std::map<std::string, std::uint64_t> written_;
};

}  // namespace impl

/// Returns: who believed to have a lock, from when to when, in the order of the grants.
template <class Lazy = void>
std::vector<belief> beliefs_in(std::vector<history_event> events) {
    return impl::history_check<Lazy>(std::move(events)).beliefs();
}

/// Checks that nobody had a lock while somebody else believed to have it, but for the time of declared
/// faults; that no grant was over when it came, and none was believed in again after its end; that no token
/// was used twice; that a fence is larger than those of all holds that had ended before; and that no
/// resource accepted a write under a smaller fence than the largest before. Locks whose names begin with the
/// same 40 bytes are one to it. It takes O(n log n): tokens are unique and there is one clock, so nothing
/// has to be searched for.
template <class Lazy = void>
history_report check_history(std::vector<history_event> events) {
    return impl::history_check<Lazy>(std::move(events)).report();
}

}  // namespace distlock::testing
