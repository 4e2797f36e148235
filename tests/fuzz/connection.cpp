// Fuzzes a whole hiredis_connection: an input is its time-outs, what is asked of it, and what a server does,
// byte by byte, in virtual time (simulated_peer.hpp).
//
// Checks: every call returns by its deadline, whatever comes; a command arrives byte for byte, and once; no
// reply is given to a command that answers another; what is called not sent was not; a lock is granted by
// "+OK" only; every message is fit to be shown, and none holds the password; a listener is given what was
// published for its token on its channel, and nothing else; a subscription is in force after the server heard
// of it. Memory: -malloc_limit_mb of run.sh.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>

#include "fuzz.hpp"
#include "simulated_peer.hpp"

namespace {

using namespace std::chrono_literals;
using distlock::argument;
using distlock::clock;
using distlock::command;
using distlock::reply;
using distlock::reply_kind;
using fuzz::must;
using fuzz::words;
using manner = fuzz::world::manner;

class caller {
  public:
    caller(fuzz::input& in, fuzz::world& peer)
        : in_(in), peer_(peer), where_(address()), redis_(where_), command_time_(where_.command_timeout) {
        must(redis_.identity().find(fuzz::password_canary) == std::string_view::npos,
             "an identity holds no password", redis_.identity());
    }

    void run() {
        const std::string asked = in_.text(in_.byte() % 24U);
        for (const char c : asked) ask(static_cast<unsigned char>(c));
        check_receipts();
    }

  private:
    distlock::uri address() {
        distlock::uri where;
        where.scheme = distlock::uri_scheme::unix_socket;
        where.path = "/s";
        const auto how = in_.byte();
        if (how % 2 != 0) where.password = fuzz::password_canary;
        if (how % 4 == 3) where.user = "anna";
        if (how / 4 % 2 != 0) where.database = 3;
        where.command_timeout = std::chrono::milliseconds{1 + how / 8 * 10};
        where.connect_timeout = std::chrono::milliseconds{1 + in_.byte() * 4};
        where.max_idle = 1U + how % 3U;
        return where;
    }

    std::string next_tag() { return "tag-" + std::to_string(++last_) + "."; }

    // Returns: a command with a tag, which the peer is told to expect.
    words tagged(words argv, manner how) {
        const std::string& tag = argv.back();
        peer_.expect(tag, argv, how);
        return argv;
    }

    void ask(int what) {
        const auto param = what / 16;
        const auto began = clock::now();
        const std::string tag = next_tag();
        switch (what % 16) {
            case 0:
            case 1: {
                const words argv = tagged({"ECHO", tag}, manner::waited_for);
                const auto deadline = what % 16 == 0 ? clock::time_point::max() : began + param * 20ms;
                check(redis_.execute(command{argv[0], argv[1]}.until(deadline)), tag);
                return in_time(began, std::min(deadline, whole_time(began)), "execute");
            }
            case 2:
                return pipeline(1 + static_cast<std::size_t>(param));
            case 3:
            case 4:
                return post(tag);
            case 5:
            case 6:
            case 7:
                return pipeline(1 + static_cast<std::size_t>(param % 3));
            case 8:
                return peer_.pass(std::chrono::milliseconds(param * param));
            case 9:
                redis_.collect();
                must(clock::now() == began, "to collect waits for nothing");
                return;
            case 10: {
                std::string any = in_.text(in_.byte());
                std::replace(any.begin(), any.end(), '-', '_');  // or it could hold somebody's tag
                const words argv = tagged({"MSET", "", any, tag}, manner::waited_for);
                check(redis_.execute({argv[0], argv[1], argv[2], argv[3]}), tag);
                return in_time(began, whole_time(began), "execute");
            }
            case 11:
                return lock(tag);
            case 12:
                return listen(static_cast<std::size_t>(param));
            case 13:
                return wait(static_cast<std::size_t>(param));
            case 14:
                if (!listeners_.empty()) listeners_.erase(listeners_.begin() + param % count());
                return;
            default:
                if (!listeners_.empty()) listener_at(static_cast<std::size_t>(param)).on->reconnect();
        }
    }

    clock::time_point whole_time(clock::time_point from) const {
        return from + where_.connect_timeout + command_time_;
    }

    static void in_time(clock::time_point began, clock::time_point end, const char* what) {
        const auto now = clock::now();
        const auto late = now - std::max(began, end);
        // A full queue of connections is looked at every 5 ms.
        must(late <= 5ms, "a call ends by its deadline",
             std::string(what) + ", too late by ns: " + std::to_string(late.count()));
    }

    void check_text(const reply& r) {
        for (const reply& one : r.elements()) check_text(one);
        const bool message = !r.answered() || r.is(reply_kind::error);
        if (!message) return;
        fuzz::fit_for_a_message(r.text(), 400);
        // A server may know half of it by chance; whoever repeats all of it was told.
        const bool leaked = r.answered() ? r.text().find(fuzz::password_canary) != std::string::npos
                                         : fuzz::holds_canary(r.text());
        must(where_.password.empty() || !leaked, "no message holds the password", r.text());
    }

    static void check_tags(const reply& r, const std::string& tag) {
        for (const reply& one : r.elements()) check_tags(one, tag);
        const std::string& said = r.said();  // what is shown of it may end within a tag
        for (auto at = said.find("tag-"); at != std::string::npos; at = said.find("tag-", at + 1))
            must(said.compare(at, tag.size(), tag) == 0, "a reply answers the command it is given to",
                 tag + " was given " + said.substr(at, 20));
    }

