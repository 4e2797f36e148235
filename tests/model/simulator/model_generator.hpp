// Random commands for a server of locks: sensible ones, which reach the depths of the
// scripts, and absurd ones.
//
//   class generator { explicit generator(seed, server_kind); words next(model, now, who); wall move(model,
//       now); };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/simulator/model_scripts.hpp"
#include "model/simulator/model_server.hpp"
#include "model/simulator/model_words.hpp"

namespace sim {

/// What servers differ in is not asked: Redis 6.2 knows no SET NX GET.
enum class server_kind { redis_6, redis_7_0, newer };

class generator : private random_words {
  public:
    using random_words::wall;
    using words = std::vector<std::string>;

    generator(std::uint64_t seed, server_kind server) : random_words(seed), server_(server) {}

    /// Returns: a command for that connection.
    words next(const model_server& model, wall now, model_server::client who) {
        look_at(model, now);
        if (model.subscribed(who)) return of_subscriber(model.channel_count(who));
        if (!planned_.empty()) {
            words made = std::move(planned_.front());
            planned_.pop_front();
            return made;
        }
        if (dice_.percent(3)) plan();
        words made = choose();
        if (dice_.percent(2)) break_it(made);
        if (dice_.percent(4)) made[0] = lower(made[0]);
        return made;
    }

