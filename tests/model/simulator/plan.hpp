// What a seed stands for: who is there, how they lock, and what goes wrong how often.
//
//   struct lock_plan;              // of one lock object in one process
//   struct plan { static plan of(dice&); };
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <distlock/base/options.hpp>

#include "model/simulator/fibers.hpp"
#include "model/simulator/network.hpp"
#include "model/simulator/world.hpp"

namespace sim {

struct lock_plan {
    bool handoff = true;
    bool observed = false;
    distlock::lock_options options;
};

/// Faults that come by themselves: mean time between two; zero: none.
struct troubles {
    nanos pause{0};
    nanos kill{0};
    nanos stall{0};
    nanos restart{0};
    nanos flush{0};
    nanos forget{0};
    nanos evict{0};
    nanos cut{0};
};

struct plan {
    bool calm = false;  // nothing ever goes wrong
    scheduler::habits habits;
    hazards network;
    troubles trouble;
    nanos duration{};  // of the time in which things go wrong
    std::int64_t server_ppm = 0;
    std::int64_t drift_ppm = 0;  // by how much a process' clock differs from the server's at most
    std::chrono::milliseconds timeout{};
    std::size_t processes = 0;
    std::size_t threads = 0;  // of a process, at most
    std::vector<std::string> names;
    std::vector<std::chrono::milliseconds> leases;  // of each name, the longest
    nanos idle{};                                   // between two acquisitions, at most
    bool only_handoff = false;
    bool only_plain = false;
    bool fencing = false;
    bool renews = true;
    bool short_looks = false;
    std::uint32_t cancels = 0;  // per million calls
    std::uint32_t long_holds = 0;

    /// Every lock is handed over to who waits, all have leases of one length and keep them,
    /// and nothing goes wrong.
    bool orderly() const { return calm && only_handoff; }

    static plan of(dice& d) {
        plan p;
        p.calm = d.chance(150'000);
        p.processes = 2 + d.index(5);
        p.threads = 1 + d.index(3);
        p.server_ppm = static_cast<std::int64_t>(d.below(40'001)) - 20'000;
        // The margin is one per cent of the lease, and what the drift of 9,000 millionths
        // leaves of it is little.
        p.drift_ppm = d.chance(500'000) ? 9'000 : 100;
        p.timeout = std::chrono::milliseconds(40 + d.below(161));
        const std::size_t locks = 1 + d.index(3);
        static constexpr std::array<const char*, 3> names{"a", "orders:42", "{user7}:mail"};
        for (std::size_t i = 0; i < locks; ++i) {
            p.names.emplace_back(names[i]);
            const auto longest = d.chance(600'000) ? 400 : 3000;
            p.leases.push_back(p.timeout +
                               std::chrono::milliseconds(60 + d.below(static_cast<std::uint64_t>(longest))));
        }
        p.idle = std::array<nanos, 4>{0ms, 1ms, 20ms, 500ms}[d.index(4)];
        const auto mix = d.below(10);
        p.only_handoff = mix < 6;
        p.only_plain = mix == 9;
        p.fencing = d.chance(500'000);
        p.renews = d.chance(700'000);
        p.short_looks = d.chance(300'000);
        p.cancels = d.chance(500'000) ? 200'000 : 0;
        p.long_holds = std::array<std::uint32_t, 3>{2'000, 50'000, 300'000}[d.index(3)];
        p.duration = d.between(2s, 12s);

        p.habits.usual = d.chance(800'000) ? 20us : 500us;
        p.habits.strays = std::array<std::uint32_t, 4>{0, 1'000, 10'000, 50'000}[d.index(4)];
        p.habits.stray = d.chance(800'000) ? 500us : 5ms;
        if (p.calm) return p;

        if (d.chance(300'000)) {
            p.network.usual = 5ms;
            p.network.slow = 60ms;
        }
        const auto rate = [&](std::uint32_t most) {
            return d.chance(350'000) ? 1 + static_cast<std::uint32_t>(d.below(most)) : 0;
        };
        p.network.lose_request = rate(20'000);
        p.network.lose_reply = rate(20'000);
        p.network.silence = rate(5'000);
        p.network.late = rate(20'000);
        p.network.refuse = rate(10'000);
        p.network.strike = rate(10'000);
        p.network.lose_message = rate(50'000);
        p.network.may_subscribe = !d.chance(70'000);
        p.network.may_publish = !d.chance(70'000);
        p.network.may_count = !d.chance(70'000);
        const auto every = [&](nanos least, nanos most) {
            return d.chance(350'000) ? d.between(least, most) : 0ns;
        };
        p.trouble.pause = every(100ms, 2s);
        p.trouble.kill = every(300ms, 4s);
        p.trouble.stall = every(200ms, 4s);
        p.trouble.restart = every(500ms, 5s);
        p.trouble.flush = every(50ms, 2s);
        p.trouble.forget = d.chance(500'000) ? every(300ms, 3s) : 0ns;
        p.trouble.evict = d.chance(500'000) ? every(300ms, 3s) : 0ns;
        p.trouble.cut = every(50ms, 2s);
        p.habits.no_thread = d.chance(100'000) ? 20'000 : 0;
        return p;
    }

    /// Returns: how a process uses the lock of that name.
    lock_plan use(dice& d, std::size_t name) const {
        lock_plan l;
        l.handoff = only_handoff || (!only_plain && d.chance(600'000));
        l.observed = d.chance(300'000);
        auto& o = l.options;
        const auto least = timeout + std::chrono::milliseconds(1);
        o.lease = d.chance(500'000) || orderly()
                      ? leases[name]
                      : std::max<std::chrono::milliseconds>(
                            least, leases[name] * static_cast<int>(1 + d.below(4)) / 4);
        o.renew = (renews && d.chance(850'000)) || orderly();
        if (d.chance(50'000) && !orderly()) o.max_hold = std::chrono::milliseconds(10 + d.below(1000));
        o.fencing = fencing && d.chance(900'000);
        if (short_looks) o.recheck = std::chrono::milliseconds(2 + d.below(200));
        if (d.chance(50'000)) o.owner_info = "sim";
        o.patience =
            d.chance(500'000) ? std::chrono::milliseconds(2000) : std::chrono::milliseconds(d.below(1000));
        o.release = d.chance(600'000) ? distlock::posted : distlock::confirmed;
        o.local_budget = std::array<std::chrono::milliseconds, 3>{{{}, 5ms, 100ms}}[d.index(3)];
        return l;
    }
};

}  // namespace sim
