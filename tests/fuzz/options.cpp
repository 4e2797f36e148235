// Fuzzes what can be set on a lock and asked of it: an input is options and time-outs, in every unit and any
// number, and what a server answers. Time passes with every look at the clock.
//
// Checks: options are refused exactly when a rule of this file says so (counted in long double); no
// duration, infinite or not a number included, is undefined behaviour; no command ever carries a TTL but
// those that follow from the options; every call returns; a lock is ours only when an answer or a message
// says so of the very token.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <distlock/distlock.hpp>
#include <distlock/interop.hpp>

#include "fuzz.hpp"

namespace {

using distlock::errc;
using distlock::reply;
using fuzz::must;

// Moves on whenever it is read, faster and faster until a command is sent: so every pause is soon over, and a
// lease is still worth something when it is granted.
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
constexpr long double hour = 3'600'000;

std::int64_t number(std::string_view digits) {
    std::int64_t value = 0;
    const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    must(problem == std::errc{} && stop == digits.data() + digits.size(), "a TTL is a number", digits);
    return value;
}

// Looks at every command: each TTL in it is what the options say.
class command_check {
  public:
    explicit command_check(long double lease) : lease_(lease) {}

    void look_at(std::span<const std::string_view> argv) const {
        using namespace distlock::detail;
        if (argv[0] == "SET") {
            must(argv.size() == 6 && argv[3] == "NX" && argv[4] == "PX", "a lock is set with a TTL", argv[1]);
            check_lease(argv[5]);
        } else if (argv[0] == "EVALSHA" || argv[0] == "EVAL") {
            const auto count = static_cast<std::size_t>(number(argv[2]));
            const auto keys = argv.subspan(3, count);
            const auto args = argv.subspan(3 + count);
            must(args[0].size() == 32, "a script is told the token", args[0]);
            if (is(argv, handoff_enter)) {
                check_enter(args);
            } else if (is(argv, handoff_leave)) {
                check_needs(args[1]);
                if (args.size() > 2) check_fence(args.subspan(2));
            } else if (is(argv, plain_release)) {
                if (args.size() > 1) check_fence(args.subspan(1));
            } else if (is(argv, plain_renew)) {
                check_renewal(keys, args);
            } else if (!is(argv, getset_release)) {
                check_lease(args[1]);
                if (args.size() > 2) check_fence_life(args[2]);
            }
        } else {
            must(argv[0] == "TYPE" || argv[0] == "GET" || argv[0] == "EXISTS", "nothing else is sent",
                 argv[0]);
        }
    }

    static bool is(std::span<const std::string_view> argv, const distlock::script& one) {
        return argv[0].starts_with("EVAL") && (argv[1] == one.sha1() || argv[1] == one.text());
    }

  private:
    // A dialect may round it up.
    void check_lease(std::string_view digits) const {
        const auto ttl = static_cast<long double>(number(digits));
        must(ttl >= 10 && ttl <= day + 1500, "a TTL is from 10 ms to 24 h", digits);
        must(ttl >= lease_ && ttl <= lease_ + 1500, "a TTL is the lease", digits);
    }
    // It outlives the lock by an hour and ten leases.
    void check_fence_life(std::string_view digits) const {
        if (digits == "0") return;
        must(static_cast<long double>(number(digits)) == hour + 10 * lease_, "a fence outlives the lock",
             digits);
    }
    // The largest that was used, and its life.
    void check_fence(std::span<const std::string_view> args) const {
        must(args.size() == 2 && number(args[0]) > 0 && args[1] != "0", "a fence is told with its life",
             args[0]);
        check_fence_life(args[1]);
    }
    void check_renewal(std::span<const std::string_view> keys, std::span<const std::string_view> args) const {
        must(args.size() > keys.size(), "each key is renewed", keys[0]);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (keys[i].ends_with("fence")) {
                check_fence_life(args[i + 1]);
            } else {
                check_lease(args[i + 1]);
            }
        }
        if (args.size() > keys.size() + 1) must(number(args[keys.size() + 1]) > 0, "a fence is a number");
    }
    void check_enter(std::span<const std::string_view> args) const {
        must(args.size() == 4, "a ticket is told with its mode and the queue's life", args[0]);
        check_needs(args[1]);
        must(args[2] == "try" || args[2] == "join" || args[2] == "last", "an enter has a mode", args[2]);
        const auto life = static_cast<long double>(number(args[3]));
        must(life >= lease_ && life >= 90'000 && life <= day, "a queue outlives the lease and the looks",
             args[3]);
    }
    // " <lease> <life of the fence> <p or s><length of the channel> <channel><owner info>"
    void check_needs(std::string_view needs) const {
        const auto word = [&needs] {
            must(needs.starts_with(' '), "a ticket has four words", needs);
            needs.remove_prefix(1);
            const auto one = needs.substr(0, needs.find(' '));
            needs.remove_prefix(one.size());
            return one;
        };
        const auto lease = word();
        check_lease(lease);
        must(static_cast<long double>(number(lease)) == lease_, "a ticket asks for the lease", lease);
        check_fence_life(word());
        const auto way = word();
        must(way.starts_with('p') && needs.starts_with(' ') &&
                 static_cast<std::size_t>(number(way.substr(1))) < needs.size(),
             "a ticket names its channel", way);
    }

