// The keys of the model server, strings, sorted sets and hashes, and the commands on them that a
// script may call too.
//
//   class dataset {
//     reply run(std::span<const std::string_view> argv, std::chrono::microseconds now);
//     static bool knows(std::string_view command);
//     get, exists, pttl, sorted_set, keys                                // looks, free of side effects
//   };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <distlock/wire/reply.hpp>

#include "model/simulator/model_text.hpp"

namespace sim {

class dataset {
  public:
    using reply = distlock::reply;
    using arguments = std::span<const std::string_view>;  // the command's own name first
    using wall = std::chrono::microseconds;
    /// Of a sorted set: by score, then by name.
    using member = std::pair<double, std::string>;
    using sorted = std::vector<member>;

    static bool knows(std::string_view command) { return find(command) != nullptr; }

    /// Effects: one command. A key that is past its deadline is deleted when it is looked at.
    /// Preconditions: knows(argv[0]).
    reply run(arguments argv, wall now) {
        now_ = now;
        now_ms_ = in_ms(now);
        const verb& which = *find(argv[0]);
        const auto least = static_cast<std::size_t>(which.arity < 0 ? -which.arity : which.arity);
        if (argv.size() < least || (which.arity > 0 && argv.size() > least))
            return wrong_arguments(which.name);
        return (this->*which.action)(argv);
    }

    void clear() { keys_.clear(); }
    /// Effects: deletes all keys that are past their deadline.
    void expire(wall now) {
        if (in_ms(now) <= first_deadline_) return;
        now_ms_ = in_ms(now);
        std::erase_if(keys_, [&](const auto& item) { return past(item.second); });
        first_deadline_ = std::numeric_limits<std::int64_t>::max();
        for (const auto& [key, value] : keys_) note(value.deadline);
    }

    std::optional<std::string> get(std::string_view key, wall now) const {
        const entry* const found = peek(key, now);
        return found == nullptr || !found->is(type::text) ? std::nullopt : std::optional(found->text);
    }
    bool exists(std::string_view key, wall now) const { return peek(key, now) != nullptr; }
    std::int64_t pttl(std::string_view key, wall now) const {
        const entry* const found = peek(key, now);
        if (found == nullptr) return -2;
        return found->deadline < 0 ? -1 : found->deadline - in_ms(now);
    }
    /// Returns: the members by rank; empty also for what is no sorted set.
    sorted sorted_set(std::string_view key, wall now) const {
        const entry* const found = peek(key, now);
        return found == nullptr ? sorted{} : found->members;
    }
    std::vector<std::string> keys(wall now) const {
        std::vector<std::string> names;
        for (const auto& [key, value] : keys_) {
            if (!past(value, in_ms(now))) names.push_back(key);
        }
        std::sort(names.begin(), names.end());
        return names;
    }

  private:
    enum class type { text, sorted_set, table };
    struct entry {
        bool is(type which) const { return what == which; }

        type what = type::text;
        std::int64_t deadline = -1;  // ms since the epoch; -1: none
        std::string text;
        sorted members;
        std::map<std::string, std::string, std::less<>> fields;
    };
    struct hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
    };
    struct verb {
        std::string_view name;
        int arity;  // as the server counts: the name is one; negative: or more
        reply (dataset::*action)(arguments);
    };

    static std::int64_t in_ms(wall now) { return std::chrono::floor<std::chrono::milliseconds>(now).count(); }
    static bool past(const entry& value, std::int64_t now_ms) {
        return value.deadline >= 0 && now_ms > value.deadline;
    }
    bool past(const entry& value) const { return past(value, now_ms_); }
    void note(std::int64_t deadline) {
        if (deadline >= 0) first_deadline_ = std::min(first_deadline_, deadline);
    }
    const entry* peek(std::string_view key, wall now) const {
        const auto found = keys_.find(key);
        return found == keys_.end() || past(found->second, in_ms(now)) ? nullptr : &found->second;
    }
    entry* look_up(std::string_view key) {
        const auto found = keys_.find(key);
        if (found == keys_.end()) return nullptr;
        if (!past(found->second)) return &found->second;
        keys_.erase(found);
        return nullptr;
    }
    bool remove(std::string_view key) {
        if (look_up(key) == nullptr) return false;
        keys_.erase(keys_.find(key));
        return true;
    }
    void expire_at(entry& value, std::int64_t deadline) {
        value.deadline = deadline;
        note(deadline);
    }
    static sorted::iterator find_member(sorted& in, std::string_view name) {
        return std::find_if(in.begin(), in.end(), [&](const member& one) { return one.second == name; });
    }
    static void insert(sorted& into, member one) {
        const auto place = std::upper_bound(into.begin(), into.end(), one);
        into.insert(place, std::move(one));
    }

