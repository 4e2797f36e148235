// The connection cut after every byte of every request, reply and message of acquire, wait, renew and
// release: nobody believes to hold what they do not, no client waits for what it left behind itself, no
// waiter loses its position, and nothing is left behind for long.
//
// A run tries some of the bytes; DISTLOCK_TEST_THOROUGH=1 in the environment tries every one, =0 the first
// and the last.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/byte_client.hpp"
#include "support/catch.hpp"
#include "support/handoff_names.hpp"
#include "support/lease_observers.hpp"
#include "support/server_counts.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace connection_cuts_tests {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using ending = fault_proxy::ending;
using part = fault_proxy::part;
using words = fault_proxy::words;

namespace {

using lock_type = distlock::mutex<hiredis_connection>;
using distlock::script;
namespace scripts_sent = distlock::detail;

constexpr auto command_timeout = 100ms;
constexpr auto lease = 5s;

// Whoever waits for what he left behind himself waits for the lease.
constexpr auto soon = 2 * command_timeout + timing_tolerance + 500ms;
static_assert(2 * soon < lease && soon + distlock::detail::queued_recheck < lease);

bool wanted(std::string_view thoroughness) {
    const char* const said = std::getenv("DISTLOCK_TEST_THOROUGH");
    return said != nullptr && said == thoroughness;
}
bool thorough() { return wanted("1"); }

/// What is wrong, in words: Catch's macros are not thread-safe.
class verdict {
  public:
    /// Whatever time things take.
    void demand(bool holds, const std::string& what) {
        expect(holds, what);
        final_ = final_ || !holds;
    }
    /// On a machine that does things in their time: on another one, the time-outs are its own.
    void expect(bool holds, const std::string& what) {
        if (!holds) wrong_ += "\n    not so: " + what;
    }
    template <class Call>
    void expect_soon(Call call, const std::string& what) {
        const auto took = time_of(call);
        expect(took <= soon, what + " soon; it took " + std::to_string(took.count()) + " ms");
    }
    const std::string& wrong() const { return wrong_; }
    bool final() const { return final_; }

  private:
    std::string wrong_;
    bool final_ = false;
};

/// A server, and the proxy in front of it.
struct site {
    redis_server real;
    fault_proxy proxy{real.socket_path()};

    std::string uri(std::chrono::milliseconds timeout) const {
        return proxy.uri("?command_timeout=" + std::to_string(timeout.count()) + "ms");
    }
    std::string value() const { return real.command({"GET", "orders"}); }
    bool is_free() const { return real.command({"EXISTS", "orders"}) == "0"; }
    bool is_free_within(std::chrono::milliseconds limit) const {
        bool gone = false;
        const auto took = time_of([&] { gone = eventually([&] { return is_free(); }); });
        return gone && took <= limit + timing_tolerance;
    }
    int queued() const { return std::stoi(real.command({"ZCARD", "{orders}:distlock:queue"})); }
    // A hand-over passes by a waiter that is not subscribed, and costs it its position.
    bool hear(int waiters) const {
        return eventually([&] {
            std::istringstream channels(real.command({"PUBSUB", "CHANNELS"}));
            return std::distance(std::istream_iterator<std::string>(channels), {}) == waiters;
        });
    }
    bool gets(int tickets) const {
        return eventually([&] { return queued() == tickets; });
    }
    /// Returns: how many keys there are but those beside a lock.
    int locks() const {
        std::istringstream keys(real.command({"KEYS", "*"}));
        int count = 0;
        for (std::string key; keys >> key;) count += key.find(":distlock:") == key.npos ? 1 : 0;
        return count;
    }
};

/// As many as work at the same time: most of their time they wait for time-outs.
class sites {
  public:
    static constexpr std::size_t count = 18;

    /// Each may be used by one thread.
    static site& at(std::size_t i) {
        static std::array<std::unique_ptr<site>, count> all;
        if (!all.at(i)) all.at(i) = std::make_unique<site>();
        return *all.at(i);
    }
    /// Returns: the same, without keys, rules and cuts.
    static site& fresh(std::size_t i) {
        site& s = at(i);
        s.proxy.forget();
        s.real.command({"FLUSHALL"});
        return s;
    }
};

/// What is cut.
struct series {
    fault_proxy::which command;
    int times = 1;            // in a row
    bool takes_time = false;  // an attempt waits most of its time
    std::size_t points = 3;   // about so many within a request, twice as many within a reply
    std::vector<part> parts{part::request, part::reply};
};

/// Returns: the rules for all cuts, and all ways to cut, of a request or reply of `size` bytes; unless it is
/// to be thorough, for none, all, all but one, and some bytes between, or none of those.
std::vector<fault_proxy::rule> cuts_of(const series& what, part of, std::size_t size) {
    const std::size_t points = of == part::request ? what.points : 2 * what.points;
    const std::size_t every = thorough() ? 1 : wanted("0") ? size + 1 : size / points + 1;
    std::vector<fault_proxy::rule> cuts;
    for (const ending how : all_endings) {
        for (std::size_t k = 0; k <= size; ++k) {
            if (k % every != 0 && k + 1 < size) continue;
            cuts.push_back({.of = of, .command = what.command, .after = k, .how = how, .times = what.times});
        }
    }
    return cuts;
}

using attempt = std::function<void(site&, const fault_proxy::rule&, verdict&)>;

/// Says whether the machine does things in their time: how long a round trip through a proxy
/// takes that cuts nothing.
class pulse {
  public:
    using time_point = std::chrono::steady_clock::time_point;