    void check(const reply& r, const std::string& tag) {
        check_text(r);
        check_tags(r, tag);
        must(!r.is(reply_kind::not_sent) || peer_.heard(tag) == 0, "what is not sent is not", r.text());
        must(!r.answered() || peer_.heard(tag) > 0, "what was not heard is not answered", r.text());
    }

    void pipeline(std::size_t count) {
        const auto began = clock::now();
        std::vector<words> all;
        std::vector<command> commands;
        for (std::size_t i = 0; i < count; ++i)
            all.push_back(tagged({"ECHO", next_tag()}, count > 1 ? manner::posted : manner::waited_for));
        for (const words& argv : all) commands.push_back({argument(argv[0]), argument(argv[1])});
        std::vector<reply> replies(count);
        redis_.pipeline(commands, replies);
        for (std::size_t i = 0; i < count; ++i) check(replies[i], all[i][1]);
        in_time(began, whole_time(began), "a pipeline");
    }

    void post(const std::string& tag) {
        const auto began = clock::now();
        const words argv = tagged({"ECHO", tag}, manner::posted);
        auto receipt = std::make_shared<distlock::receipt>();
        receipt->expect();
        const bool sent = redis_.post({argv[0], argv[1]}, receipt);
        must(sent == (peer_.heard(tag) > 0), "what is called posted was", tag);
        if (sent) receipts_.emplace_back(tag, std::move(receipt));
        in_time(began, whole_time(began), "post");
    }

    void lock(const std::string& tag) {
        const distlock::plain dialect("lock", {});
        const words argv = tagged({"SET", "lock", "NX", "PX", "30000", tag}, manner::waited_for);
        peer_.forget_ok();
        const reply r = redis_.execute({argv[0], argv[1], argv[2], argv[3], argv[4], argv[5]});
        check_text(r);
        check_tags(r, tag);
        const bool granted = dialect.read_acquire(r).what == distlock::acquire_outcome::kind::granted;
        must(!granted || peer_.said_ok(), "a lock is granted by OK only");
    }

    struct listening {
        std::string token;
        std::shared_ptr<distlock::subscription> on;
        distlock::listener ear{on, token};
    };
    std::ptrdiff_t count() const { return static_cast<std::ptrdiff_t>(listeners_.size()); }
    listening& listener_at(std::size_t number) { return *listeners_[number % listeners_.size()]; }

    void listen(std::size_t number) {
        if (listeners_.size() == 8) return;
        const std::string channel = "distlock:" + std::to_string(number % 4);
        std::string token(32, 'a');
        token.replace(0, 2, std::to_string(10 + ++tokens_ % 90));
        peer_.listens(channel, token);
        auto on = redis_.subscribe(channel);
        on->on_unclaimed([this, channel](std::string_view text) {
            const bool claimed = std::any_of(listeners_.begin(), listeners_.end(), [&](const auto& one) {
                return one->on->channel() == channel && text.starts_with(one->token);
            });
            must(!claimed, "what is for a listener is not unclaimed", text);
        });
        listeners_.emplace_back(new listening{std::move(token), std::move(on)});
    }

    void wait(std::size_t number) {
        if (listeners_.empty()) return;
        auto& mine = listener_at(number);
        const auto began = clock::now();
        const auto time = in_.byte() * in_.byte() * 1ms;
        std::stop_source stop;
        if (number % 2 != 0) peer_.stop_at(began.time_since_epoch() + time / 2, [&] { stop.request_stop(); });
        using woken = distlock::listener::woken;
        const auto what = mine.ear.wait(began + time, stop.get_token());
        peer_.stop_at(fuzz::nanoseconds::max(), nullptr);
        in_time(began, began + time, "a wait");
        const std::string& channel = mine.on->channel();
        const auto text = mine.ear.message();
        must(what != woken::by_time || clock::now() >= began + time, "a wait ends when the time is over");
        must(what != woken::by_stop || stop.stop_requested(), "a wait ends by a stop that was requested");
        must(what != woken::by_confirmation || peer_.knows_channel(channel),
             "what is confirmed was asked for", channel);
        // One that is too long is not kept.
        const std::string_view known = text.empty() ? std::string_view(mine.token) : text;
        must(what != woken::by_message ||
                 (known.starts_with(mine.token) && peer_.may_have_published(channel, known)),
             "a message is what was published for the token", text);
        must(!mine.on->in_force() || peer_.knows_channel(channel), "what is in force was asked for", channel);
    }

    void check_receipts() {
        redis_.collect();
        for (const auto& [tag, one] : receipts_) {
            if (const auto r = one->answer()) {
                check_text(*r);
                check_tags(*r, tag);
            }
        }
    }

    fuzz::input& in_;
    fuzz::world& peer_;
    const distlock::uri where_;
    distlock::hiredis_connection redis_;
    const std::chrono::milliseconds command_time_;
    int last_ = 0;
    int tokens_ = 0;
    std::vector<std::unique_ptr<listening>> listeners_;
    std::vector<std::pair<std::string, std::shared_ptr<distlock::receipt>>> receipts_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    fuzz::world peer(in);
    caller(in, peer).run();
    return 0;
}