    /// Returns: the time to go on at: near one that matters, sometimes an earlier one.
    wall move(const model_server& model, wall now) {
        using namespace std::chrono;
        constexpr std::array<microseconds, 9> near{-1ms, -1us, 0us, 1us, 500us, 999us, 1ms, 1001us, 2ms};
        constexpr std::array<microseconds, 9> steps{0us, 1us, 300us, 1ms, 7ms, 499ms, 1s, 2s, 1h};
        const auto kind = dice_.below(100);
        wall then = now;
        if (kind < 40) {
            const auto keys = model.keys(now);
            const auto left = keys.empty() ? -1 : model.pttl(dice_.of(keys), now);
            if (left >= 0 && left < 100'000'000) then += milliseconds(left);
            then += dice_.of(near);
        } else if (kind < 90) {
            then += dice_.of(steps);
        } else {
            then -= dice_.of(steps);
        }
        return std::max(then, wall{1'600'000'000'000'000});
    }

  private:
    // What takes several steps that nothing else may come between: a queue, and a script
    // that passes the lock on.
    void plan() {
        constexpr std::array<std::string_view, 4> tokens{
            "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100",
            "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "1234567890abcdef1234567890abcdef"};
        const auto count = 1 + dice_.below(3);
        std::array<std::string, 4> needs;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const auto whole = ticket(std::string(tokens[i]));
            needs[i] = whole.substr(std::min<std::size_t>(32, whole.size()));
        }
        const auto enter = [&](std::size_t who, std::string_view how) {
            const auto text = std::string(known_script(0).text());
            return words{"EVAL",
                         text,
                         "4",
                         K(),
                         Q(),
                         F(),
                         O(),
                         std::string(tokens[who]),
                         needs[who],
                         std::string(how),
                         dice_.percent(80) ? "30000" : lease()};
        };
        planned_.push_back({"DEL", K(), Q(), F(), O()});
        if (dice_.percent(20)) planned_.push_back({"SET", F(), fence(), "PX", "60000"});
        if (dice_.percent(20)) planned_.push_back({"ZADD", Q(), score(), ticket(token())});
        if (dice_.percent(20)) planned_.push_back(long_queue());
        planned_.push_back({"SET", K(), std::string(tokens[0]), "PX", "60000"});
        for (std::size_t i = 1; i <= count; ++i) planned_.push_back(enter(i, "join"));
        if (dice_.percent(30)) planned_.push_back(enter(1 + dice_.below(count), mode()));
        if (dice_.percent(60)) {
            planned_.push_back({"EVAL", std::string(known_script(1).text()), "4", K(), Q(), F(), O(),
                                std::string(tokens[0]), needs[0]});
            if (dice_.percent(40)) planned_.back().insert(planned_.back().end(), {fence(), "5000"});
        } else {
            planned_.push_back({"DEL", K()});
            planned_.push_back(enter(dice_.below(4), mode()));
        }
        planned_.push_back({"MGET", K(), F(), O()});
        planned_.push_back({"ZRANGE", Q(), "0", "-1", "WITHSCORES"});
        for (const auto& one : {K(), Q(), O()}) planned_.push_back({"PTTL", one});
        if (dice_.percent(50)) planned_.push_back(enter(1, mode()));
    }

    // Of which the last waiter is asked to look now and then.
    words long_queue() {
        words made{"ZADD", Q()};
        const std::size_t apart = dice_.percent(50) ? 11 : 1;
        for (auto left = 28 + dice_.below(10); left > 0; --left)
            made.insert(made.end(), {std::to_string(left * apart),
                                     ticket(std::string(30, '7') + std::to_string(10 + left))});
        return made;
    }

    words choose() {
        const auto kind = dice_.below(1000);
        if (kind < 480) return script();
        if (kind < 560) return prepared();
        if (kind < 600) return subscribing();
        if (kind < 640) return about();
        if (kind < 645) return {"FLUSHALL"};
        if (kind < 648) return {"NOSUCH", token(), number()};
        return simple();
    }

    // What a lock is made of, so that scripts find it.
    words prepared() {
        switch (dice_.below(7)) {
            case 0:
                return {"SET", K(), token(), "PX", lease()};
            case 1:
                return {"SET", F(), fence(), "PX", lease()};
            case 2:
                return {"PEXPIRE", dice_.percent(50) ? Q() : any_key(), lease()};
            case 3:
                return {"DEL", dice_.percent(50) ? Q() : K()};
            default:
                return {"ZADD", Q(), score(), ticket(token())};
        }
    }

    words simple() {
        switch (dice_.below(32)) {
            case 31:
                return {"PEXPIREAT", any_key(), number()};
            case 30:
                return {"ZRANGEBYSCORE", mostly(Q()), "-inf", score()};
            case 29:
                return {"ZREMRANGEBYSCORE", mostly(Q()), "-inf", score()};
            case 28:
                return {"HSET", mostly(O()), token(), number(), any_value(), token()};
            case 27:
                return {dice_.percent(50) ? "HGET" : "HDEL", mostly(O()), token()};
            case 26:
                return {"HMGET", mostly(O()), token(), any_value()};
            case 0:
                return {"SET", dice_.percent(75) ? K() : any_key(), token(), "NX", "PX", lease()};
            case 1:
                return {"SET", any_key(), any_value(), "XX", "PX", lease()};
            case 2:
                return set_anyhow();
            case 3:
                return {"GET", any_key()};
            case 4:
                return {"MGET", any_key(), any_key()};
            case 5:
                return {"DEL", any_key()};
            case 6:
                return {"DEL", any_key(), any_key(), any_key()};
            case 7:
                return {"EXISTS", any_key(), any_key()};
            case 8:
                return {"TYPE", any_key()};
            case 9:
                return {"PTTL", any_key()};
            case 10:
                return {"PEXPIRE", any_key(), lease()};
            case 11:
                return {"PERSIST", any_key()};
            case 12:
                return {"INCR", mostly(F())};
            case 13:
                return {"DECR", mostly(F())};
            case 14:
                return {"INCRBY", mostly(F()), number()};
            case 15:
                return {"TIME"};
            case 16:
                return {"ZADD", mostly(Q()), dice_.percent(50) ? "NX" : "xx", score(), ticket(token())};
            case 17:
                return {"ZADD", mostly(Q()), score(), ticket(token()), score(), any_value()};
            case 18:
                return {"ZREM", mostly(Q()), member()};
            case 19:
                return {"ZREM", mostly(Q()), member(), member()};
            case 20:
                return {dice_.percent(50) ? "ZSCORE" : "ZRANK", mostly(Q()), member()};
            case 21:
                return {"ZCARD", mostly(Q())};
            case 22:
                return {"ZPOPMIN", mostly(Q())};
            case 23:
                return {"ZRANGE", mostly(Q()), number(), dice_.percent(50) ? "-1" : number()};
            case 24:
                if (dice_.percent(50)) return {"ZRANGE", mostly(Q()), "0", "-1", "WITHSCORES"};
                return {"ZRANGE", mostly(Q()), number(), number(), "withscores"};
            default:
                return dice_.percent(50) ? words{"PING"} : words{"PING", token()};
        }
    }
    std::string member() {
        const auto there = waiting();
        return there.empty() || dice_.percent(20) ? ticket(token()) : dice_.of(there).second;
    }
    words set_anyhow() {
        words made{"SET", any_key(), any_value()};
        constexpr std::array<std::string_view, 9> flags{"NX",      "XX", "GET", "PX", "EX",
                                                        "KEEPTTL", "nx", "px",  "YY"};
        for (auto more = dice_.below(4); more > 0; --more) {
            made.emplace_back(dice_.of(flags));
            if (made.back() == "GET" && server_ == server_kind::redis_6) made.back() = "XX";
            if (made.back() == "PX" || made.back() == "EX" || made.back() == "px") made.push_back(lease());
        }
        return made;
    }

    // (S)PUBLISH too: it is for those who have subscribed.
    words subscribing() {
        const bool shard = server_ != server_kind::redis_6 && dice_.percent(30);
        const std::string s = shard ? "S" : "";
        switch (dice_.below(9)) {
            case 8:
                return {"PUBSUB", (shard ? "SHARD" : "") + std::string("NUMSUB"), channel()};
            case 0:
                return {s + "UNSUBSCRIBE"};
            case 1:
                return {s + "UNSUBSCRIBE", channel()};
            case 2:
            case 3:
            case 4:
                return {s + "PUBLISH", channel(), any_value()};
            case 5:
                return {s + "SUBSCRIBE", channel(), channel()};
            default:
                return {s + "SUBSCRIBE", channel()};
        }
    }
    // In which order the server leaves several channels, nobody says.
    words of_subscriber(std::size_t count) {
        const auto kind = dice_.below(10);
        if (kind < 3) return {"PING"};
        if (kind < 4) return {"PING", token()};
        if (kind < 5) return {"GET", any_key()};
        if (kind < 6) return {"publish", channel(), token()};
        words made;
        do {
            made = subscribing();
        } while (made[0].ends_with("PUBLISH") || made[0] == "PUBSUB" || (made.size() == 1 && count > 1));
        return made;
    }

    words about() {
        const auto& which = known_script(dice_.below(twin_count));
        switch (dice_.below(5)) {
            case 0:
                if (dice_.percent(20)) return {"SCRIPT", "FLUSH"};
                [[fallthrough]];
            case 1:
                return {"SCRIPT", "LOAD", std::string(which.text())};
            case 2:
                return {"SCRIPT", "EXISTS", std::string(which.sha1()), std::string(known_script(0).sha1()),
                        "x"};
            case 3:
                return {"EVALSHA", token(), "0"};
            default:
                return {"SCRIPT", "FLUSH", dice_.percent(20) ? "SYNC" : "NOW"};
        }
    }

    words script() {
        const auto& body = known_script(dice_.below(dice_.percent(60) ? 2 : twin_count));  // enter and leave
        words keys{mostly(K())};
        words argv{token()};
        const auto siblings = dice_.below(3);  // none, fence, fence and owner
        const bool enters = &body == &distlock::detail::handoff_enter;
        if (enters || &body == &distlock::detail::handoff_leave) {
            const auto needs = ticket(argv[0]);
            keys.insert(keys.end(), {mostly(Q()), mostly(F()), mostly(O())});
            argv.push_back(needs.substr(std::min(argv[0].size(), needs.size())));
            if (enters) {
                argv.insert(argv.end(), {mode(), dice_.percent(50) ? "30000" : lease()});
            } else if (dice_.percent(50)) {
                argv.insert(argv.end(), {fence(), life()});
            }
        } else if (&body == &distlock::detail::plain_look) {
            argv.push_back(lease());
        } else if (&body == &distlock::detail::plain_look_with_siblings) {
            keys.insert(keys.end(), {mostly(F()), mostly(O())});
            argv.insert(argv.end(), {lease(), life(), owner()});
        } else if (&body == &distlock::detail::plain_renew) {
            argv.push_back(lease());
            for (auto more = siblings; more > 0; --more) {
                keys.push_back(mostly(more == 1 ? O() : F()));
                argv.push_back(lease());
            }
            if (siblings > 0 && dice_.percent(30)) argv.push_back(fence());
        } else {
            if (siblings > 0) keys.push_back(mostly(O()));
            if (dice_.percent(30)) {
                keys.push_back(mostly(F()));
                argv.insert(argv.end(), {fence(), life()});
            }
        }
        if (dice_.percent(3)) argv.resize(dice_.below(argv.size() + 1));
        if (dice_.percent(2)) keys.resize(dice_.below(keys.size() + 1));
        if (dice_.percent(2) && !argv.empty()) argv[dice_.below(argv.size())] = any_value();
        const bool whole = dice_.percent(12);
        words made{whole ? "EVAL" : "EVALSHA", std::string(whole ? body.text() : body.sha1()),
                   dice_.percent(1) ? number() : std::to_string(keys.size())};
        made.insert(made.end(), keys.begin(), keys.end());
        made.insert(made.end(), argv.begin(), argv.end());
        return made;
    }

    void break_it(words& made) {
        if (dice_.percent(50) && made.size() > 1) {
            made.pop_back();
        } else {
            made.push_back(made.back());
        }
    }

    server_kind server_;
    std::deque<words> planned_;
};

}  // namespace sim