    pulse() : beating_([this](const std::stop_token& stop) { beat(stop); }) {}

    /// Returns: whether a round trip took too long after `since`.
    bool was_slow(time_point since) {
        const std::lock_guard guard(lock_);
        return last_slow_ >= since || std::chrono::steady_clock::now() - begun_ > longest;
    }

  private:
    static constexpr auto longest = command_timeout / 5;

    void beat(const std::stop_token& stop) {
        byte_client client(site_.proxy.port());
        while (!stop.stop_requested()) {
            {
                const std::lock_guard guard(lock_);
                if (std::chrono::steady_clock::now() - begun_ > longest)
                    last_slow_ = std::chrono::steady_clock::now();
                begun_ = std::chrono::steady_clock::now();
            }
            client.send(wire({"PING"}));
            client.receive(7);
            ::poll(nullptr, 0, 2);
        }
    }

    site site_;
    std::mutex lock_;
    time_point begun_ = std::chrono::steady_clock::now();
    time_point last_slow_{};
    std::jthread beating_;
};

/// Returns: what is wrong.
std::string attempt_one(std::size_t where, const attempt& run, const fault_proxy::rule& cut, pulse& machine) {
    for (int tries = 1;; ++tries) {
        site& s = sites::fresh(where);
        verdict found;
        const auto begun = std::chrono::steady_clock::now();
        try {
            run(s, cut, found);
        } catch (const std::exception& e) {
            found.expect(false, std::string("no exception: ") + e.what());
        }
        // The answer to a posted command may come last of all.
        found.expect(eventually([&] { return !s.proxy.cuts().empty(); }), "there is a cut");
        if (found.wrong().empty()) return "";
        if (!found.final() && tries < 5 && machine.was_slow(begun)) continue;
        std::string sent;
        for (const words& w : s.proxy.requests()) sent += " " + w.at(0);
        return "\n  " + text(cut.of) + " cut after " + std::to_string(cut.after) + " bytes, " +
               text(cut.how) + ", try " + std::to_string(tries) + ":" + found.wrong() + "\n    sent:" + sent;
    }
}

/// Effects: makes the attempt with each cut of `what`, several at the same time.
/// Returns: what is wrong.
std::string at_the_cuts(const series& what, const attempt& run) {
    pulse machine;
    const fault_proxy::rule first{
        .of = what.parts.back(), .command = what.command, .after = 1'000'000, .times = what.times};
    std::string wrong = attempt_one(0, run, first, machine);
    if (!wrong.empty()) return wrong;
    const fault_proxy::made seen = sites::at(0).proxy.cuts().front();
    std::vector<fault_proxy::rule> cuts;
    for (const part of : what.parts) {
        const auto more = cuts_of(what, of, of == part::request ? wire(seen.command).size() : seen.size);
        cuts.insert(cuts.end(), more.begin(), more.end());
    }

    constexpr std::size_t enough = 2000;  // of text
    // Those that wait for no time-out keep the machine busy.
    const auto waiting = std::partition(cuts.begin(), cuts.end(), [&](const fault_proxy::rule& cut) {
        return cut.how != ending::silence && !what.takes_time;
    });
    std::mutex lock;
    const auto work = [&](std::size_t workers, auto from, auto to) {
        std::vector<std::jthread> working;
        for (std::size_t w = 0; w < workers; ++w) {
            working.emplace_back([&, w] {
                for (;;) {
                    std::unique_lock guard(lock);
                    if (from == to || wrong.size() > enough) return;
                    const auto cut = *from++;
                    guard.unlock();
                    const auto found = attempt_one(w, run, cut, machine);
                    guard.lock();
                    wrong += found;
                }
            });
        }
    };
    work(2, cuts.begin(), waiting);
    work(sites::count, waiting, cuts.end());
    if (thorough()) WARN(cuts.size() << " cuts");
    return wrong;
}

fault_proxy::which body_of(const script& source) {
    return [&source](const words& w) { return w.at(0) == "EVAL" && w.at(1) == source.text(); };
}
fault_proxy::which call_of(const script& source) {
    return [&source, with_body = body_of(source)](const words& w) {
        return (w.at(0) == "EVALSHA" && w.at(1) == source.sha1()) || with_body(w);
    };
}
bool is_acquire(const words& w) {
    return w.at(0) == "SET" || call_of(scripts_sent::handoff_enter)(w) ||
           call_of(scripts_sent::plain_look_with_siblings)(w);
}

// What hands on or frees, and what only frees, with which a release is tried again.
bool is_release(const words& w) {
    return call_of(scripts_sent::handoff_leave)(w) || call_of(scripts_sent::plain_release)(w);
}
bool is_release_with_body(const words& w) {
    return body_of(scripts_sent::handoff_leave)(w) || body_of(scripts_sent::plain_release)(w);
}

/// Returns: the token that a command of ours carries.
std::string token_in(const words& w) {
    if (w.at(0) == "SET") return w.at(2);
    return w.at(3 + static_cast<std::size_t>(std::stoi(w.at(2))));
}

/// A kind of command, and how to come to the point where it is sent next.
struct way {
    std::string name;
    lock_options options;
    fault_proxy::which command;
    void (*before)(site&, lock_type&);
};

void do_nothing(site&, lock_type&) {}
void forget_scripts(site& s, lock_type&) { s.real.command({"SCRIPT", "FLUSH"}); }
void find_it_taken(site& s, lock_type& m) {
    s.real.command({"SET", "orders", "somebody", "PX", "60000"});
    if (m.try_lock()) throw std::runtime_error("taken from somebody");
    s.real.command({"DEL", "orders"});
}
void take(site&, lock_type& m) { m.lock(); }
void take_and_forget_scripts(site& s, lock_type& m) {
    m.lock();
    forget_scripts(s, m);
}

const lock_options plain{.lease = lease, .release = distlock::confirmed};
const lock_options beside{
    .lease = lease, .fencing = true, .owner_info = "cut", .release = distlock::confirmed};

lock_options posting(lock_options options) {
    options.release = distlock::posted;
    return options;
}

const std::vector<way>& ways_to_take() {
    static const std::vector<way> all{
        {"SET", plain, [](const words& w) { return w.at(0) == "SET"; }, do_nothing},
        {"a look", plain, call_of(scripts_sent::handoff_enter), find_it_taken},
        {"a fenced acquire", beside, call_of(scripts_sent::plain_look_with_siblings), do_nothing},
        {"an unknown script", beside, body_of(scripts_sent::plain_look_with_siblings), forget_scripts},
    };
    return all;
}

const std::vector<way>& ways_to_release() {
    static const std::vector<way> all{
        {"a release", plain, is_release, take},
        {"with an owner beside", beside, is_release, take},
        {"an unknown script", plain, is_release_with_body, take_and_forget_scripts},
    };
    return all;
}

const std::vector<way>& ways_to_renew() {
    static const std::vector<way> all{
        {"a renewal", plain, call_of(scripts_sent::plain_renew), do_nothing},
        {"an unknown script, and keys beside", beside, body_of(scripts_sent::plain_renew), forget_scripts},
    };
    return all;
}

/// A lock that was taken and released once, so that the connection is open and the scripts are
/// known; and `w` comes next.
struct client {
    client(site& s, const way& w) : client(s, w, w.options) {}
    client(site& s, const way& w, const lock_options& options,
           std::chrono::milliseconds timeout = command_timeout,
           std::shared_ptr<distlock::lease_observer> observer = {})
        : redis(s.uri(timeout)), m(redis, "orders", options, std::move(observer)) {
        m.lock();
        m.unlock();
        w.before(s, m);
    }
    hiredis_connection redis;
    lock_type m;
};

bool is_trouble(std::error_code ec) { return ec == errc::no_reply || ec == errc::unreachable; }

void expect_taken(site& s, lock_type& m, verdict& v) {
    v.expect(m.owns_lock(), "owns_lock()");
    const auto until = m.valid_until();
    const std::string left = s.real.command({"PTTL", "orders"});
    v.demand(until <= clock::now() + std::chrono::milliseconds(std::max(std::stoll(left), 0LL) + 1),
             "the server keeps it as long as we believe it does; it has " + left + " ms");
    const auto sent = s.proxy.requests(is_acquire);
    v.expect(!sent.empty() && s.value() == token_in(sent.back()),
             "the key holds what was sent last: " + s.value());
    v.demand(s.locks() <= 1, "there is no other lock");
    const std::string fence = s.real.command({"GET", "{orders}:distlock:fence"});
    v.expect(fence == (m.fencing_token() == 0 ? "(nil)" : std::to_string(m.fencing_token())),
             "the server's last fencing token is ours: " + fence);
}

void expect_released(site& s, lock_type& m, verdict& v) {
    const release_outcome done = m.unlock();
    v.expect(done == release_outcome::released,
             "the key is released by its token: outcome " + std::to_string(static_cast<int>(done)));
    v.expect(s.is_free() && s.locks() == 0, "nothing is left");
    v.expect(s.queued() == 0, "nobody is queued");
    v.expect(!m.owns_lock(), "owns_lock() is false after unlock()");
}

void expect_to_be_had_again(site& s, lock_type& m, verdict& v) {
    v.expect_soon([&] { m.lock(); }, "locked again");
    expect_taken(s, m, v);
    expect_released(s, m, v);
}

}  // namespace

