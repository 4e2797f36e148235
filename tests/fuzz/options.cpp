// Fuzzes what can be set on a lock and asked of it: an input is options and time-outs, in every unit and any number, and what a
// server answers. Time passes with every look at the clock.
//
// Checks: options are refused exactly when a rule of this file says so (counted in long double); no duration, infinite or not
// a number included, is undefined behaviour; no command ever carries a TTL that is not within its bounds; every call returns;
// while the time-out is not over, a lock is given up for an error only.
#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <distlock/distlock.hpp>
#include <distlock/interop.hpp>

#include "fuzz.hpp"

namespace {

using distlock::errc;
using distlock::reply;
using fuzz::must;

// Moves on whenever it is read, faster and faster until a command is sent: so every pause is soon over, and a lease is
// still worth something when it is granted.
struct hasty_clock {
    using rep = distlock::clock::rep;
    using period = distlock::clock::period;
    using duration = distlock::clock::duration;
    using time_point = distlock::clock::time_point;
    [[maybe_unused]] static constexpr bool is_steady = true;

    static time_point now() noexcept {
        constexpr rep longest = duration(std::chrono::hours{1}).count();
        const rep by = step.load();
        step = std::min(by * 8, longest);
        return time_point(duration(ticks += by));
    }
    static void calm_down() noexcept { step = 10'000; }

    static inline std::atomic<rep> ticks{0};
    static inline std::atomic<rep> step{1};
};

constexpr long double day = 86'400'000;

// A TTL is decimal and in its bounds; `slack`: what a dialect rounds up by.
void check_ttl(std::string_view digits, long double slack) {
    std::int64_t ttl = 0;
    const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), ttl);
    must(problem == std::errc{} && stop == digits.data() + digits.size(), "a TTL is a number", digits);
    must(ttl >= 10 && static_cast<long double>(ttl) <= day + slack, "a TTL is from 10 ms to 24 h", digits);
}

// Answers as it is told, and looks at every command.
struct server {
    std::string script;  // one letter an answer; then it grants
    std::atomic<std::size_t> next{0};
    std::atomic<int> asked{0};

    reply execute(const distlock::command& cmd) {
        ++asked;
        hasty_clock::calm_down();
        const auto argv = cmd.argv();
        if (argv[0] == "SET") {
            must(argv.size() == 6 && argv[3] == "NX" && argv[4] == "PX", "a lock is set with a TTL", argv[1]);
            check_ttl(argv[5], 1500);
        } else if (argv[0] == "EVALSHA" || argv[0] == "EVAL") {
            const auto keys = static_cast<std::size_t>(argv[2][0] - '0');
            // ARGV: token, lease, and the life of the fence, which outlives it by an hour and ten leases.
            if (argv.size() > 3 + keys + 1) check_ttl(argv[3 + keys + 1], 10 * day + 3'600'000);
        } else {
            must(argv[0] == "TYPE" || argv[0] == "GET" || argv[0] == "EXISTS", "nothing else is sent",
                 argv[0]);
        }
        const auto at = next++;
        const char what = at < script.size() ? script[at] : 'G';
        // Above 0x7f: slowly.
        if (what < 0) hasty_clock::ticks += (std::int64_t{1} << (what & 0x3f) % 56);
        const bool is_script = argv[0] != "SET";
        const bool pair = is_script && argv.size() > 8;
        switch (what & 7) {
            case 0:
                if (!is_script) return reply::nil();
                return pair ? reply::array({reply::integer(0), reply::integer(what)}) : reply::integer(what);
            case 1:
                return reply::error("LOADING");
            case 2:
                return reply::no_answer(errc::no_reply, "lost");
            case 3:
                return reply::not_sent(errc::unreachable, "down");
            case 4:
                return reply::error("WRONGTYPE");
            case 5:
                return reply::array({reply::integer(0), reply::integer(INT64_MAX)});
            default:
                return granted(argv[1], is_script);
        }
    }

    static reply granted(std::string_view script, bool is_script) {
        using namespace distlock::detail;
        const auto is = [&](const distlock::script& one) {
            return script == one.sha1() || script == one.text();
        };
        if (!is_script || is(plain_look)) return reply::status("OK");
        const bool enters = is(plain_look_beside) || is(handoff_enter) || is(getset_enter);
        return enters ? reply::array({reply::integer(1), reply::string("17")}) : reply::integer(1);
    }
};
static_assert(distlock::check_connection<server>());

