// The scripts of the dialects `handoff` and `plain`, in C++: line by line what wire/plain.hpp and
// wire/handoff_scripts.hpp say. The number in each call is the line of the script, or of a part of it. Who
// changes a script changes its twin here; differential.cpp compares.
//
//   reply run_script(std::size_t which, lua_run&);
//   known_script(which), script_count; find_text, find_digest
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/detail/sha1.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/joint_try.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_scripts.hpp>

#include "model/simulator/model_lua.hpp"

namespace sim {

namespace lua {

using distlock::reply;

// string.match(text, '^[1-9]%d*$')
inline bool is_fence(const lua_string& text) {
    if (!text || text->empty() || text->front() == '0') return false;
    return std::all_of(text->begin(), text->end(), [](char c) { return c >= '0' && c <= '9'; });
}
// `last and tonumber(last) >= now`, of a text that is_fence
inline bool not_before(const lua_string& last, double now) { return lua_number(*last).value_or(0) >= now; }

inline reply plain_look(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto holder = redis.text(3, {"get", K});
    if (!holder) return redis.call(4, {"set", K, redis.argv(1), "PX", redis.argv(2)});
    if (!same(view(holder), redis.argv(1))) {
        redis.ask_whether_readonly(6);
        return lua_run::returned(redis.number(8, {"pttl", K}));
    }
    redis.call(10, {"pexpire", K, redis.argv(2)});
    return reply::status("OK");
}

inline reply plain_look_with_siblings(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto F = redis.keys(2);
    const auto holder = redis.text(3, {"get", K});
    if (holder && !same(view(holder), redis.argv(1))) {
        redis.ask_whether_readonly(5);
        return reply::array({reply::integer(0), lua_run::returned(redis.number(7, {"pttl", K}))});
    }
    lua_string fence = "";
    if (!same(redis.argv(3), "0")) {
        fence = redis.text(11, {"get", F});
        const bool last = is_fence(fence);
        if (!holder || !last) {
            const double now = redis.now();
            if (last && not_before(fence, now)) {
                redis.call(18, {"incrby", F, "250"});
                redis.call(19, {"pexpire", F, redis.argv(3)});
                fence = redis.text(20, {"get", F});
            } else {
                fence = whole_text(now);
                redis.call(22, {"set", F, *fence, "PX", redis.argv(3)});
            }
        }
    }
    if (holder) {
        redis.call(27, {"pexpire", K, redis.argv(2)});
    } else {
        redis.call(29, {"set", K, redis.argv(1), "PX", redis.argv(2)});
    }
    if (!same(redis.argv(4), "")) {
        const std::string who = "\n" + std::string(redis.joined(31, redis.argv(4)));
        redis.call(31, {"set", redis.keys(3), std::string(redis.joined(31, redis.argv(1))) + who, "PX",
                        redis.argv(2)});
    }
    return reply::array({reply::integer(1), lua_run::returned(fence)});
}

// What the three do with the largest fence that was used since.
inline void keep_fence(lua_run& redis, const lua_view& fence, const lua_view& used, const lua_view& life) {
    const reply kept = redis.attempt({"get", fence});
    if (kept.is(distlock::reply_kind::error)) return;
    lua_string last = lua_run::text_of(kept);
    if (!is_fence(last)) last = "";
    if (last->size() < used->size() || (last->size() == used->size() && *last < *used))
        redis.attempt({"set", fence, used, "PX", life});
}

inline reply plain_renew(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto holder = redis.text(4, {"get", K});
    const auto last_key = redis.key_count();
    if (const auto used = redis.argv(last_key + 2))
        keep_fence(redis, redis.keys(last_key), used, redis.argv(last_key + 1));
    if (!holder) return redis.call(13, {"del", K});
    if (!same(view(holder), redis.argv(1))) {
        redis.ask_whether_readonly(15);
        return reply::integer(-1);
    }
    for (std::size_t i = 1; i <= redis.key_count(); ++i)
        redis.call(19, {"pexpire", redis.keys(i), redis.argv(i + 1)});
    return reply::integer(1);
}

inline reply plain_release(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto holder = redis.text(4, {"get", K});
    std::size_t count = redis.key_count();
    if (const auto used = redis.argv(2)) {
        keep_fence(redis, redis.keys(count), used, redis.argv(3));
        --count;
    }
    if (holder && !same(view(holder), redis.argv(1))) {
        redis.ask_whether_readonly(15);
        return reply::integer(-1);
    }
    for (std::size_t i = 2; i <= count; ++i) redis.call(19, {"del", redis.keys(i)});
    return redis.call(20, {"del", K});
}

// Which line of the script follows a text.
constexpr int lines_of(std::string_view text) {
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// What the two scripts of the hand-off share: handoff_pass. Its lines follow the contract's.
class handoff_twin {
  public:
    struct ticket {
        std::string token;
        double lease;
        double offer;
        lua_string life;
        bool sharded;
        std::string channel;
        std::string info;
    };
    struct passed {
        bool given;
        bool tried;
    };

    handoff_twin(lua_run& redis, std::string_view contract) : redis_(redis), base_(lines_of(contract)) {}

    // Of the line of handoff_pass.
    int line(int of_pass) const { return base_ + of_pass; }
    // Of a line of a text that follows it: of the one behind these texts.
    template <class... Texts>
    int behind(int of_text, Texts... texts) const {
        return base_ + lines_of(distlock::detail::handoff_functions) +
               lines_of(distlock::detail::handoff_pass) + (0 + ... + lines_of(texts)) + of_text;
    }

    // string.match(ticket, '^(%x+) (%d+) (%d+) ([ps])(%d+) ()')
    static std::optional<ticket> read(std::string_view text) {
        std::string_view rest = text;
        const auto digit = [](char c) { return c >= '0' && c <= '9'; };
        const auto hex = [&](char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
        const auto next = [&rest](auto belongs) {
            const auto size =
                static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), belongs) - rest.begin());
            const auto part = rest.substr(0, size);
            const bool ends = size > 0 && size < rest.size() && rest[size] == ' ';
            rest.remove_prefix(ends ? size + 1 : rest.size());
            return ends ? part : std::string_view{};
        };
        const auto token = next(hex);
        const auto lease = next(digit);
        const auto life = next(digit);
        if (token.empty() || lease.empty() || life.empty() || rest.empty()) return std::nullopt;
        const char way = rest.front();
        if (way != 'p' && way != 's') return std::nullopt;
        rest.remove_prefix(1);
        const auto length = next(digit);
        if (length.empty()) return std::nullopt;
        const double ms = *lua_number(lease);
        const double size = *lua_number(length);
        if (token.size() != 32 || ms < 1 || size > static_cast<double>(rest.size())) return std::nullopt;
        const auto whole = static_cast<std::size_t>(size);
        return ticket{std::string(token),
                      ms,
                      std::min(2000.0, ms),
                      life == "0" ? std::nullopt : lua_string(life),
                      way == 's',
                      std::string(rest.substr(0, whole)),
                      std::string(rest.substr(whole))};
    }