TEST_CASE("a lock is granted soon wherever one acquire is cut, to the token the server has") {
    for (const way& w : ways_to_take()) {
        INFO(w.name);
        CHECK(at_the_cuts({w.command}, [&](site& s, const fault_proxy::rule& cut, verdict& v) {
                  client c(s, w);
                  s.proxy.cut(cut);
                  v.expect_soon([&] { c.m.lock(); }, "locked");
                  expect_taken(s, c.m, v);
                  expect_released(s, c.m, v);
              }) == "");
    }
}

TEST_CASE("a try that has no time to ask again is granted or leaves nothing, wherever its acquire is cut") {
    for (const way& w : ways_to_take()) {
        INFO(w.name);
        CHECK(at_the_cuts({w.command}, [&](site& s, const fault_proxy::rule& cut, verdict& v) {
                  client c(s, w);
                  s.proxy.cut(cut);
                  std::error_code ec;
                  bool taken = false;
                  v.expect_soon([&] { taken = c.m.try_lock_for(30ms, ec); }, "answered");
                  if (taken) {
                      expect_taken(s, c.m, v);
                      expect_released(s, c.m, v);
                  } else {
                      v.expect(is_trouble(ec), "it says why: " + ec.message());
                      v.expect(!c.m.owns_lock(), "owns_lock() is false");
                      v.expect(s.is_free_within(command_timeout),
                               "the key is gone within the command time-out");
                  }
              }) == "");
    }
}

