// A deterministic model of one redis-server, in memory: what a command answers depends on nothing but the
// commands before it and the times that the caller gives. tests/model/simulator/differential.cpp holds it
// against a real server.
//
//   class model_server;   // execute, expire, take_messages, disconnect, restart; and looks inside
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/wire/reply.hpp>

#include "model/simulator/model_data.hpp"
#include "model/simulator/model_scripts.hpp"
#include "model/simulator/script_machine.hpp"

namespace sim {

class model_server {
  public:
    using client = std::uint64_t;            // whose connection: any number that the caller likes
    using wall = std::chrono::microseconds;  // the server's wall clock, since the epoch; it may be set back

    /// Effects: what the server does with one command of `who`. A key is gone once `now`
    /// is past its deadline.
    /// Returns: the reply; none: all that it answers is among the messages.
    /// Preconditions: from one that has subscribed the command has as many arguments as it may have, or one
    /// of those that it may send.
    std::optional<distlock::reply> execute(client who, std::span<const std::string_view> argv, wall now);

    /// Effects: what the server does by itself: deletes what is past its deadline, which can then no longer
    /// come back when the clock is set back.
    void expire(wall now) { data_.expire(now); }

    /// Effects: f(client, distlock::reply) for each message that was published to one who had subscribed, and
    /// for each confirmation, in order.
    template <class F>
    void take_messages(F f) {
        channels_.take_messages(std::move(f));
    }

    /// Effects: forgets the client, and the messages that it has not taken.
    void disconnect(client who) { channels_.disconnect(who); }

    /// Effects: from here on everybody may, or nobody.
    void permit(bool subscribe, bool publish, bool count) {
        channels_.may_subscribe = subscribe;
        channels_.may_publish = publish;
        channels_.may_count = count;
    }
    /// Effects: the server knows no channels of shards, as before Redis 7.
    void know_no_shards() { channels_.shards = false; }

    /// Effects: scripts' numbers are written so; as Redis 7.0 does, if this is not called.
    void write_numbers(lua_spelling spelling) { spelling_ = spelling; }

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
    /// Returns: the members by rank; empty also for what is no sorted set.
    dataset::sorted sorted_set(std::string_view key, wall now) const { return data_.sorted_set(key, now); }
    /// Returns: the names of all keys, in order.
    std::vector<std::string> keys(wall now) const { return data_.keys(now); }
    /// Returns: whether the client may send nothing but what has to do with its subscriptions.
    bool subscribed(client who) const { return channels_.subscribed(who); }
    /// Returns: how many channels, of the two kinds together.
    std::size_t channel_count(client who) const {
        return channels_.count(who, false) + channels_.count(who, true);
    }
    /// Returns: how many clients hear what is published there.
    std::int64_t listeners(std::string_view channel, bool shard) const {
        return channels_.listeners(channel, shard);
    }

  private:
    static distlock::reply unknown(std::span<const std::string_view> argv);
    distlock::reply ping(client who, std::span<const std::string_view> argv) const;
    distlock::reply about_scripts(std::span<const std::string_view> argv);
    distlock::reply evaluate(std::span<const std::string_view> argv, bool by_digest);

    dataset data_;
    std::array<bool, script_count> loaded_{};
    channels channels_;
    script_machine machine_;
    lua_spelling spelling_ = lua_spelling::with_exponent;
    wall now_{};
};

inline std::optional<distlock::reply> model_server::execute(client who,
                                                            std::span<const std::string_view> argv,
                                                            wall now) {
    using distlock::reply;
    if (argv.empty()) throw std::logic_error("a command has a name");
    now_ = now;
    const std::string_view name = argv[0];
    if (channels_.knows(name)) {
        channels_.run(who, argv);
        return std::nullopt;
    }
    if (same_word(name, "ping")) return ping(who, argv);
    const bool scripted = same_word(name, "eval") || same_word(name, "evalsha");
    const bool known = scripted || dataset::knows(name) || channels_.publishes(name) ||
                       same_word(name, "pubsub") || same_word(name, "script");
    if (!known) return unknown(argv);
    if (channels_.subscribed(who))
        return reply::error("ERR Can't execute '" + lower(name) +
                            "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in "
                            "this context");
    if (scripted) return evaluate(argv, same_word(name, "evalsha"));
    if (channels_.publishes(name)) return channels_.publish(argv);
    if (same_word(name, "pubsub")) return channels_.tell_count(argv);
    return same_word(name, "script") ? about_scripts(argv) : data_.run(argv, now);
}

inline distlock::reply model_server::unknown(std::span<const std::string_view> argv) {
    std::string words;
    for (std::size_t i = 1; i < argv.size() && words.size() < 128; ++i)
        words += "'" + std::string(argv[i].substr(0, 128 - words.size())) + "' ";
    std::string text = "ERR unknown command '" + std::string(argv[0].substr(0, 128)) +
                       "', with args beginning with: " + words;
    // An error is one line, whatever it quotes.
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
    return distlock::reply::error(std::move(text));
}

inline distlock::reply model_server::ping(client who, std::span<const std::string_view> argv) const {
    using distlock::reply;
    if (argv.size() > 2) return wrong_arguments("ping");
    std::string text(argv.size() == 2 ? argv[1] : "");
    if (channels_.subscribed(who)) return reply::array({reply::string("pong"), reply::string(text)});
    return argv.size() == 2 ? reply::string(text) : reply::status("PONG");
}

inline void model_server::restart() {
    forget_scripts();
    channels_.clear();
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
    if (!has_twin(*which))
        return machine_.run(known_script(*which), data_, channels_, now_, spelling_, argv.subspan(3, keys),
                            argv.subspan(3 + keys));
    lua_run redis{data_,
                  channels_,
                  now_,
                  spelling_,
                  known_script(*which).sha1(),
                  argv.subspan(3, keys),
                  argv.subspan(3 + keys)};
    try {
        return run_script(*which, redis);
    } catch (script_error& failed) {
        return reply::error(std::move(failed.text));
    }
}

}  // namespace sim