    bool hears(const ticket& waiter) {
        if (waiter.channel.empty()) return true;
        const reply count =
            redis_.attempt({"pubsub", waiter.sharded ? "shardnumsub" : "numsub", waiter.channel});
        return count.is(distlock::reply_kind::error) || count.elements()[1].number() > 0;
    }

    // `protected_call`: redis.pcall; what it refuses is in `refused`.
    lua_string new_fence(bool protected_call, const lua_view& life, reply* refused = nullptr) {
        const auto F = redis_.keys(3);
        const auto call = [&](int at, std::initializer_list<lua_argument> words) {
            return protected_call ? redis_.attempt(words) : redis_.call(line(at), words);
        };
        const auto refuse = [&](reply& what) -> lua_string {
            if (refused != nullptr) *refused = std::move(what);
            return std::nullopt;
        };
        reply got = call(22, {"get", F});
        if (got.is(distlock::reply_kind::error)) return refuse(got);
        const auto last = lua_run::text_of(got);
        const double now = redis_.now();
        reply made;
        const bool behind = is_fence(last) && not_before(last, now);
        if (behind) {
            made = call(30, {"incrby", F, "250"});
            if (made.is(distlock::reply_kind::integer)) made = call(31, {"pexpire", F, life});
        } else {
            made = call(33, {"set", F, whole_text(now), "PX", life});
        }
        if (made.is(distlock::reply_kind::error)) return refuse(made);
        const auto grown = behind ? redis_.text(line(36), {"get", F}) : std::nullopt;
        return grown ? grown : whole_text(now);
    }
    void describe(const ticket& owner, double ttl) {
        if (!owner.info.empty()) {
            redis_.call(line(40),
                        {"set", redis_.keys(4), owner.token + "\n" + owner.info, "PX", redis_.written(ttl)});
        } else {
            redis_.call(line(42), {"del", redis_.keys(4)});
        }
    }
    // The first ticket and its number, if there is one.
    using first_ticket = std::optional<std::pair<std::string, std::string>>;
    static first_ticket first_of(const reply& range) {
        if (range.elements().empty()) return std::nullopt;
        return std::pair(range.elements()[0].text(), range.elements()[1].text());
    }
    first_ticket head() {
        return first_of(redis_.call(line(46), {"zrange", redis_.keys(2), "0", "0", "withscores"}));
    }
    void tell(const ticket& waiter, const std::string& number, std::string_view ttl, std::string_view fence) {
        if (waiter.channel.empty()) return;
        std::string message = waiter.token + " " + whole_text(*lua_number(number));
        for (const std::string_view part : {ttl, fence, *redis_.keys(1)}) message += " " + std::string(part);
        redis_.attempt({waiter.sharded ? "spublish" : "publish", waiter.channel, message});
    }
    bool waits(std::string_view place) {
        return !redis_.call(line(47), {"zrange", redis_.keys(2), place, place}).elements().empty();
    }
    void keep_watch(const std::string& served) {
        const double number = *lua_number(served);
        if (std::fmod(number, 11) != 0 || !waits("31") || (std::fmod(number, 99) != 0 && waits("255")))
            return;
        const auto last =
            first_of(redis_.call(line(52), {"zrange", redis_.keys(2), "-1", "-1", "withscores"}));
        if (const auto waiter = read(last->first)) tell(*waiter, last->second, "poll", "0");
    }
    passed pass(first_ticket first, const lua_view& asker) {
        const auto K = redis_.keys(1);
        const auto Q = redis_.keys(2);
        bool tried = false;
        for (; first && !(asker == first->first); first = head()) {
            const auto& [text, number] = *first;
            auto waiter = read(text);
            if (waiter && !hears(*waiter)) waiter = std::nullopt;
            if (waiter) redis_.call(line(63), {"set", K, waiter->token, "PX", redis_.written(waiter->offer)});
            lua_string fence;
            if (waiter) fence = waiter->life ? new_fence(true, view(waiter->life)) : lua_string("0");
            redis_.call(line(65), {"zrem", Q, text});
            if (!waiter) continue;
            tried = true;
            if (!fence) continue;
            describe(*waiter, waiter->offer);
            tell(*waiter, number, redis_.written(waiter->offer), *fence);
            keep_watch(number);
            return {true, tried};
        }
        return {false, tried};
    }

