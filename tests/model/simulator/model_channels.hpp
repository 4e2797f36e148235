// Who hears what at the model server: subscriptions to channels, of which those of shards have names of
// their own, and messages.
//
//   class channels {
//     static bool knows(command), publishes(command);
//     void run(who, argv); reply publish(argv); reply tell_count(argv);
//     take_messages(f);                // what came to the clients since, their confirmations too
//   };
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/wire/reply.hpp>

#include "model/simulator/model_text.hpp"

namespace sim {

class channels {
  public:
    using reply = distlock::reply;
    using arguments = std::span<const std::string_view>;
    using client = std::uint64_t;

    bool may_subscribe = true;
    bool may_publish = true;
    bool may_count = true;
    bool shards = true;  ///< the server knows SPUBLISH: since Redis 7

    /// Returns: whether it is (S)SUBSCRIBE or (S)UNSUBSCRIBE.
    bool knows(std::string_view command) const { return find(command) != nullptr; }
    /// Returns: whether it is (S)PUBLISH.
    bool publishes(std::string_view command) const {
        return same_word(command, "publish") || (shards && same_word(command, "spublish"));
    }
    bool subscribed(client who) const { return count(who, false) + count(who, true) > 0; }
    std::size_t count(client who, bool shard) const {
        const auto found = names_[shard].find(who);
        return found == names_[shard].end() ? 0 : found->second.size();
    }
    /// Returns: how many clients hear what is published there.
    std::int64_t listeners(std::string_view name, bool shard) const {
        return std::count_if(names_[shard].begin(), names_[shard].end(),
                             [&](const auto& one) { return has(one.second, name); });
    }

    /// Effects: (un)subscribes. Each channel is confirmed by a message.
    /// Preconditions: knows(argv[0]).
    void run(client who, arguments argv) {
        const verb& which = *find(argv[0]);
        if (which.begins && argv.size() < 2) return tell(who, wrong_arguments(which.name));
        if (which.begins && !may_subscribe) return tell(who, reply::error(error_text::no_channel));
        auto& mine = names_[which.shard][who];
        if (argv.size() == 1) {
            if (mine.empty()) confirm(who, which, reply::nil());
            while (!mine.empty()) {
                reply name = reply::string(mine.back());
                mine.pop_back();
                confirm(who, which, std::move(name));
            }
        }
        for (const auto name : argv.subspan(1)) {
            std::erase(mine, name);
            if (which.begins) mine.emplace_back(name);
            confirm(who, which, reply::string(std::string(name)));
        }
        if (mine.empty()) names_[which.shard].erase(who);
    }

    /// Preconditions: publishes(argv[0]).
    reply publish(arguments argv) {
        const bool shard = argv[0].size() == 8;
        if (argv.size() != 3) return wrong_arguments(shard ? "spublish" : "publish");
        if (!may_publish) return reply::error(error_text::no_channel);
        std::int64_t heard = 0;
        for (const auto& [who, names] : names_[shard]) {
            if (!has(names, argv[1])) continue;
            tell(who,
                 reply::array({reply::string(shard ? "smessage" : "message"),
                               reply::string(std::string(argv[1])), reply::string(std::string(argv[2]))}));
            ++heard;
        }
        return reply::integer(heard);
    }

    /// PUBSUB NUMSUB channel..., or SHARDNUMSUB.
    reply tell_count(arguments argv) const {
        if (argv.size() < 2) return wrong_arguments("pubsub");
        const bool shard = shards && same_word(argv[1], "shardnumsub");
        if (!shard && !same_word(argv[1], "numsub"))
            return reply::error("ERR unknown subcommand '" + std::string(argv[1].substr(0, 128)) +
                                "'. Try PUBSUB HELP.");
        if (!may_count)
            return reply::error("NOPERM this user has no permissions to run the 'pubsub|" + lower(argv[1]) +
                                "' command");
        std::vector<reply> counts;
        for (const auto name : argv.subspan(2)) {
            counts.push_back(reply::string(std::string(name)));
            counts.push_back(reply::integer(listeners(name, shard)));
        }
        return reply::array(std::move(counts));
    }

    /// Effects: f(client, reply) for each, in the order in which they came.
    template <class F>
    void take_messages(F f) {
        auto all = std::exchange(messages_, {});
        for (auto& [who, what] : all) f(who, std::move(what));
    }
    void disconnect(client who) {
        for (auto& names : names_) names.erase(who);
        std::erase_if(messages_, [&](const auto& one) { return one.first == who; });
    }
    /// Effects: nobody is connected any more.
    void clear() {
        for (auto& names : names_) names.clear();
        messages_.clear();
    }

  private:
    struct verb {
        std::string_view name;
        bool begins;
        bool shard;
    };

    const verb* find(std::string_view command) const {
        static constexpr std::array verbs{verb{"subscribe", true, false}, verb{"unsubscribe", false, false},
                                          verb{"ssubscribe", true, true}, verb{"sunsubscribe", false, true}};
        for (const verb& one : verbs) {
            if (same_word(command, one.name) && (shards || !one.shard)) return &one;
        }
        return nullptr;
    }
    static bool has(const std::vector<std::string>& names, std::string_view one) {
        return std::find(names.begin(), names.end(), one) != names.end();
    }
    void confirm(client who, const verb& which, reply name) {
        const auto left = static_cast<std::int64_t>(count(who, which.shard));
        tell(who,
             reply::array({reply::string(std::string(which.name)), std::move(name), reply::integer(left)}));
    }
    void tell(client who, reply what) { messages_.emplace_back(who, std::move(what)); }

    std::array<std::map<client, std::vector<std::string>>, 2> names_;  // of all; of shards
    std::vector<std::pair<client, reply>> messages_;
};

}  // namespace sim