TEST_CASE("a caller that gives up after every acquire was cut leaves nothing, and does not wait for itself") {
    const bool at_once = GENERATE(true, false);  // tried again
    for (const way& w : ways_to_take()) {
        INFO(w.name << (at_once ? ", tried again at once" : ""));
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            client c(s, w);
            s.proxy.cut(cut);
            std::error_code ec;
            bool taken = false;
            v.expect_soon([&] { taken = c.m.try_lock(ec); }, "answered");
            s.proxy.leave_alone();
            if (taken) {
                expect_taken(s, c.m, v);
                return expect_released(s, c.m, v);
            }
            v.expect(is_trouble(ec), "it says why: " + ec.message());
            v.expect(!c.m.owns_lock(), "owns_lock() is false");
            if (!at_once)
                v.expect(s.is_free_within(command_timeout), "the key is gone within the command time-out");
            expect_to_be_had_again(s, c.m, v);
        };
        const auto every = [&](const words& sent) { return w.command(sent) || is_acquire(sent); };
        CHECK(at_the_cuts({every, 1'000'000}, run) == "");
    }
}

TEST_CASE("a lock that somebody else has is never granted, wherever the acquire is cut") {
    for (const way& w : ways_to_take()) {
        INFO(w.name);
        CHECK(at_the_cuts({w.command}, [&](site& s, const fault_proxy::rule& cut, verdict& v) {
                  client c(s, w);
                  s.real.command({"SET", "orders", "somebody", "PX", "60000"});
                  s.proxy.cut(cut);
                  std::error_code ec;
                  v.demand(!c.m.try_lock(ec), "it is not taken");
                  v.expect(!ec || is_trouble(ec), "nothing else is wrong: " + ec.message());
                  v.expect(!c.m.owns_lock(), "owns_lock() is false");
                  v.demand(s.value() == "somebody", "it is still somebody else's");
              }) == "");
    }
}

TEST_CASE("a release that is cut once anywhere is one, and the lock can be had again at once") {
    for (const way& w : ways_to_release()) {
        INFO(w.name);
        CHECK(at_the_cuts({w.command}, [&](site& s, const fault_proxy::rule& cut, verdict& v) {
                  client c(s, w);
                  s.proxy.cut(cut);
                  release_outcome what{};
                  v.expect_soon([&] { what = c.m.unlock(); }, "unlocked");
                  v.expect(what == release_outcome::released, "released");
                  v.expect(c.m.residual() == 0ms, "nothing is owed");
                  v.expect(s.is_free() && s.locks() == 0, "the key is gone");
                  v.expect(s.real.command({"KEYS", "*:owner"}).empty(), "so is the owner beside it");
                  v.expect(!c.m.owns_lock(), "owns_lock() is false");
                  expect_to_be_had_again(s, c.m, v);
              }) == "");
    }
}