  private:
    lua_run& redis_;
    const int base_;
};

inline reply handoff_enter(lua_run& redis) {
    namespace text = distlock::detail;
    handoff_twin in(redis, text::handoff_enter_contract);
    const auto granted_at = [&](int line) { return in.behind(line); };
    const auto replica_at = [&](int line) { return in.behind(line, text::handoff_enter_granted); };
    const auto taken_at = [&](int line) {
        return in.behind(line, text::handoff_enter_granted, text::handoff_refuse_as_replica);
    };
    const auto K = redis.keys(1);
    const auto Q = redis.keys(2);
    const std::string ticket =
        std::string(redis.joined(5, redis.argv(1))) + std::string(redis.joined(5, redis.argv(2)));
    const auto mode = redis.argv(3);
    const auto holder = redis.text(6, {"get", K});
    bool written = false;
    if (!holder || holder == redis.argv(1)) {
        const auto me = handoff_twin::read(ticket);
        const auto first = in.head();
        const bool queued = first && redis.text(granted_at(2), {"zscore", Q, ticket}).has_value();
        if (!me) redis.fail(granted_at(3), "attempt to index local 'me' (a nil value)");
        const double ttl = same(mode, "try") ? me->lease : me->offer;
        const auto granted = [](const lua_string& fence, double left) {
            return reply::array({reply::integer(1), lua_run::returned(fence), lua_run::returned(left)});
        };
        if (holder) {
            lua_string fence = "";
            if (me->life) {
                fence = redis.text(granted_at(7), {"get", redis.keys(3)});
                if (!is_fence(fence)) fence = in.new_fence(false, view(me->life));
            }
            if (queued) redis.call(granted_at(10), {"zrem", Q, ticket});
            const double left = std::max(redis.number(granted_at(11), {"pttl", K}), ttl);
            redis.call(granted_at(12), {"pexpire", K, redis.written(left)});
            in.describe(*me, left);
            return granted(fence, left);
        }
        const auto [given, tried] = in.pass(first, ticket);
        if (!given) {
            lua_string fence = "";
            reply refused;
            if (me->life) fence = in.new_fence(tried, view(me->life), &refused);
            if (refused.is(distlock::reply_kind::error)) {
                redis.call(granted_at(21), {"del", K, redis.keys(4)});
                return refused;
            }
            redis.call(granted_at(24), {"set", K, me->token, "PX", redis.written(ttl)});
            if (queued) redis.call(granted_at(25), {"zrem", Q, ticket});
            in.describe(*me, ttl);
            return granted(fence, ttl);
        }
        written = true;
    }
    lua_string number;
    double before = 0;
    std::int64_t appended = 0;
    if (same(mode, "last")) {
        redis.call(taken_at(3), {"zrem", Q, ticket});
        written = true;
    } else if (same(mode, "join")) {
        const auto last =
            handoff_twin::first_of(redis.call(taken_at(5), {"zrange", Q, "-1", "-1", "withscores"}));
        double mine = redis.now();
        if (last && *lua_number(last->second) >= mine)
            mine = std::min(*lua_number(last->second) + 1, 9007199254740991.0);
        number = whole_text(mine);
        reply added = redis.attempt({"zadd", Q, "NX", *number, ticket});
        written = added.is(distlock::reply_kind::integer);
        if (added.is_integer(1)) {
            appended = 1;
        } else {
            number = redis.text(taken_at(16), {"zscore", Q, ticket});
            if (!number) return added;
        }
        if (last) before = redis.number(taken_at(19), {"zrank", Q, ticket});
        const auto life = redis.argv(4);
        if (!last ||
            redis.less(taken_at(20), redis.number(taken_at(20), {"pttl", Q}), lua_run::to_number(life))) {
            redis.call(taken_at(21), {"pexpire", Q, life});
            written = true;
        }
    } else {
        number = redis.text(taken_at(24), {"zscore", Q, ticket});
        if (number) before = redis.number(taken_at(25), {"zrank", Q, ticket});
    }
    if (!written) redis.ask_whether_readonly(replica_at(2));
    return reply::array({reply::integer(0), lua_run::returned(redis.number(taken_at(29), {"pttl", K})),
                         lua_run::returned(number ? lua_number(*number).value_or(0) : 0),
                         lua_run::returned(before), reply::integer(appended)});
}

inline reply handoff_leave(lua_run& redis) {
    namespace text = distlock::detail;
    handoff_twin in(redis, text::handoff_leave_alone);
    const auto leave_at = [&](int line) { return in.behind(line, text::handoff_refuse_as_replica); };
    const auto K = redis.keys(1);
    const auto Q = redis.keys(2);
    const auto me = redis.argv(1);
    const reply got = redis.attempt({"get", K});
    const auto holder = lua_run::text_of(got);
    auto first = handoff_twin::first_of(redis.attempt({"zrange", Q, "0", "0", "withscores"}));
    if (!first && same(view(holder), me) && !redis.argv(3)) {
        redis.call(7, {"del", K, redis.keys(4)});
        return reply::integer(1);
    }
    if (first) {
        const std::string ticket = std::string(redis.joined(leave_at(1), me)) +
                                   std::string(redis.joined(leave_at(1), redis.argv(2)));
        if (redis.call(leave_at(1), {"zrem", Q, ticket}).is_integer(1)) first = in.head();
    }
    if (got.is(distlock::reply_kind::error)) return got;
    if (const auto used = redis.argv(3)) keep_fence(redis, redis.keys(3), used, redis.argv(4));
    if (holder && !same(view(holder), me)) {
        redis.ask_whether_readonly(in.behind(2));
        return reply::integer(-1);
    }
    if (holder && in.pass(first, std::nullopt).given) return reply::integer(2);
    if (holder) redis.call(leave_at(13), {"del", redis.keys(4)});
    return redis.call(leave_at(14), {"del", K});
}

struct twin {
    const distlock::script* script;
    reply (*run)(lua_run&);
};
inline constexpr std::array twins{
    twin{&distlock::detail::handoff_enter, handoff_enter},
    twin{&distlock::detail::handoff_leave, handoff_leave},
    twin{&distlock::detail::plain_look, plain_look},
    twin{&distlock::detail::plain_look_with_siblings, plain_look_with_siblings},
    twin{&distlock::detail::plain_renew, plain_renew},
    twin{&distlock::detail::plain_release, plain_release},
    // Those without a twin are run as they are: script_machine.hpp.
    twin{&distlock::detail::shared_enter, nullptr},
    twin{&distlock::detail::shared_leave, nullptr},
    twin{&distlock::detail::shared_exchange, nullptr},
    twin{&distlock::detail::shared_renew, nullptr},
    twin{&distlock::detail::shared_leave_minimal, nullptr},
    twin{&distlock::detail::permit_enter, nullptr},
    twin{&distlock::detail::permit_leave, nullptr},
    twin{&distlock::detail::permit_renew, nullptr},
    twin{&distlock::detail::permit_resize, nullptr},
    twin{&distlock::detail::joint_enter, nullptr},
};

}  // namespace lua

inline constexpr std::size_t script_count = lua::twins.size();
/// The first so many have one.
inline constexpr std::size_t twin_count = static_cast<std::size_t>(
    std::count_if(lua::twins.begin(), lua::twins.end(), [](const auto& one) { return one.run != nullptr; }));
inline const distlock::script& known_script(std::size_t which) { return *lua::twins[which].script; }
inline bool has_twin(std::size_t which) { return which < twin_count; }
inline distlock::reply run_script(std::size_t which, lua_run& redis) { return lua::twins[which].run(redis); }

inline std::optional<std::size_t> find_text(std::string_view body) {
    for (std::size_t i = 0; i < script_count; ++i) {
        if (known_script(i).text() == body) return i;
    }
    return std::nullopt;
}
inline std::optional<std::size_t> find_digest(std::string_view digest) {
    for (std::size_t i = 0; i < script_count; ++i) {
        if (same_word(digest, known_script(i).sha1())) return i;
    }
    return std::nullopt;
}

}  // namespace sim