// Any number, in any unit.
template <class Use>
auto with_duration(fuzz::input& in, Use use) {
    const auto unit = in.byte();
    const auto bits = in.number();
    const auto whole = static_cast<std::int64_t>(bits);
    // Small ones, too, which are the interesting ones.
    const auto near = whole % 200'000'000;
    const auto real = std::bit_cast<double>(bits);
    using namespace std::chrono;
    switch (unit % 12) {
        case 0:
            return use(nanoseconds(whole));
        case 1:
            return use(microseconds(whole));
        case 2:
            return use(milliseconds(whole));
        case 3:
            return use(seconds(whole));
        case 4:
            return use(hours(near));
        case 5:
            return use(duration<double>(real));
        case 6:
            return use(duration<float, std::milli>(static_cast<float>(near)));
        case 7:
            return use(duration<long double, std::ratio<3600>>(static_cast<long double>(real)));
        case 8:
            return use(duration<std::int64_t, std::ratio<7, 3>>(whole));
        case 9:
            return use(duration<std::uint8_t, std::milli>(static_cast<std::uint8_t>(bits)));
        case 10:
            return use(duration<std::uint64_t, std::micro>(bits));
        default:
            return use(milliseconds(near));
    }
}

// Returns: in milliseconds; what is not a number counts as the least.
template <class Rep, class Period>
long double wide(std::chrono::duration<Rep, Period> value) {
    const auto ms = static_cast<long double>(value.count()) * 1000.0L * Period::num / Period::den;
    return std::isnan(ms) ? -HUGE_VALL : std::floor(ms);
}

struct wanted {
    distlock::lock_options options;
    long double lease = 30'000;
    long double max_hold = 10;
    long double recheck = 1;
    long double patience = 0;
    long double budget = 0;

    bool usable() const {
        return lease >= 10 && lease <= day && max_hold >= 10 && recheck >= 1 && recheck <= 3'600'000 &&
               patience >= 0 && budget >= 0 && budget <= 3'600'000 && options.owner_info.size() <= 256;
    }
};

void set(fuzz::input& in, distlock::time_span& span, long double& value) {
    with_duration(in, [&](auto given) {
        span = given;
        value = wide(given);
    });
}

wanted read_options(fuzz::input& in, std::string& label) {
    wanted w;
    const auto which = in.byte();
    if ((which & 1U) != 0) set(in, w.options.lease, w.lease);
    if ((which & 2U) != 0) set(in, w.options.max_hold, w.max_hold);
    if ((which & 4U) != 0) set(in, w.options.recheck, w.recheck);
    if ((which & 8U) != 0) set(in, w.options.patience, w.patience);
    if ((which & 16U) != 0) set(in, w.options.local_budget, w.budget);
    if ((which & 32U) != 0) w.options.fencing = true;
    const auto more = in.byte();
    if ((more & 1U) != 0) label = std::string(in.byte() * 2U, 'x');
    w.options.owner_info = label;
    w.options.release = (more & 2U) != 0 ? distlock::posted : distlock::confirmed;
    w.options.renew = more >= 0xf0;  // a thread costs time
    return w;
}

template <class Lock>
void use_lock(fuzz::input& in, Lock& m) {
    std::error_code ec;
    for (int call = in.byte() % 4; call >= 0; --call) {
        bool locked = false;
        const auto how = in.byte() % 4;
        if (how == 0) {
            locked = m.try_lock(ec);
        } else {
            locked = with_duration(in, [&](auto time) {
                using time_type = decltype(time);
                if constexpr (std::is_signed_v<typename time_type::rep> &&
                              !std::is_floating_point_v<typename time_type::rep>) {
                    if (how == 1) return m.try_lock_until(std::chrono::sys_time<time_type>(time), ec);
                    if (how == 2)
                        return m.try_lock_until(std::chrono::time_point<hasty_clock, time_type>(time), ec);
                }
                return m.try_lock_for(time, ec);
            });
        }
        must(!locked || !ec, "a lock that is taken is no error", ec.message());
        if (!locked) continue;
        must(m.remaining() >= hasty_clock::duration::zero(), "what is left of a lease is not negative");
        static_cast<void>(m.owns_lock());
        static_cast<void>(m.unlock());
        static_cast<void>(m.residual());
    }
}

template <class Dialect>
void run(fuzz::input& in, const wanted& w) {
    server redis;
    redis.script = in.text(in.byte() % 16U);
    try {
        distlock::mutex<server, Dialect, hasty_clock> m(redis, "orders", w.options);
        must(w.usable(), "what is out of its range is refused");
        use_lock(in, m);
    } catch (const distlock::error& e) {
        must(!w.usable() && (e.code() == errc::invalid_lease || e.code() == errc::invalid_option),
             "what is in its range is taken", e.what());
        fuzz::fit_for_a_message(e.what(), 300);
        must(redis.asked == 0, "what is refused sends nothing");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    hasty_clock::ticks = std::chrono::nanoseconds(std::chrono::hours{1}).count();
    const auto how = in.byte();
    hasty_clock::calm_down();
    std::string label;
    const wanted w = read_options(in, label);
    switch (how % 4) {
        case 0:
            run<distlock::plain>(in, w);
            break;
        case 1:
            run<distlock::go_zero>(in, w);
            break;
        case 2:
            run<distlock::getset>(in, w);
            break;
        default:
            run<distlock::handoff>(in, w);
    }
    return 0;
}