TEST_CASE("a release that was cut whenever it was tried is settled in the background") {
    for (const way& w : ways_to_release()) {
        INFO(w.name);
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            client c(s, w);
            s.proxy.cut(cut);
            release_outcome what{};
            v.expect_soon([&] { what = c.m.unlock(); }, "unlocked");
            const auto residual = c.m.residual();
            v.expect(!c.m.owns_lock(), "owns_lock() is false");
            v.expect(what == release_outcome::unreachable || what == release_outcome::released, "one of two");
            v.expect(residual <= lease + command_timeout, "no more is owed than a lease");
            if (what == release_outcome::released) {
                v.demand(s.is_free(), "released: it is gone");
                v.expect(residual == 0ms, "released: nothing is owed");
            }
            v.expect(s.is_free_within(command_timeout), "the key is gone within the command time-out");
            v.expect_soon([&] { eventually([&] { return c.m.residual() == 0ms; }); }, "nothing owed");
            v.expect(s.real.command({"KEYS", "*:owner"}).empty(), "the owner beside it is gone");
            expect_to_be_had_again(s, c.m, v);
        };
        CHECK(at_the_cuts({w.command, 2}, run) == "");
    }
}

TEST_CASE("a posted release that is cut, once or twice, is settled in the background") {
    const int times = GENERATE(1, 2);
    for (const way& w : ways_to_release()) {
        INFO(w.name << ", " << times << " times");
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            client c(s, w, posting(w.options));
            s.proxy.cut(cut);
            release_outcome what{};
            const auto took = time_of([&] { what = c.m.unlock(); });
            v.expect(took <= timing_tolerance, "nothing is waited for");
            v.expect(what == release_outcome::posted, "posted");
            v.expect(!c.m.owns_lock(), "owns_lock() is false");
            v.expect(c.m.residual() <= lease + command_timeout, "no more is owed than a lease");
            // Each cut may cost a question on a socket that is silent by then, and one on the next.
            v.expect(s.is_free_within((1 + 2 * cut.times) * command_timeout), "the key is gone before long");
            v.expect_soon([&] { eventually([&] { return c.m.residual() == 0ms; }); }, "nothing owed");
            v.expect(s.is_free() && s.locks() == 0, "nothing is left");
            v.expect(s.real.command({"KEYS", "*:owner"}).empty(), "nor the owner beside it");
            v.expect(s.queued() == 0, "nobody is queued");
            v.expect_soon([&] { c.m.lock(); }, "locked again");
            expect_taken(s, c.m, v);
        };
        CHECK(at_the_cuts({w.command, times}, run) == "");
    }
}

TEST_CASE("a caller that locks again does not wait for what its own cut release left behind") {
    const bool posted = GENERATE(false, true);
    for (const way& w : ways_to_release()) {
        INFO(w.name << (posted ? ", posted" : ""));
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            client c(s, w, posted ? posting(w.options) : w.options);
            s.proxy.cut(cut);
            c.m.unlock();
            // Where the answer to the acquire is lost as well, nobody may know that we wait, and we
            // find the lock looking.
            const auto longest = soon + (posted ? distlock::detail::queued_recheck : 0ms);
            v.expect(time_of([&] { c.m.lock(); }) <= longest, "locked again before long");
            expect_taken(s, c.m, v);
            eventually([&] { return !s.proxy.cuts().empty(); });
            s.proxy.leave_alone();
            c.m.unlock();
            v.expect(s.is_free_within(3 * command_timeout), "the key is gone");
        };
        CHECK(at_the_cuts({w.command, 2}, run) == "");
    }
}

TEST_CASE("an unlock after the lease frees nobody else's lock and says so, wherever it is cut") {
    for (const way& w : ways_to_release()) {
        INFO(w.name);
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            lock_options options = w.options;
            options.lease = 2 * command_timeout;
            options.renew = false;
            client c(s, w, options);
            v.expect(eventually([&] { return s.is_free() && !c.m.owns_lock(); }), "the lease ends");
            s.real.command({"SET", "orders", "somebody", "PX", "60000"});
            s.proxy.cut(cut);
            const auto what = c.m.unlock();
            v.demand(what != release_outcome::released, "not released");
            v.expect(what == release_outcome::expired || what == release_outcome::taken,
                     "it says that it is too late");
            v.demand(s.value() == "somebody", "it is still somebody else's");
        };
        CHECK(at_the_cuts({w.command, 1, true, 1}, run) == "");
    }
}

namespace {

// Room for three command time-outs, and the tolerance of tests, between the first renewal and the end.
constexpr auto short_lease = 3 * (3 * command_timeout + timing_tolerance) / 2;

}  // namespace

