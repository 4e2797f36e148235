// A deterministic model of one redis-server, in memory: what a command answers depends on nothing but the commands before it and
// the times that the caller gives. tests/sim/differential.cpp holds it against a real server.
//
//   class model_server;   // execute, elapse, next_timeout, take_ready, disconnect, restart; and looks inside
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <distlock/wire/reply.hpp>

#include "sim/model_data.hpp"
#include "sim/model_scripts.hpp"

namespace sim {

class model_server {
  public:
    using client = std::uint64_t;            // whose connection: any number that the caller likes
    using wall = std::chrono::microseconds;  // the server's wall clock, since the epoch; it may be set back

    /// Effects: what the server does with one command of `who`. A key is gone once `now` is past its deadline; clients whose
    /// time is over are still served, as on the server, until elapse().
    /// Returns: the reply; none: the client is blocked, and must send nothing until take_ready() has its reply.
    /// Throws: std::logic_error for a client that is blocked.
    std::optional<distlock::reply> execute(client who, std::span<const std::string_view> argv, wall now);

    /// Effects: time_out() and expire(): what the server does by itself.
    void elapse(wall now) {
        time_out(now);
        expire(now);
    }
    /// Effects: blocked clients whose time is over get nil.
    void time_out(wall now);
    /// Effects: deletes what is past its deadline, which can then no longer come back when the clock is set back.
    void expire(wall now) { data_.expire(now); }

    /// Returns: the first instant at which time_out() has something to do.
    std::optional<wall> next_timeout() const;

    /// Effects: f(client, distlock::reply) for each client that was blocked and has its reply, in the order of service.
    template <class F>
    void take_ready(F f) {
        auto ready = std::exchange(ready_, {});
        for (auto& [who, what] : ready) f(who, std::move(what));
    }

    /// Effects: forgets the client, and the reply that it has not taken.
    void disconnect(client who);

    /// Returns: what CLIENT ID says. Known from the first use of this client on.
    std::uint64_t id_of(client who);
    bool blocked(client who) const { return find_waiter(who) != waiters_.end(); }

    /// Effects: every client and every script is gone; the keys stay.
    void restart();
    /// Effects: the same, and no key stays.
    void restart_empty() {
        restart();
        data_.clear();
    }
    /// Effects: SCRIPT FLUSH.
    void forget_scripts() { loaded_ = {}; }

    // Looks, free of side effects, as one would see it at `now`.
    /// Returns: the text of a string; none: there is none.
    std::optional<std::string> get(std::string_view key, wall now) const { return data_.get(key, now); }
    bool exists(std::string_view key, wall now) const { return data_.exists(key, now); }
    /// Returns: milliseconds; -1: for ever; -2: no such key.
    std::int64_t pttl(std::string_view key, wall now) const { return data_.pttl(key, now); }
    /// Returns: 0 also for what is no list.
    std::size_t list_size(std::string_view key, wall now) const { return data_.list(key, now).size(); }
    std::vector<std::string> list(std::string_view key, wall now) const { return data_.list(key, now); }
    /// Returns: the names of all keys, in order.
    std::vector<std::string> keys(wall now) const { return data_.keys(now); }
    std::size_t blocked_count() const { return waiters_.size(); }

  private:
    struct waiter {
        client who;
        std::vector<std::string> keys;
        std::int64_t deadline;  // ms; 0: never
    };
    using waiter_list = std::vector<waiter>;  // in the order in which they blocked

    waiter_list::const_iterator find_waiter(client who) const {
        return std::find_if(waiters_.begin(), waiters_.end(), [&](const waiter& w) { return w.who == who; });
    }
    waiter_list::iterator find_waiter(client who) {
        return std::find_if(waiters_.begin(), waiters_.end(), [&](const waiter& w) { return w.who == who; });
    }
    void serve();
    void unblock(waiter_list::iterator which, distlock::reply what);
    std::optional<distlock::reply> pop_or_block(client who, std::span<const std::string_view> argv);
    distlock::reply about_clients(client who, std::span<const std::string_view> argv);
    distlock::reply about_scripts(std::span<const std::string_view> argv);
    distlock::reply evaluate(std::span<const std::string_view> argv, bool by_digest);

