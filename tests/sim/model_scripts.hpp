// The scripts of the dialects `handoff` and `plain`, in C++: line by line what wire/plain.hpp and wire/handoff_scripts.hpp say.
// The number in each call is the line of the script. Who changes a script changes its twin here; differential.cpp compares.
//
//   reply run_script(std::size_t which, lua_run&);
//   known_script(which), script_count; find_text, find_digest
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/detail/sha1.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "sim/model_lua.hpp"

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

// tonumber(string.match(offer, '^%x+:%d+:(%d+):') or 0)
inline double since_of(std::string_view offer) {
    const auto span_of = [&offer](auto belongs) {
        const auto size =
            static_cast<std::size_t>(std::find_if_not(offer.begin(), offer.end(), belongs) - offer.begin());
        const auto part = offer.substr(0, size);
        const bool ends = size > 0 && size < offer.size() && offer[size] == ':';
        offer.remove_prefix(ends ? size + 1 : size);
        return ends ? part : std::string_view{};
    };
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto hex = [&](char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
    if (span_of(hex).empty() || span_of(digit).empty()) return 0;
    const auto since = span_of(digit);
    return since.empty() ? 0 : lua_number(since).value_or(0);
}

inline bool starts_with_holder(const lua_string& offer, const lua_string& holder) {
    return holder && offer && std::string_view(*offer).substr(0, 32) == *holder;
}

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

inline reply plain_look_beside(lua_run& redis) {
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
                redis.call(17, {"incrby", F, "1000000"});
                redis.call(18, {"pexpire", F, redis.argv(3)});
            } else {
                redis.call(20, {"set", F, whole_text(now), "PX", redis.argv(3)});
            }
            fence = redis.text(22, {"get", F});
        }
    }
    if (holder) {
        redis.call(26, {"pexpire", K, redis.argv(2)});
    } else {
        redis.call(28, {"set", K, redis.argv(1), "PX", redis.argv(2)});
    }
    if (!same(redis.argv(4), "")) {
        const std::string who = "\n" + std::string(redis.joined(30, redis.argv(4)));
        redis.call(30, {"set", redis.keys(3), std::string(redis.joined(30, redis.argv(1))) + who, "PX",
                        redis.argv(2)});
    }
    return reply::array({reply::integer(1), lua_run::returned(fence)});
}

inline reply plain_renew(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto holder = redis.text(3, {"get", K});
    if (!holder) return redis.call(4, {"del", K});
    if (!same(view(holder), redis.argv(1))) {
        redis.ask_whether_readonly(6);
        return reply::integer(-1);
    }
    for (std::size_t i = 1; i <= redis.key_count(); ++i)
        redis.call(10, {"pexpire", redis.keys(i), redis.argv(i + 1)});
    return reply::integer(1);
}

inline reply plain_release(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto holder = redis.text(3, {"get", K});
    if (holder && !same(view(holder), redis.argv(1))) {
        redis.ask_whether_readonly(5);
        return reply::integer(-1);
    }
    for (std::size_t i = 2; i <= redis.key_count(); ++i) redis.call(9, {"del", redis.keys(i)});
    return redis.call(10, {"del", K});
}

inline reply handoff_enter(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto B = redis.keys(2);
    const auto W = redis.keys(3);
    const auto F = redis.keys(4);
    const auto me = redis.argv(1);
    const auto lease = redis.argv(2);
    const auto place = redis.argv(3);
    const auto holder = redis.text(6, {"get", K});
    const auto offer = redis.text(7, {"lindex", B, "0"});
    const auto waiters = redis.text(8, {"get", W});
    const bool open = starts_with_holder(offer, holder);
    const bool ours = same(view(holder), me);
    const auto leave = [&] {
        if (redis.number(11, {"decr", W}) <= 0) redis.call(11, {"del", W});
    };
    const auto lengthen = [&] {
        const double left = redis.number(14, {"pttl", W});
        if (redis.less(14, left, lua_run::to_number(lease))) redis.call(14, {"pexpire", W, lease});
    };
    if (holder && !ours && !open) {
        if (same(place, "join")) {
            redis.call(18, {"incr", W});
            lengthen();
        } else if (same(place, "quit") && waiters) {
            leave();
        } else {
            if (same(place, "stay")) lengthen();
            redis.ask_whether_readonly(24);
        }
        if (offer) redis.call(27, {"del", B});
        return reply::array({reply::integer(0), lua_run::returned(redis.number(28, {"pttl", K}))});
    }
    const double now = redis.now();
    lua_string fence = "";
    if (F && !same(redis.argv(4), "0")) {
        fence = redis.text(34, {"get", F});
        const bool last = is_fence(fence);
        if (!ours || !last || same(place, "adopt")) {
            if (last && not_before(fence, now)) {
                redis.call(38, {"incrby", F, "1000000"});
                redis.call(39, {"pexpire", F, redis.argv(4)});
            } else {
                redis.call(41, {"set", F, whole_text(now), "PX", redis.argv(4)});
            }
            fence = redis.text(43, {"get", F});
        }
    }
    if (ours) {
        redis.call(47, {"pexpire", K, lease});
    } else {
        redis.call(49, {"set", K, me, "PX", lease});
    }
    if (redis.keys(5) && !same(redis.argv(5), "")) {
        const std::string who = "\n" + std::string(redis.joined(51, redis.argv(5)));
        redis.call(51, {"set", redis.keys(5), std::string(redis.joined(51, me)) + who, "PX", lease});
    }
    if (!ours) {
        const bool in_line = same(place, "stay") || same(place, "quit");
        if (open && !in_line) {
            const double since = since_of(*offer);
            if (since > 0 && now - since > 1'000'000) {
                redis.call(58, {"del", W});
            } else if (since > 0) {
                redis.call(60, {"incr", W});
                if (redis.number(61, {"pttl", W}) < 0) {
                    const double half = redis.operand(62, lease) / 2;
                    redis.call(62, {"pexpire", W, lua_text(std::ceil(half < 2000 ? half : 2000))});
                }
            }
        } else if (!open && in_line && waiters) {
            leave();
        }
    }
    if (offer) redis.call(69, {"del", B});
    return reply::array({reply::integer(1), lua_run::returned(fence)});
}