TEST_CASE("a renewal that is cut once anywhere is made good before the lease is over") {
    for (const way& w : ways_to_renew()) {
        INFO(w.name);
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            const auto seen = std::make_shared<counting_observer>();
            lock_options options = w.options;
            options.lease = short_lease;
            client c(s, w, options, command_timeout, seen);
            s.proxy.cut(cut);
            c.m.lock();
            const std::stop_token lost = c.m.lost();
            const auto first_end = c.m.valid_until();
            const std::string owner = s.value();
            v.expect(eventually([&] { return clock::now() > first_end; }), "time goes by");
            v.expect(c.m.owns_lock(), "it is held when its first lease is over");
            v.expect(s.value() == owner, "by the same token: " + s.value());
            v.expect(!lost.stop_requested(), "lost() does not say that it is lost");
            v.expect(seen->losses == 0, "nor does the observer");
            v.expect(seen->risks <= 1, "the risk is told once");
            expect_taken(s, c.m, v);
            expect_released(s, c.m, v);
            v.expect(!lost.stop_requested(), "lost() does not say so of what was released");
        };
        CHECK(at_the_cuts({w.command, 1, true, 1}, run) == "");
    }
}

TEST_CASE("an unlock while a renewal is being cut leaves nothing behind") {
    for (const way& w : ways_to_renew()) {
        INFO(w.name);
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            lock_options options = w.options;
            options.lease = short_lease;
            client c(s, w, options);
            s.proxy.cut(cut);
            c.m.lock();
            v.expect(eventually([&] { return !s.proxy.cuts().empty(); }), "a renewal is cut");
            v.expect_soon([&] { expect_released(s, c.m, v); }, "unlocked");
        };
        CHECK(at_the_cuts({w.command, 1, true, 1}, run) == "");
    }
}

TEST_CASE(
    "the first reply to each of acquire, renew and release is dropped, and nobody loses anything by it") {
    const ending how = GENERATE(ending::silence, ending::reset, ending::close);
    const bool fenced = how != ending::close;
    INFO(text(how));
    site& s = sites::fresh(0);
    verdict v;
    lock_options options = fenced ? beside : plain;
    options.lease = short_lease;
    client c(s, {"", options, {}, do_nothing});
    const auto drop = [&](const fault_proxy::which& these) {
        s.proxy.cut({.of = part::reply, .command = these, .how = how});
    };

    drop(is_acquire);
    CHECK(time_of([&] { c.m.lock(); }) <= soon);
    CHECK(s.proxy.cuts().size() == 1);
    expect_taken(s, c.m, v);
    const std::stop_token lost = c.m.lost();
    const auto first_end = c.m.valid_until();

    drop(call_of(scripts_sent::plain_renew));
    CHECK(eventually([&] { return s.proxy.cuts().size() == 2 && clock::now() > first_end; }));
    CHECK_FALSE(lost.stop_requested());
    expect_taken(s, c.m, v);

    drop(is_release);
    CHECK(time_of([&] { CHECK(c.m.unlock() == release_outcome::released); }) <= soon);
    CHECK(s.proxy.cuts().size() == 3);
    CHECK(s.is_free());
    CHECK_FALSE(lost.stop_requested());
    CHECK(v.wrong() == "");
}

// ---- Waiters in the queue.

namespace {

/// A client that waits for the lock on a thread of its own.
struct waiting {
    explicit waiting(const std::string& uri, const lock_options& options = plain)
        : redis(uri), m(redis, "orders", options) {}
    void begin(std::chrono::milliseconds timeout = 20s) {
        served = std::async(std::launch::async,
                            [this, timeout] { return m.try_lock_for(timeout, stop.get_token(), ec); });
    }
    bool has_ended() const { return served.wait_for(0s) == std::future_status::ready; }
    bool is_served_within(std::chrono::milliseconds limit) {
        return served.wait_for(limit) == std::future_status::ready && served.get();
    }

    hiredis_connection redis;
    lock_type m;
    std::stop_source stop;
    std::error_code ec;
    std::future<bool> served;
};

/// The owner and the last waiter have ways that are not cut; the waiter between them has not.
struct queue_scene {
    explicit queue_scene(site& where, const lock_options& options = plain)
        : s(where), owner(s.real.uri()), one(s.uri(command_timeout), options), next(s.real.uri()) {
        owner.m.lock();
    }
    /// Effects: both wait, in this order.
    void queue_up(verdict& v) {
        one.begin();
        v.expect(s.gets(1), "it has a ticket");
        next.begin();
        v.expect(s.gets(2), "so has the next, and no other");
    }
    void expect_next_served(verdict& v) {
        v.expect(next.is_served_within(soon), "the next is served soon");
        v.expect(s.queued() == 0, "nobody is queued");
        v.expect(next.m.unlock() == release_outcome::released, "nobody else had it meanwhile");
        v.expect(s.is_free() && s.locks() == 0, "nothing is left");
    }