    long double lease_;
};

// Answers as it is told, and looks at every command. Other threads ask, too: those that renew, and that give
// back what nobody waits for.
class server {
  public:
    server(std::string script, long double lease) : check_(lease), script_(std::move(script)) {}

    reply execute(const distlock::command& cmd) {
        using namespace distlock::detail;
        const auto argv = cmd.argv();
        check_.look_at(argv);
        hasty_clock::calm_down();
        const char what = next();
        if (what < 0) hasty_clock::ticks += (std::int64_t{1} << (what & 0x3f) % 56);
        const auto is = [&](const distlock::script& one) { return command_check::is(argv, one); };
        const bool enters = is(handoff_enter);
        const bool asks =
            argv[0] == "SET" || enters || is(plain_look) || is(plain_look_with_siblings) || is(getset_enter);
        if (asks) ask(argv[argv[0] == "SET" ? 2 : 3 + static_cast<std::size_t>(number(argv[2]))]);
        if ((what & 0x40) != 0) publish();  // a message overtakes the answer
        switch (what & 7) {
            case 0:
                if (argv[0] == "SET") return reply::nil();
                if (enters) return queued(what);
                if (is(plain_look_with_siblings) || is(getset_enter))
                    return reply::array({reply::integer(0), reply::integer(what)});
                return reply::integer(what);
            case 1:
                return reply::error("LOADING");
            case 2:
                return reply::no_answer(errc::no_reply, "lost");
            case 3:
                return reply::not_sent(errc::unreachable, "down");
            case 4:
                return reply::error("WRONGTYPE");
            case 5:
                return nonsense(what >> 3);
            default:
                break;
        }
        if (asks) grant();
        if (argv[0] == "SET" || is(plain_look)) return reply::status("OK");
        if (enters)
            return reply::array(
                {reply::integer(1), reply::string("17"), reply::integer(ttls[what >> 3 & 3])});
        if (is(plain_look_with_siblings) || is(getset_enter))
            return reply::array({reply::integer(1), reply::string("17")});
        return reply::integer(1);
    }

    /// Returns: whether the token that was sent last was ever given the lock.
    bool gave() const {
        const std::lock_guard guard(lock_);
        return given_;
    }
    bool was_asked() const { return asked_; }

  protected:
    ~server() = default;

    static constexpr std::array<std::int64_t, 4> ttls{2000, 10, 30'000, 1};

    virtual void publish() {}

    /// The token that was sent last, and its ticket.
    std::string token() const {
        const std::lock_guard guard(lock_);
        return token_;
    }
    std::int64_t ticket() const { return ticket_; }
    void grant() {
        const std::lock_guard guard(lock_);
        given_ = true;
    }

  private:
    char next() {
        asked_ = true;
        const auto at = next_++;
        return at < script_.size() ? script_[at] : 'G';
    }
    void ask(std::string_view token) {
        const std::lock_guard guard(lock_);
        given_ = given_ && token_ == token;
        token_ = token;
    }
    // {0, TTL left, number, tickets before it, 1 if it is new}
    reply queued(char what) {
        const bool appended = (what & 8) != 0;
        if (appended) ++ticket_;
        return reply::array({reply::integer(0), reply::integer(ttls[what >> 4 & 3]), reply::integer(ticket_),
                             reply::integer(what >> 4 & 3), reply::integer(appended ? 1 : 0)});
    }
    reply nonsense(int which) {
        const auto taken = [](std::int64_t ttl, std::int64_t ticket, std::int64_t before,
                              std::int64_t appended) {
            return reply::array({reply::integer(0), reply::integer(ttl), reply::integer(ticket),
                                 reply::integer(before), reply::integer(appended)});
        };
        const auto given = [](std::int64_t ttl) {
            return reply::array({reply::integer(1), reply::string("17"), reply::integer(ttl)});
        };
        switch (which & 7) {
            case 0:
                return reply::array({reply::integer(0), reply::integer(INT64_MAX)});
            case 1:
                return taken(INT64_MAX, INT64_MAX, UINT32_MAX, 1);
            case 2:
                return taken(INT64_MIN, 7, 0, 0);
            case 3:
                return taken(5, -1, 0, 0);
            case 4:
                return taken(5, 7, std::int64_t{UINT32_MAX} + 1, 2);
            case 5:
                return given(-1);
            case 6:
                return reply::array({reply::integer(1), reply::string(""), reply::string("2000")});
            default:
                // That much, but granted.
                grant();
                return given(INT64_MAX);
        }
    }

    const command_check check_;
    const std::string script_;  // one letter an answer; then it grants
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> asked_{false};
    std::atomic<std::int64_t> ticket_{1};
    mutable std::mutex lock_;
    std::string token_;
    bool given_ = false;
};

struct silent_server final : server {
    using server::server;
};

// Publishes, too, as it is told.
class hearing_server final : public server, public distlock::message_reader {
  public:
    hearing_server(std::string script, long double lease, std::string news)
        : server(std::move(script), lease), news_(std::move(news)) {}