    dataset data_;
    std::array<bool, script_count> loaded_{};
    waiter_list waiters_;
    std::vector<std::pair<client, distlock::reply>> ready_;
    std::unordered_map<client, std::uint64_t> ids_;
    std::uint64_t last_id_ = 0;
    wall now_{};
};

inline std::optional<distlock::reply> model_server::execute(client who,
                                                            std::span<const std::string_view> argv,
                                                            wall now) {
    using distlock::reply;
    if (blocked(who)) throw std::logic_error("a blocked client sends no command");
    if (argv.empty()) throw std::logic_error("a command has a name");
    now_ = now;
    const std::string_view name = argv[0];
    std::optional<reply> answer;
    if (dataset::knows(name)) {
        answer = data_.run(argv, now);
    } else if (same_word(name, "evalsha")) {
        answer = evaluate(argv, true);
    } else if (same_word(name, "eval")) {
        answer = evaluate(argv, false);
    } else if (same_word(name, "blpop")) {
        answer = pop_or_block(who, argv);
    } else if (same_word(name, "client")) {
        answer = about_clients(who, argv);
    } else if (same_word(name, "script")) {
        answer = about_scripts(argv);
    } else {
        std::string words;
        for (std::size_t i = 1; i < argv.size() && words.size() < 128; ++i)
            words += "'" + std::string(argv[i].substr(0, 128 - words.size())) + "' ";
        std::string text = "ERR unknown command '" + std::string(name.substr(0, 128)) +
                           "', with args beginning with: " + words;
        // An error is one line, whatever it quotes.
        std::replace_if(
            text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
        answer = reply::error(std::move(text));
    }
    serve();
    return answer;
}

// Who waits for a list that is there now is served, first come, first served: list by list, in the order in which they came to be.
inline void model_server::serve() {
    if (data_.new_lists().empty()) return;
    for (const std::string& key : data_.new_lists()) {
        for (;;) {
            const auto next = std::find_if(waiters_.begin(), waiters_.end(), [&](const waiter& w) {
                return std::find(w.keys.begin(), w.keys.end(), key) != w.keys.end();
            });
            if (next == waiters_.end()) break;
            auto item = data_.pop_first(key, now_);
            if (!item) break;
            unblock(next, distlock::reply::array(
                              {distlock::reply::string(key), distlock::reply::string(std::move(*item))}));
        }
    }
    data_.forget_new_lists();
}

inline void model_server::unblock(waiter_list::iterator which, distlock::reply what) {
    ready_.emplace_back(which->who, std::move(what));
    waiters_.erase(which);
}

// BLPOP key... seconds
inline std::optional<distlock::reply> model_server::pop_or_block(client who,
                                                                 std::span<const std::string_view> argv) {
    using distlock::reply;
    if (argv.size() < 3) return wrong_arguments("blpop");
    const auto seconds = read_seconds(argv.back());
    if (!seconds) return reply::error("ERR timeout is not a float or out of range");
    const long double ms = std::ceil(*seconds * 1000);
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    // What does not fit becomes, on x86, the least number there is.
    if (ms < 0 || ms > static_cast<long double>(most)) return reply::error("ERR timeout is negative");
    auto deadline = static_cast<std::int64_t>(ms);
    const auto now_ms = std::chrono::floor<std::chrono::milliseconds>(now_).count();
    if (deadline > 0) {
        if (deadline > most - now_ms) return reply::error("ERR timeout is out of range");
        deadline += now_ms;
    }
    const auto keys = argv.subspan(1, argv.size() - 2);
    for (const auto key : keys) {
        const std::string_view size[] = {"llen", key};
        reply length = data_.run(size, now_);
        if (length.is(distlock::reply_kind::error)) return length;
        if (length.number() == 0) continue;
        return reply::array({reply::string(std::string(key)), reply::string(*data_.pop_first(key, now_))});
    }
    waiters_.push_back({who, {keys.begin(), keys.end()}, deadline});
    return std::nullopt;
}

inline void model_server::time_out(wall now) {
    const auto now_ms = std::chrono::floor<std::chrono::milliseconds>(now).count();
    for (;;) {
        auto first = waiters_.end();
        for (auto i = waiters_.begin(); i != waiters_.end(); ++i) {
            const bool over = i->deadline > 0 && now_ms > i->deadline;
            if (over && (first == waiters_.end() || i->deadline < first->deadline)) first = i;
        }
        if (first == waiters_.end()) return;
        unblock(first, distlock::reply::nil());
    }
}

inline std::optional<model_server::wall> model_server::next_timeout() const {
    constexpr std::int64_t never = std::chrono::floor<std::chrono::milliseconds>(wall::max()).count();
    std::int64_t first = never;
    for (const waiter& w : waiters_) {
        if (w.deadline > 0) first = std::min(first, w.deadline);
    }
    if (first == never) return std::nullopt;
    return std::chrono::milliseconds(first + 1);
}

inline void model_server::disconnect(client who) {
    if (const auto waiting = find_waiter(who); waiting != waiters_.end()) waiters_.erase(waiting);
    std::erase_if(ready_, [&](const auto& one) { return one.first == who; });
    ids_.erase(who);
}

inline std::uint64_t model_server::id_of(client who) {
    const auto [at, fresh] = ids_.try_emplace(who, last_id_ + 1);
    if (fresh) ++last_id_;
    return at->second;
}

inline void model_server::restart() {
    forget_scripts();
    waiters_.clear();
    ready_.clear();
    ids_.clear();
    last_id_ = 0;
}

inline distlock::reply model_server::about_clients(client who, std::span<const std::string_view> argv) {
    using distlock::reply;
    if (argv.size() < 2) return wrong_arguments("client");
    if (same_word(argv[1], "id")) {
        if (argv.size() != 2) return wrong_arguments("client|id");
        return reply::integer(static_cast<std::int64_t>(id_of(who)));
    }
    if (!same_word(argv[1], "unblock"))
        return reply::error("ERR unknown subcommand '" + std::string(argv[1].substr(0, 128)) +
                            "'. Try CLIENT HELP.");
    // CLIENT UNBLOCK id [TIMEOUT|ERROR]
    if (argv.size() < 3) return wrong_arguments("client|unblock");
    if (argv.size() > 4)
        return reply::error("ERR unknown subcommand or wrong number of arguments for '" +
                            std::string(argv[1]) + "'. Try CLIENT HELP.");
    bool as_error = false;
    if (argv.size() > 3) {
        as_error = same_word(argv[3], "error");
        if (!as_error && !same_word(argv[3], "timeout"))
            return reply::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }
    const auto id = read_integer(argv[2]);
    if (!id) return reply::error(error_text::not_an_integer);
    for (auto i = waiters_.begin(); i != waiters_.end(); ++i) {
        if (static_cast<std::int64_t>(id_of(i->who)) != *id) continue;
        unblock(i, as_error ? reply::error(error_text::unblocked) : reply::nil());
        return reply::integer(1);
    }
    return reply::integer(0);
}

inline distlock::reply model_server::about_scripts(std::span<const std::string_view> argv) {
    using distlock::reply;
    if (argv.size() < 2) return wrong_arguments("script");
    if (same_word(argv[1], "flush")) {
        const bool plain = argv.size() == 2;
        if (!plain && (argv.size() > 3 || (!same_word(argv[2], "async") && !same_word(argv[2], "sync"))))
            return reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        forget_scripts();
        return reply::status("OK");
    }
    if (same_word(argv[1], "load")) {
        if (argv.size() != 3) return wrong_arguments("script|load");
        const auto which = find_text(argv[2]);
        if (!which) return reply::error("ERR the model does not know this script");
        loaded_[*which] = true;
        return reply::string(std::string(known_script(*which).sha1()));
    }
    if (!same_word(argv[1], "exists"))
        return reply::error("ERR unknown subcommand '" + std::string(argv[1].substr(0, 128)) +
                            "'. Try SCRIPT HELP.");
    if (argv.size() < 3) return wrong_arguments("script|exists");
    std::vector<reply> known;
    for (const auto digest : argv.subspan(2)) {
        const auto which = find_digest(digest);
        known.push_back(reply::integer(which && loaded_[*which] ? 1 : 0));
    }
    return reply::array(std::move(known));
}

// EVAL text count key... argument...
inline distlock::reply model_server::evaluate(std::span<const std::string_view> argv, bool by_digest) {
    using distlock::reply;
    if (argv.size() < 3) return wrong_arguments(by_digest ? "evalsha" : "eval");
    if (by_digest && argv[1].size() != 40) return reply::error(error_text::no_script);
    const auto count = read_integer(argv[2]);
    if (!count) return reply::error(error_text::not_an_integer);
    if (*count > static_cast<std::int64_t>(argv.size()) - 3)
        return reply::error("ERR Number of keys can't be greater than number of args");
    if (*count < 0) return reply::error("ERR Number of keys can't be negative");
    const auto which = by_digest ? find_digest(argv[1]) : find_text(argv[1]);
    if (by_digest && (!which || !loaded_[*which])) return reply::error(error_text::no_script);
    if (!which) return reply::error("ERR the model does not know this script");
    loaded_[*which] = true;
    const auto keys = static_cast<std::size_t>(*count);
    lua_run redis{data_, now_, known_script(*which).sha1(), argv.subspan(3, keys), argv.subspan(3 + keys)};
    try {
        return run_script(*which, redis);
    } catch (script_error& failed) {
        return reply::error(std::move(failed.text));
    }
}

}  // namespace sim