    site& s;
    waiting owner, one, next;
};

fault_proxy::which are(const std::string& name) {
    return [name](const words& w) { return handoff_name_of(w) == name; };
}

}  // namespace

TEST_CASE("a waiter whose join is cut anywhere is queued once, in its place, and served") {
    for (const int times : {1, 2}) {
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            queue_scene q(s, beside);
            s.proxy.cut(cut);
            q.one.begin();
            v.expect(eventually([&] { return s.proxy.cuts().size() == static_cast<std::size_t>(times); }),
                     "it is cut so often");
            v.expect(s.gets(1), "it has a ticket");
            q.next.begin();
            v.expect(s.gets(2), "so has the next, and no other");
            v.expect(s.hear(2), "both hear of it");
            q.owner.m.unlock();
            v.expect(q.one.is_served_within(soon), "it is served soon");
            expect_taken(s, q.one.m, v);
            v.expect(s.gets(1), "the next waits");
            v.expect(q.one.m.unlock() == release_outcome::released, "released");
            q.expect_next_served(v);
        };
        CHECK(at_the_cuts({are("join"), times, true}, run) == "");
    }
}

TEST_CASE("a waiter is served in its place wherever the message to it is cut") {
    const auto run = [](site& s, const fault_proxy::rule& cut, verdict& v) {
        queue_scene q(s, beside);
        s.proxy.cut(cut);
        q.queue_up(v);
        q.owner.m.unlock();
        // A message that nobody knows to be lost is found by looking, another by the next subscription.
        const auto longest = soon + (cut.how == ending::silence ? distlock::detail::queued_recheck : 0ms);
        v.expect(q.one.is_served_within(longest), "it is served before long");
        expect_taken(s, q.one.m, v);
        v.expect(s.queued() == 1, "the next waits");
        v.expect(q.one.m.unlock() == release_outcome::released, "released");
        q.expect_next_served(v);
    };
    CHECK(at_the_cuts({{}, 1, true, 10, {part::message}}, run) == "");
}

TEST_CASE("a waiter is served wherever its subscription is cut") {
    for (const auto* name : {"SSUBSCRIBE", "SUBSCRIBE"}) {
        INFO(name);
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            queue_scene q(s, beside);
            s.proxy.cut(cut);
            q.queue_up(v);
            q.owner.m.unlock();
            v.expect(eventually([&] { return q.one.has_ended() || q.next.has_ended(); }), "one is served");
            // While it is not subscribed a hand-over passes it by, and costs it its position.
            const bool passed_by = !q.one.has_ended();
            if (passed_by) v.expect(q.next.m.unlock() == release_outcome::released, "the next releases");
            v.expect(q.one.is_served_within(soon + distlock::detail::queued_recheck),
                     "it is served before long");
            expect_taken(s, q.one.m, v);
            v.expect(s.queued() == (passed_by ? 0 : 1), "the next waits, or has been served");
            v.expect(q.one.m.unlock() == release_outcome::released, "released");
            if (!passed_by) q.expect_next_served(v);
            v.expect(s.is_free() && s.queued() == 0, "nothing is left");
        };
        CHECK(at_the_cuts({are(name), 1, true}, run) == "");
    }
}

TEST_CASE(
    "a waiter that is stopped leaves no ticket and keeps the lock from nobody, wherever its leave is cut") {
    const bool handed_over = GENERATE(false, true);
    for (const int times : {1, 2}) {
        INFO((handed_over ? "handed over, " : "") << times << " times");
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            queue_scene q(s);
            q.queue_up(v);
            s.proxy.cut(cut);
            if (handed_over) q.owner.m.unlock();
            q.one.stop.request_stop();
            bool got = false;
            v.expect_soon([&] { got = q.one.served.get(); }, "it ends");
            v.expect(got || q.one.ec == errc::cancelled, "it says why: " + q.one.ec.message());
            v.demand(got == q.one.m.owns_lock(), "owns_lock() says the same");
            if (got) q.one.m.unlock();
            if (!handed_over) v.expect(s.gets(1), "its ticket is gone");
            if (!handed_over) q.owner.m.unlock();
            q.expect_next_served(v);
        };
        CHECK(at_the_cuts({is_release, times, true}, run) == "");
    }
}