    std::shared_ptr<distlock::subscription> subscribe(std::string_view channel) {
        const auto made = std::make_shared<distlock::subscription>(
            std::string(channel), std::make_shared<distlock::message_hub>(this));
        source_ = made;
        return made;
    }

  private:
    void read(distlock::clock::time_point) noexcept override { publish(); }
    void interrupt() noexcept override {}
    void reconnect() noexcept override { publish(); }

    void publish() override {
        const auto source = source_.lock();
        if (!source || next_ >= news_.size()) return;
        hasty_clock::calm_down();
        const char what = news_[next_++];
        const auto which = static_cast<std::size_t>(what >> 3 & 31);
        const std::string head = token() + ' ' + std::to_string(ticket()) + ' ' +
                                 std::to_string(ttls[which & 3]) + ((which & 4) != 0 ? " 0 " : " 18 ");
        switch (what & 7) {
            case 0:
                return source->confirm();
            case 1:
                return source->lapse();
            case 2:
                if (ttls[which & 3] <= 2000) grant();
                return source->deliver(head + "orders");
            case 3:
                // The name of the lock may be cut, and nothing else.
                if (which < 4 && ttls[which] <= 2000) grant();
                return source->deliver((which < 4 ? head : head.substr(0, head.size() - which)) + 'o');
            case 4:
                return source->deliver(std::string(32, 'f') + head.substr(32) + "orders");
            case 5:
                return source->deliver(token() + " 18446744073709551616 2000 18 orders");
            case 6:
                return source->deliver(token() + " 7 18446744073709551615 18 orders");
            default:
                return source->deliver(news_.substr(next_, which));
        }
    }

    const std::string news_;
    std::atomic<std::size_t> next_{0};
    std::weak_ptr<distlock::subscription> source_;
};
static_assert(distlock::check_connection<silent_server>());
static_assert(distlock::subscribing_connection<hearing_server>);

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
void use_lock(fuzz::input& in, Lock& m, const server& redis) {
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
        must(redis.gave(), "a lock is ours when the server says so only");
        must(m.remaining() >= hasty_clock::duration::zero(), "what is left of a lease is not negative");
        static_cast<void>(m.owns_lock());
        static_cast<void>(m.unlock());
        static_cast<void>(m.residual());
    }
}

template <class Dialect, class Server>
void run(fuzz::input& in, const wanted& w, Server& redis) {
    try {
        distlock::mutex<Server, Dialect, hasty_clock> m(redis, "orders", w.options);
        must(w.usable(), "what is out of its range is refused");
        use_lock(in, m, redis);
    } catch (const distlock::error& e) {
        must(!w.usable() && (e.code() == errc::invalid_lease || e.code() == errc::invalid_option),
             "what is in its range is taken", e.what());
        fuzz::fit_for_a_message(e.what(), 300);
        must(!redis.was_asked(), "what is refused sends nothing");
    }
}
template <class Dialect>
void run(fuzz::input& in, const wanted& w) {
    silent_server redis(in.text(in.byte() % 16U), w.lease);
    run<Dialect>(in, w, redis);
}
void run_hearing(fuzz::input& in, const wanted& w) {
    std::string script = in.text(in.byte() % 16U);
    hearing_server redis(std::move(script), w.lease, in.text(in.byte() % 16U));
    run<distlock::handoff>(in, w, redis);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    hasty_clock::ticks = std::chrono::nanoseconds(std::chrono::hours{1}).count();
    const auto how = in.byte();
    hasty_clock::calm_down();
    std::string label;
    const wanted w = read_options(in, label);
    switch (how % 5) {
        case 0:
            run<distlock::plain>(in, w);
            break;
        case 1:
            run<distlock::go_zero>(in, w);
            break;
        case 2:
            run<distlock::getset>(in, w);
            break;
        case 3:
            run<distlock::handoff>(in, w);
            break;
        default:
            run_hearing(in, w);
    }
    return 0;
}