    // SET key value [NX|XX] [GET] [EX s|PX ms|KEEPTTL]
    reply set(arguments argv) {
        bool only_new = false;
        bool only_old = false;
        bool get = false;
        bool keep = false;
        bool seconds = false;
        std::optional<std::string_view> time;
        for (std::size_t i = 3; i < argv.size(); ++i) {
            const bool more = i + 1 < argv.size();
            if (same_word(argv[i], "nx") && !only_old) {
                only_new = true;
            } else if (same_word(argv[i], "xx") && !only_new) {
                only_old = true;
            } else if (same_word(argv[i], "get")) {
                get = true;
            } else if (same_word(argv[i], "keepttl") && !time) {
                keep = true;
            } else if (more && !keep && same_word(argv[i], time && seconds ? "ex" : "px")) {
                time = argv[++i];
            } else if (more && !keep && !time && same_word(argv[i], "ex")) {
                seconds = true;
                time = argv[++i];
            } else {
                return reply::error(error_text::syntax);
            }
        }
        std::int64_t deadline = -1;
        if (time) {
            const auto life = read_integer(*time);
            if (!life) return reply::error(error_text::not_an_integer);
            constexpr auto most = std::numeric_limits<std::int64_t>::max();
            const std::int64_t unit = seconds ? 1000 : 1;
            if (*life <= 0 || *life > most / unit || *life * unit > most - now_ms_)
                return reply::error("ERR invalid expire time in 'set' command");
            deadline = *life * unit + now_ms_;
        }
        entry* found = look_up(argv[1]);
        reply before;
        if (get && found != nullptr) {
            if (!found->is(type::text)) return reply::error(error_text::wrong_type);
            before = reply::string(found->text);
        }
        if ((only_new && found != nullptr) || (only_old && found == nullptr)) return before;
        if (found == nullptr) found = &keys_.try_emplace(std::string(argv[1])).first->second;
        found->what = type::text;
        found->members.clear();
        found->fields.clear();
        found->text.assign(argv[2]);
        if (!keep) expire_at(*found, deadline);
        return get ? before : reply::status("OK");
    }
    reply get(arguments argv) {
        const entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::nil();
        return found->is(type::text) ? reply::string(found->text) : reply::error(error_text::wrong_type);
    }
    reply mget(arguments argv) {
        reply all = reply::array_of(argv.size() - 1);
        for (std::size_t i = 1; i < argv.size(); ++i) {
            const entry* const found = look_up(argv[i]);
            if (found != nullptr && found->is(type::text)) {
                all.elements()[i - 1].become(distlock::reply_kind::string, found->text);
            } else {
                all.elements()[i - 1] = reply::nil();
            }
        }
        return all;
    }
    reply del(arguments argv) {
        std::int64_t count = 0;
        for (const auto key : argv.subspan(1)) count += remove(key) ? 1 : 0;
        return reply::integer(count);
    }
    reply exists(arguments argv) {
        std::int64_t count = 0;
        for (const auto key : argv.subspan(1)) count += look_up(key) != nullptr ? 1 : 0;
        return reply::integer(count);
    }
    reply type_of(arguments argv) {
        const entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::status("none");
        if (found->is(type::text)) return reply::status("string");
        return reply::status(found->is(type::table) ? "hash" : "zset");
    }
    reply pttl(arguments argv) {
        const entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::integer(-2);
        return reply::integer(found->deadline < 0 ? -1 : found->deadline - now_ms_);
    }
    reply pexpire(arguments argv) {
        if (argv.size() > 3) return reply::error("ERR Unsupported option " + std::string(argv[3]));
        const auto life = read_integer(argv[2]);
        if (!life) return reply::error(error_text::not_an_integer);
        if (*life > std::numeric_limits<std::int64_t>::max() - now_ms_)
            return reply::error("ERR invalid expire time in 'pexpire' command");
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::integer(0);
        if (*life <= 0) {
            remove(argv[1]);
        } else {
            expire_at(*found, *life + now_ms_);
        }
        return reply::integer(1);
    }
    reply pexpireat(arguments argv) {
        if (argv.size() > 3) return reply::error("ERR Unsupported option " + std::string(argv[3]));
        const auto end = read_integer(argv[2]);
        if (!end) return reply::error(error_text::not_an_integer);
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::integer(0);
        if (*end <= now_ms_) {
            remove(argv[1]);
        } else {
            expire_at(*found, *end);
        }
        return reply::integer(1);
    }
    reply persist(arguments argv) {
        entry* const found = look_up(argv[1]);
        if (found == nullptr || found->deadline < 0) return reply::integer(0);
        found->deadline = -1;
        return reply::integer(1);
    }
    reply add(std::string_view key, std::int64_t more) {
        entry* found = look_up(key);
        std::int64_t value = 0;
        if (found != nullptr) {
            if (!found->is(type::text)) return reply::error(error_text::wrong_type);
            const auto old = read_integer(found->text);
            if (!old) return reply::error(error_text::not_an_integer);
            value = *old;
        }
        if (__builtin_add_overflow(value, more, &value)) return reply::error(error_text::overflow);
        if (found == nullptr) found = &keys_.try_emplace(std::string(key)).first->second;
        found->text = std::to_string(value);
        return reply::integer(value);
    }
    reply incr(arguments argv) { return add(argv[1], 1); }
    reply decr(arguments argv) { return add(argv[1], -1); }
    reply incrby(arguments argv) {
        const auto more = read_integer(argv[2]);
        return more ? add(argv[1], *more) : reply::error(error_text::not_an_integer);
    }
    reply time(arguments) {
        const auto us = now_.count();
        return reply::array(
            {reply::string(std::to_string(us / 1'000'000)), reply::string(std::to_string(us % 1'000'000))});
    }
    // ZADD key [NX|XX] score member...
    reply zadd(arguments argv) {
        bool only_new = false;
        bool only_old = false;
        std::size_t first = 2;
        for (; first < argv.size(); ++first) {
            if (same_word(argv[first], "nx")) {
                only_new = true;
            } else if (same_word(argv[first], "xx")) {
                only_old = true;
            } else {
                break;
            }
        }
        const auto pairs = argv.subspan(first);
        if (pairs.empty() || pairs.size() % 2 != 0) return reply::error(error_text::syntax);
        if (only_new && only_old)
            return reply::error("ERR XX and NX options at the same time are not compatible");
        for (std::size_t i = 0; i < pairs.size(); i += 2) {
            if (!read_score(pairs[i])) return reply::error("ERR value is not a valid float");
        }
        entry* found = look_up(argv[1]);
        if (found != nullptr && !found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        if (found == nullptr) {
            if (only_old) return reply::integer(0);
            found = &keys_.try_emplace(std::string(argv[1])).first->second;
            found->what = type::sorted_set;
        }
        std::int64_t added = 0;
        for (std::size_t i = 0; i < pairs.size(); i += 2) {
            const auto known = find_member(found->members, pairs[i + 1]);
            const bool is_new = known == found->members.end();
            if (is_new ? only_old : only_new) continue;
            if (!is_new) found->members.erase(known);
            insert(found->members, {*read_score(pairs[i]), std::string(pairs[i + 1])});
            if (is_new) ++added;
        }
        return reply::integer(added);
    }
    reply zrem(arguments argv) {
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::integer(0);
        if (!found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        std::int64_t removed = 0;
        for (const auto name : argv.subspan(2)) {
            const auto known = find_member(found->members, name);
            if (known == found->members.end()) continue;
            found->members.erase(known);
            ++removed;
        }
        if (found->members.empty()) remove(argv[1]);
        return reply::integer(removed);
    }
    // ZPOPMIN key
    reply zpopmin(arguments argv) {
        if (argv.size() > 3) return reply::error(error_text::syntax);
        std::int64_t count = 1;
        if (argv.size() == 3) {
            const auto asked = read_integer(argv[2]);
            if (!asked || *asked < 0) return reply::error(error_text::not_positive);
            count = *asked;
        }
        entry* const found = look_up(argv[1]);
        if (found != nullptr && !found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        std::vector<reply> popped;
        for (; found != nullptr && count > 0 && !found->members.empty(); --count) {
            add_scored(popped, found->members.front());
            found->members.erase(found->members.begin());
        }
        if (found != nullptr && found->members.empty()) remove(argv[1]);
        return reply::array(std::move(popped));
    }
    reply zscore(arguments argv) {
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::nil();
        if (!found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        const auto known = find_member(found->members, argv[2]);
        return known == found->members.end() ? reply::nil() : reply::string(score_text(known->first));
    }
    reply zrank(arguments argv) {
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::nil();
        if (!found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        const auto known = find_member(found->members, argv[2]);
        return known == found->members.end() ? reply::nil() : reply::integer(known - found->members.begin());
    }
    reply zcard(arguments argv) {
        const entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::integer(0);
        if (!found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        return reply::integer(static_cast<std::int64_t>(found->members.size()));
    }
    // ZRANGE key first last [WITHSCORES], by rank
    reply zrange(arguments argv) {
        const bool scored = argv.size() > 4;
        for (const auto word : argv.subspan(4)) {
            if (!same_word(word, "withscores")) return reply::error(error_text::syntax);
        }
        auto first = read_integer(argv[2]);
        auto last = read_integer(argv[3]);
        if (!first || !last) return reply::error(error_text::not_an_integer);
        const entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::array({});
        if (!found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        const auto size = static_cast<std::int64_t>(found->members.size());
        if (*first < 0) first = std::max<std::int64_t>(*first + size, 0);
        if (*last < 0) *last += size;
        last = std::min(*last, size - 1);
        std::vector<reply> range;
        for (auto i = *first; i <= *last; ++i) {
            const member& one = found->members[static_cast<std::size_t>(i)];
            if (scored) {
                add_scored(range, one);
            } else {
                range.push_back(reply::string(one.second));
            }
        }
        return reply::array(std::move(range));
    }
    // ZRANGEBYSCORE key -inf most; ZREMRANGEBYSCORE key -inf most
    sorted::iterator end_of_range(entry& of, double most) {
        return std::find_if(of.members.begin(), of.members.end(),
                            [&](const member& one) { return one.first > most; });
    }
    reply zrangebyscore(arguments argv) {
        const auto most = read_score(argv[3]);
        if (argv.size() > 4 || argv[2] != "-inf") return reply::error(error_text::syntax);
        if (!most) return reply::error(error_text::not_a_range);
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::array({});
        if (!found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        std::vector<reply> range;
        const auto end = end_of_range(*found, *most);
        for (auto one = found->members.begin(); one != end; ++one)
            range.push_back(reply::string(one->second));
        return reply::array(std::move(range));
    }
    reply zremrangebyscore(arguments argv) {
        const auto most = read_score(argv[3]);
        if (argv[2] != "-inf") return reply::error(error_text::syntax);
        if (!most) return reply::error(error_text::not_a_range);
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::integer(0);
        if (!found->is(type::sorted_set)) return reply::error(error_text::wrong_type);
        const auto end = end_of_range(*found, *most);
        const auto removed = end - found->members.begin();
        found->members.erase(found->members.begin(), end);
        if (found->members.empty()) remove(argv[1]);
        return reply::integer(removed);
    }
    reply hset(arguments argv) {
        if (argv.size() % 2 != 0) return wrong_arguments("hset");
        entry* found = look_up(argv[1]);
        if (found != nullptr && !found->is(type::table)) return reply::error(error_text::wrong_type);
        if (found == nullptr) found = &keys_.try_emplace(std::string(argv[1])).first->second;
        found->what = type::table;
        std::int64_t added = 0;
        for (std::size_t i = 2; i < argv.size(); i += 2)
            added += found->fields.insert_or_assign(std::string(argv[i]), std::string(argv[i + 1])).second;
        return reply::integer(added);
    }
    static reply field(const entry* of, std::string_view name) {
        if (of == nullptr) return reply::nil();
        const auto known = of->fields.find(name);
        return known == of->fields.end() ? reply::nil() : reply::string(known->second);
    }
    reply hget(arguments argv) {
        const entry* const found = look_up(argv[1]);
        if (found != nullptr && !found->is(type::table)) return reply::error(error_text::wrong_type);
        return field(found, argv[2]);
    }
    reply hmget(arguments argv) {
        const entry* const found = look_up(argv[1]);
        if (found != nullptr && !found->is(type::table)) return reply::error(error_text::wrong_type);
        std::vector<reply> all;
        for (const auto name : argv.subspan(2)) all.push_back(field(found, name));
        return reply::array(std::move(all));
    }
    reply hdel(arguments argv) {
        entry* const found = look_up(argv[1]);
        if (found == nullptr) return reply::integer(0);
        if (!found->is(type::table)) return reply::error(error_text::wrong_type);
        std::int64_t removed = 0;
        for (const auto name : argv.subspan(2)) {
            const auto known = found->fields.find(name);
            if (known == found->fields.end()) continue;
            found->fields.erase(known);
            ++removed;
        }
        if (found->fields.empty()) remove(argv[1]);
        return reply::integer(removed);
    }
    static void add_scored(std::vector<reply>& to, const member& one) {
        to.push_back(reply::string(one.second));
        to.push_back(reply::string(score_text(one.first)));
    }
    reply flushall(arguments argv) {
        const bool plain = argv.size() == 1;
        if (!plain && (argv.size() > 2 || (!same_word(argv[1], "async") && !same_word(argv[1], "sync"))))
            return reply::error(error_text::syntax);
        clear();
        return reply::status("OK");
    }
    static const verb* find(std::string_view command) {
        static constexpr std::array verbs{
            verb{"get", 2, &dataset::get},
            verb{"set", -3, &dataset::set},
            verb{"pttl", 2, &dataset::pttl},
            verb{"pexpire", -3, &dataset::pexpire},
            verb{"del", -2, &dataset::del},
            verb{"zrange", -4, &dataset::zrange},
            verb{"mget", -2, &dataset::mget},
            verb{"time", 1, &dataset::time},
            verb{"zadd", -4, &dataset::zadd},
            verb{"zrem", -3, &dataset::zrem},
            verb{"zscore", 3, &dataset::zscore},
            verb{"zrank", 3, &dataset::zrank},
            verb{"zcard", 2, &dataset::zcard},
            verb{"zpopmin", -2, &dataset::zpopmin},
            verb{"incr", 2, &dataset::incr},
            verb{"decr", 2, &dataset::decr},
            verb{"incrby", 3, &dataset::incrby},
            verb{"exists", -2, &dataset::exists},
            verb{"type", 2, &dataset::type_of},
            verb{"persist", 2, &dataset::persist},
            verb{"pexpireat", -3, &dataset::pexpireat},
            verb{"zrangebyscore", -4, &dataset::zrangebyscore},
            verb{"zremrangebyscore", 4, &dataset::zremrangebyscore},
            verb{"hset", -4, &dataset::hset},
            verb{"hget", 3, &dataset::hget},
            verb{"hmget", -3, &dataset::hmget},
            verb{"hdel", -3, &dataset::hdel},
            verb{"flushall", -1, &dataset::flushall},
        };
        for (const verb& one : verbs) {
            if (same_word(command, one.name)) return &one;
        }
        return nullptr;
    }

    std::unordered_map<std::string, entry, hash, std::equal_to<>> keys_;
    wall now_{};
    std::int64_t now_ms_ = 0;
    std::int64_t first_deadline_ = std::numeric_limits<std::int64_t>::max();  // no key's is earlier
};

}  // namespace sim
