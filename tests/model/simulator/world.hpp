// Virtual time: what happens in it, in which order, and the log by which a run is known.
//
//   class dice;                    // the only source of chance: below(n), chance(per million), between(a, b)
//   class happening;               // what can happen: happen(what)
//   class world {
//     nanos now();  void at(nanos, happening&, what);  bool step();
//         // time goes from one happening to the next
//     void note(act, a, b, text);                                      // into the log, and into its hash
//     [[noreturn]] void fail(text);  // prints the seed, the last 60 entries, and exits
//   };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace sim {

/// True time since the world began, and spans of it. No process can read it: each has a clock of its own.
using nanos = std::chrono::nanoseconds;
using namespace std::chrono_literals;
inline constexpr nanos end_of_time = nanos::max();

/// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
class dice {
  public:
    explicit dice(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    /// Preconditions: n > 0.
    std::uint64_t below(std::uint64_t n) { return next() % n; }
    std::size_t index(std::size_t n) { return static_cast<std::size_t>(below(n)); }
    bool chance(std::uint32_t per_million) { return per_million != 0 && below(1'000'000) < per_million; }
    nanos between(nanos least, nanos most) {
        return least + nanos(static_cast<nanos::rep>(
                           below(static_cast<std::uint64_t>(std::max(most - least, nanos(0)).count()) + 1)));
    }

  private:
    std::uint64_t state_;
};

class happening {
  public:
    happening() = default;
    happening(const happening&) = delete;
    happening& operator=(const happening&) = delete;
    virtual void happen(std::uint64_t what) = 0;

  protected:
    ~happening() = default;
};

/// What the log tells. The first three groups are events; the others are told beside them.
enum class act : std::uint8_t {
    request,  // a message comes to the server
    reply,    // a message comes to a client
    timer,    // a fiber goes on because its time is up
    pause,    // faults from here on
    resume,
    kill,
    start,
    stall,
    restart,
    flush,
    forget,
    evict,
    cut,
    half_open,
    lose_request,
    lose_reply,
    lose_message,
    silence,
    late,
    refuse,
    quiet,
    wake,  // told, and no events, from here on
    call,
    grant,
    taken,
    trouble,
    unlock,
    lost,
    count_of_acts
};
inline constexpr std::array<const char*, static_cast<std::size_t>(act::count_of_acts)> act_names{
    "request",      "reply",      "timer",        "pause",   "resume",  "kill",   "start",
    "stall",        "restart",    "flush",        "forget",  "evict",   "cut",    "half-open",
    "lose-request", "lose-reply", "lose-message", "silence", "late",    "refuse", "quiet",
    "wake",         "call",       "grant",        "taken",   "trouble", "unlock", "lost"};
inline constexpr bool is_event(act what) { return what < act::quiet; }
inline constexpr bool is_fault(act what) { return what >= act::pause && what < act::quiet; }

class world {
  public:
    world(std::uint64_t seed, bool trace) : seed_(seed), trace_(trace), dice_(seed * 2 + 1) {
        heap_.reserve(256);
    }

    nanos now() const { return now_; }
    std::uint64_t seed() const { return seed_; }
    dice& random() { return dice_; }

    /// Effects: whom.happen(what) at `when`; what is due at once happens in the order of these calls.
    void at(nanos when, happening& whom, std::uint64_t what) {
        heap_.push_back({std::max(when, now_), ++serial_, &whom, what});
        std::push_heap(heap_.begin(), heap_.end(), later);
    }

    /// Returns: false when nothing is to happen any more.
    bool step() {
        if (heap_.empty()) return false;
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const due next = heap_.back();
        heap_.pop_back();
        if (next.when == now_) {
            // As many happenings at one instant are a loop that waits for nothing.
            if (++at_once_ > 200'000) fail("time stands still");
        } else {
            at_once_ = 0;
        }
        now_ = next.when;
        next.whom->happen(next.what);
        return true;
    }

    void note(act what, std::uint64_t a = 0, std::uint64_t b = 0, std::string_view text = {}) {
        ++counts_[static_cast<std::size_t>(what)];
        if (is_event(what)) ++events_;
        entry& e = ring_[notes_++ % ring_.size()];
        e.when = now_;
        e.what = what;
        e.a = a;
        e.b = b;
        e.size = static_cast<std::uint8_t>(std::min(text.size(), e.text.size()));
        std::copy_n(text.begin(), e.size, e.text.begin());
        mix(static_cast<std::uint64_t>(now_.count()) ^ static_cast<std::uint64_t>(what) << 56U);
        mix(a);
        mix(b);
        for (std::size_t i = 0; i + 8 <= e.size; i += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, e.text.data() + i, sizeof word);
            mix(word);
        }
        if (trace_) print(e);
    }

    std::uint64_t events() const { return events_; }
    std::uint64_t hash() const { return hash_; }
    std::uint64_t count(act what) const { return counts_[static_cast<std::size_t>(what)]; }

    [[noreturn]] void fail(std::string_view what) const {
        std::fflush(stdout);
        const std::size_t size = std::min<std::size_t>(notes_, ring_.size());
        if (!trace_) {
            for (std::size_t i = notes_ - size; i < notes_; ++i) print(ring_[i % ring_.size()]);
        }
        std::printf("VIOLATION seed %" PRIu64 " event %" PRIu64 " at %.6f s: %.*s\n", seed_, events_,
                    std::chrono::duration<double>(now_).count(), static_cast<int>(what.size()), what.data());
        std::fflush(stdout);
        std::_Exit(1);
    }

  private:
    struct due {
        nanos when;
        std::uint64_t serial;
        happening* whom;
        std::uint64_t what;
    };
    struct entry {
        nanos when{};
        act what{};
        std::uint8_t size = 0;
        std::array<char, 48> text{};
        std::uint64_t a = 0;
        std::uint64_t b = 0;
    };

    static bool later(const due& x, const due& y) {
        return x.when != y.when ? x.when > y.when : x.serial > y.serial;
    }
    static void print(const entry& e) {
        std::printf("%13.6f ms %-12s %4" PRIu64 " %4" PRIu64 " %.*s\n",
                    std::chrono::duration<double, std::milli>(e.when).count(),
                    act_names[static_cast<std::size_t>(e.what)], e.a, e.b, static_cast<int>(e.size),
                    e.text.data());
    }
    // FNV-1a, a word at a time.
    void mix(std::uint64_t word) { hash_ = (hash_ ^ word) * 0x100000001b3U; }

    const std::uint64_t seed_;
    const bool trace_;
    dice dice_;
    nanos now_{0};
    std::vector<due> heap_;
    std::uint64_t serial_ = 0;
    std::uint64_t at_once_ = 0;
    std::uint64_t events_ = 0;
    std::uint64_t hash_ = 0xcbf29ce484222325U;
    std::array<std::uint64_t, static_cast<std::size_t>(act::count_of_acts)> counts_{};
    std::array<entry, 60> ring_{};
    std::size_t notes_ = 0;
};

}  // namespace sim
