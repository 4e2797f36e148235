// Random commands for a server of locks: sensible ones, which reach the depths of the scripts, and absurd ones.
//
//   class generator { explicit generator(seed, server_kind); words next(model, now, may_block); wall move(model, now); };
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

#include "sim/model_scripts.hpp"
#include "sim/model_server.hpp"
#include "sim/model_words.hpp"

namespace sim {

/// What servers differ in is not asked:
/// Redis 6.2 knows no SET NX GET, and cuts off the fractions of a millisecond of a wait, down to 0: for ever.
/// From 7.2 on (and Valkey), BLPOP is run anew when one of its keys has an element, and may find another of a wrong type.
enum class server_kind { redis_6, redis_7_0, newer };

class generator : private random_words {
  public:
    using random_words::wall;
    using words = std::vector<std::string>;

    generator(std::uint64_t seed, server_kind server) : random_words(seed), server_(server) {}

    /// Returns: a command for any connection. `may_block`: it may be one that waits.
    words next(const model_server& model, wall now, bool may_block) {
        if (!planned_.empty()) {
            words made = std::move(planned_.front());
            planned_.pop_front();
            return made;
        }
        look_at(model, now);
        if (dice_.percent(3)) plan();
        words made = choose(may_block);
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
        } else if (kind < 55) {
            then = model.next_timeout().value_or(now);
            then = then - now > 24h ? now : then + dice_.of(near);
        } else if (kind < 90) {
            then += dice_.of(steps);
        } else {
            then -= dice_.of(steps);
        }
        return std::max(then, wall{1'600'000'000'000'000});
    }

  private:
    // What takes several steps that nothing else may come between: a script where its two branches meet.
    void plan() {
        constexpr std::array<std::int64_t, 3> by{-1, 0, 1};
        const std::string us = "00112233445566778899aabbccddeeff";
        const std::string them = "ffeeddccbbaa99887766554433221100";
        const auto ms = static_cast<std::int64_t>(1 + dice_.below(5000));
        const auto text = std::to_string(ms);
        const auto counted = std::to_string(dice_.below(3));
        const auto& enter = known_script(0);
        const auto& pass = known_script(1);
        planned_.push_back({"DEL", K(), B(), W(), F(), O()});
        if (dice_.percent(50)) {  // an offer of about a second
            const auto since = std::to_string(now().count() - 1'000'000 + dice_.of(by));
            planned_.push_back({"SET", K(), us, "PX", "60000"});
            planned_.push_back({"RPUSH", B(), us + ":60000:" + since + ":"});
            if (dice_.percent(50)) planned_.push_back({"SET", W(), counted, "PX", text});
            planned_.push_back({"EVAL", std::string(enter.text()), "3", K(), B(), W(), them, text, place()});
        } else {  // a count that has about a half, or a quarter, of a lease left
            const auto given_back = std::min<std::int64_t>(2000, (ms + 1) / 2);
            const auto left =
                std::max<std::int64_t>(1, given_back / (dice_.percent(50) ? 1 : 2) + dice_.of(by));
            planned_.push_back({"SET", W(), counted, "PX", std::to_string(left)});
            if (dice_.percent(70)) planned_.push_back({"SET", K(), us, "PX", "60000"});
            planned_.push_back({"EVAL", std::string(pass.text()), "3", K(), B(), W(), us, text});
            if (dice_.percent(30)) planned_.back().insert(planned_.back().end(), {"0", "look"});
        }
        planned_.push_back({"MGET", K(), W()});
        planned_.push_back({"PTTL", W()});
        planned_.push_back({"LINDEX", B(), "0"});
    }

    words choose(bool may_block) {
        const auto kind = dice_.below(1000);
        if (kind < 480) return script();
        if (kind < 560) return prepared();
        if (kind < 600 && may_block) return blocking();
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
                return {"SET", W(), number(), "PX", lease()};
            case 2:
                return {"SET", W(), number()};
            case 3:
                return {"SET", F(), fence(), "PX", lease()};
            case 4:
                return {"PEXPIRE", dice_.percent(50) ? W() : any_key(), lease()};
            case 5:
                return {"DEL", B()};
            default:
                return {dice_.percent(80) ? "RPUSH" : "LPUSH", B(), offer()};
        }
    }