TEST_CASE("a waiter whose time is up leaves no ticket, wherever its last question is cut") {
    for (const int times : {1, 2}) {
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            queue_scene q(s);
            s.proxy.cut(cut);
            q.one.begin(80ms);
            v.expect(s.gets(1), "it has a ticket");
            q.next.begin();
            bool got = true;
            v.expect_soon([&] { got = q.one.served.get(); }, "it ends");
            v.demand(!got && !q.one.m.owns_lock(), "it is not served");
            v.expect(!q.one.ec || is_trouble(q.one.ec), "it says why: " + q.one.ec.message());
            v.expect_soon([&] { s.gets(1); }, "its ticket is gone");
            q.owner.m.unlock();
            q.expect_next_served(v);
        };
        // What is cut the first time is not asked again: the time is up.
        CHECK(at_the_cuts({are("last"), times, true}, run) == "");
    }
}

TEST_CASE("a release that is cut anywhere hands the lock over once, to the first waiter") {
    const bool posted = GENERATE(false, true);
    for (const int times : {1, 2}) {
        INFO((posted ? "posted, " : "") << times << " times");
        const auto run = [&](site& s, const fault_proxy::rule& cut, verdict& v) {
            const lock_options options = posted ? posting(beside) : beside;
            client c(s, {"", options, {}, take});
            const auto first_fence = c.m.fencing_token();
            waiting one(s.real.uri(), beside), next(s.real.uri(), beside);
            one.begin();
            v.expect(s.gets(1), "one waits");
            next.begin();
            v.expect(s.gets(2), "two wait");
            s.proxy.cut(cut);
            c.m.unlock();
            v.expect(one.is_served_within(soon), "the first is served soon");
            v.demand(one.m.fencing_token() > first_fence, "fences rise");
            v.expect_soon([&] { eventually([&] { return c.m.residual() == 0ms; }); }, "nothing owed");
            v.demand(s.queued() == 1 && next.served.wait_for(0s) == std::future_status::timeout,
                     "the other waits");
            v.expect(one.m.unlock() == release_outcome::released, "it was the first's");
            v.expect(next.is_served_within(soon), "the other is served soon");
            v.demand(next.m.fencing_token() > one.m.fencing_token(), "fences rise");
            v.expect(next.m.unlock() == release_outcome::released, "it was the other's");
            v.expect(s.is_free() && s.queued() == 0, "nothing is left");
        };
        CHECK(at_the_cuts({is_release, times, true}, run) == "");
    }
}

// ---- Requests that come late.

namespace {

// Long enough that a test can do something within it.
constexpr auto long_timeout = 400ms;

}  // namespace

TEST_CASE("an acquire that reaches the server when its caller has given up is taken back") {
    for (const way& w : ways_to_take()) {
        INFO(w.name);
        site& s = sites::fresh(0);
        client c(s, w, w.options, long_timeout);
        s.proxy.cut({.command = w.command, .after = 50, .how = ending::delay});
        const auto releases = calls_at(s.real, "del");
        std::error_code ec;
        REQUIRE_FALSE(c.m.try_lock_for(10ms, ec));
        CHECK(is_trouble(ec));
        REQUIRE(eventually([&] { return calls_at(s.real, "del") > releases; }));  // in vain
        s.proxy.deliver();
        CHECK(eventually([&] { return !s.is_free(); }));
        CHECK(s.is_free_within(long_timeout));
        CHECK(time_of([&] { c.m.lock(); }) <= soon);
        CHECK(c.m.unlock() == release_outcome::released);
    }
}

TEST_CASE("a renewal or release that reaches the server late does nothing to the next owner") {
    const bool renewal = GENERATE(true, false);
    site& s = sites::fresh(0);
    lock_options options = plain;
    options.lease = short_lease;
    client c(s, {"", options, {}, take});
    s.proxy.cut({.command = renewal ? call_of(scripts_sent::plain_renew) : is_release, .how = ending::delay});
    if (renewal) CHECK(eventually([&] { return !s.proxy.cuts().empty(); }));
    CHECK(c.m.unlock() == release_outcome::released);
    CHECK(s.proxy.cuts().size() == 1);
    s.real.command({"SET", "orders", "somebody", "PX", "60000"});
    const auto calls = calls_at(s.real, "evalsha");
    s.proxy.deliver();
    CHECK(eventually([&] { return calls_at(s.real, "evalsha") > calls; }));
    CHECK(s.value() == "somebody");
    CHECK(std::stol(s.real.command({"PTTL", "orders"})) > 50'000);
}

TEST_CASE("an acquire that reaches the server when a second one was granted and released is taken back") {
    for (const way& w : ways_to_take()) {
        INFO(w.name);
        site& s = sites::fresh(0);
        client c(s, w);
        s.proxy.cut({.command = w.command, .after = 50, .how = ending::delay});
        c.m.lock();
        CHECK(c.m.unlock() == release_outcome::released);
        CHECK(s.proxy.cuts().size() == 1);
        s.proxy.deliver();
        CHECK(eventually([&] { return !s.is_free(); }));
        CHECK(s.is_free_within(command_timeout));
    }
}

}  // namespace connection_cuts_tests