inline reply handoff_pass(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto B = redis.keys(2);
    const auto W = redis.keys(3);
    const auto F = redis.keys(4);
    const auto lease = redis.argv(2);
    const auto life = redis.argv(3);
    const auto seen = redis.call(6, {"mget", K, W});
    const auto holder = lua_run::text_of(seen.elements()[0]);
    const double waiters = lua_run::to_number(view(lua_run::text_of(seen.elements()[1]))).value_or(0);
    const auto what = redis.argv(4);
    const bool ours = same(view(holder), redis.argv(1));
    if (ours && waiters <= 0 && !what) {
        if (redis.keys(5)) redis.call(9, {"del", redis.keys(5)});
        return redis.call(10, {"del", K});
    }
    if (!holder) redis.call(12, {"get", K});
    if (what) {
        if (waiters > 0) {
            const double left = redis.number(14, {"pttl", W});
            if (redis.less(14, left, lua_run::to_number(lease))) redis.call(14, {"pexpire", W, lease});
        }
        if (holder) return lua_run::returned(redis.number(15, {"pttl", K}));
        if (waiters <= 0 && same(what, "look")) return reply::integer(-2);
    } else if (!holder) {
        return redis.call(18, {"del", K});
    } else if (!ours) {
        redis.ask_whether_readonly(20);
        return reply::integer(-1);
    }
    redis.call(25, {"lindex", B, "0"});
    const double now = redis.now();
    std::string since = whole_text(now);
    lua_string fence = "";
    if (F && !same(life, "0")) {
        fence = redis.text(31, {"get", F});
        const bool last = is_fence(fence);
        if (last && not_before(fence, now)) {
            redis.call(34, {"incrby", F, "1000000"});
            redis.call(35, {"pexpire", F, life});
        } else {
            redis.call(37, {"set", F, since, "PX", life});
        }
        fence = redis.text(39, {"get", F});
    }
    const auto digest = distlock::detail::sha1_hex(std::string(redis.joined(41, redis.argv(1))) + since);
    const std::string token(digest.data(), 32);
    const double half = redis.operand(42, lease) / 2;
    const double given_back = std::ceil(half < 2000 ? half : 2000);
    const double left = redis.number(43, {"pttl", W});
    if (left <= given_back / 2) since = "0";
    redis.call(45, {"set", K, token, "PX", lease});
    if (waiters > 1 || (waiters == 1 && left > 0 && left <= given_back)) {
        redis.call(47, {"decr", W});
    } else {
        redis.call(49, {"del", W});
    }
    if (redis.keys(5)) redis.call(51, {"del", redis.keys(5)});
    if (!fence) redis.fail(52, "attempt to concatenate local 'fence' (a boolean value)");
    const std::string offer = token + ":" + std::string(*lease) + ":" + since + ":" + *fence;
    if (redis.number(53, {"rpush", B, offer}) > 1) {
        redis.call(54, {"del", B});
        redis.call(55, {"rpush", B, offer});
    }
    redis.call(57, {"pexpire", B, lease});
    if (what) return lua_run::returned(*lua_run::to_number(lease));
    return reply::integer(2);
}

inline reply handoff_leave(lua_run& redis) {
    const auto K = redis.keys(1);
    const auto B = redis.keys(2);
    const auto W = redis.keys(3);
    const auto offer = redis.text(3, {"lindex", B, "0"});
    const auto counted = redis.text(4, {"get", W});
    const auto waiters = counted ? lua_number(*counted) : std::optional<double>(0);
    if (redis.less(4, 0, waiters)) {
        if (redis.number(5, {"decr", W}) <= 0) redis.call(5, {"del", W});
    } else if (offer) {
        const auto holder = redis.text(6, {"get", K});
        if (starts_with_holder(offer, holder)) {
            redis.call(7, {"del", K, B});
            return reply::integer(1);
        }
    }
    return reply::integer(0);
}

struct twin {
    const distlock::script* script;
    reply (*run)(lua_run&);
};
inline constexpr std::array twins{
    twin{&distlock::detail::handoff_enter, handoff_enter},
    twin{&distlock::detail::handoff_pass, handoff_pass},
    twin{&distlock::detail::handoff_leave, handoff_leave},
    twin{&distlock::detail::plain_look, plain_look},
    twin{&distlock::detail::plain_look_beside, plain_look_beside},
    twin{&distlock::detail::plain_renew, plain_renew},
    twin{&distlock::detail::plain_release, plain_release},
};

}  // namespace lua

inline constexpr std::size_t script_count = lua::twins.size();
inline const distlock::script& known_script(std::size_t which) { return *lua::twins[which].script; }
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