    words simple() {
        switch (dice_.below(25)) {
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
                return {"INCR", mostly(W())};
            case 13:
                return {"DECR", mostly(W())};
            case 14:
                return {"INCRBY", mostly(F()), number()};
            case 15:
                return {"TIME"};
            case 16:
                return {"LINDEX", mostly(B()), dice_.percent(40) ? "-1" : number()};
            case 17:
                return {"LLEN", mostly(B())};
            case 18:
                return {"RPUSH", mostly(B()), offer()};
            case 19:
                return {"LPUSH", mostly(B()), offer(), any_value()};
            case 20:
                return {"LPOP", mostly(B())};
            case 21:
                return {"RPOP", mostly(B())};
            case 22:
                return {dice_.percent(50) ? "LPOP" : "RPOP", mostly(B()),
                        server_ != server_kind::redis_6 ? number() : "2"};
            case 23:
                return {"RPUSH", mostly(B()), any_value(), any_value()};
            default:
                return dice_.percent(50) ? words{"PING"} : words{"PING", token()};
        }
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

    words blocking() {
        constexpr std::array<std::string_view, 6> exact{"0", "0.125", "0.5", "1", "2.0", "5"};
        constexpr std::array<std::string_view, 5> inexact{"0.001", "0.002", "0.0001", "0.01", "1e-2"};
        constexpr std::array<std::string_view, 12> absurd{
            "-1", "abc", "", "inf", "-inf", "nan", "1e30", " 1", "1 ", "9223370000000000", "0x1p-3", "-0.01"};
        words made{"BLPOP", mostly(B())};
        if (dice_.percent(20) && server_ != server_kind::newer) made.push_back(any_key());
        if (dice_.percent(10)) {
            made.emplace_back(dice_.of(absurd));
        } else {
            made.emplace_back(server_ != server_kind::redis_6 && dice_.percent(60) ? dice_.of(inexact)
                                                                                   : dice_.of(exact));
        }
        return made;
    }

    words about() {
        const auto& which = known_script(dice_.below(script_count));
        switch (dice_.below(16)) {
            case 0:
                if (dice_.percent(20)) return {"SCRIPT", "FLUSH"};
                [[fallthrough]];
            case 1:
                return {"SCRIPT", "LOAD", std::string(which.text())};
            case 2:
                return {"SCRIPT", "EXISTS", std::string(which.sha1()), std::string(known_script(0).sha1()),
                        "x"};
            case 3:
                return {"CLIENT", "ID"};
            case 4:
                return {"CLIENT", "UNBLOCK", "abc"};
            case 5:
                return {"CLIENT", "UNBLOCK", "0"};
            case 6:
                return {"EVALSHA", token(), "0"};
            case 7:
                return {"SCRIPT", "FLUSH", dice_.percent(20) ? "SYNC" : "NOW"};
            default:  // the comparison puts the number of a client for the place of "?"
                if (dice_.percent(70)) return {"CLIENT", "UNBLOCK", "?"};
                return {"CLIENT", "UNBLOCK", "?", dice_.percent(80) ? "ERROR" : "TIMEOUT"};
        }
    }

    words script() {
        const auto which = dice_.below(script_count + 4) % script_count;  // enter and pass twice as often
        const auto& body = known_script(which);
        words keys;
        words argv;
        const auto siblings = dice_.below(3);  // none, fence, fence and owner
        if (which <= 2) keys = {mostly(K()), mostly(B()), mostly(W())};
        if (which == 0 || which == 1) {
            if (siblings > 0) keys.push_back(mostly(F()));
            if (siblings > 1) keys.push_back(mostly(O()));
        }
        switch (which) {
            case 0:
                argv = {token(), lease(), place()};
                if (siblings > 0) argv.push_back(life());
                if (siblings > 1) argv.push_back(owner());
                break;
            case 1:
                argv = {token(), lease()};
                if (siblings > 0 || dice_.percent(50)) argv.push_back(life());
                if (argv.size() == 3 && dice_.percent(50))
                    argv.emplace_back(dice_.percent(50) ? "look" : "revive");
                break;
            case 2:
                break;
            case 3:
                keys = {mostly(K())};
                argv = {token(), lease()};
                break;
            case 4:
                keys = {mostly(K()), mostly(F()), mostly(O())};
                argv = {token(), lease(), life(), owner()};
                break;
            case 5:
                keys = {mostly(K())};
                argv = {token(), lease()};
                for (auto more = siblings; more > 0; --more) {
                    keys.push_back(mostly(more == 1 ? O() : F()));
                    argv.push_back(lease());
                }
                break;
            default:
                keys = {mostly(K())};
                if (siblings > 0) keys.push_back(mostly(O()));
                argv = {token()};
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
        } else if (made[0] != "CLIENT" ||
                   made.size() < 4) {  // servers differ in what CLIENT UNBLOCK may be told
            made.push_back(made.back());
        }
    }

    server_kind server_;
    std::deque<words> planned_;
};

}  // namespace sim
