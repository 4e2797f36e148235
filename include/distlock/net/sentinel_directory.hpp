// Which Sentinels to ask: those of the URI, and those that most of them name.
//
//   class sentinel_directory {
//     explicit sentinel_directory(std::vector<node_address> of_the_uri);
//     const std::vector<node_address>& all() const noexcept;          // those of the URI first
//     void learn(answers, const node_address& master);
//   };
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <distlock/net/node_address.hpp>
#include <distlock/net/sentinel_answer.hpp>

namespace distlock {

/// Those of the URI are always asked, others beside them: those that more than half of the URI's Sentinels
/// name, together with the right master. A liar could outvote them by many of its kind. As long as fewer
/// answer, the others stay. A Sentinel has one vote, however it is reached: one that answers by the name in
/// the URI is not asked by its address, too.
class sentinel_directory {
  public:
    static constexpr std::size_t most = 32;

    explicit sentinel_directory(std::vector<node_address> of_the_uri)
        : of_the_uri_(of_the_uri.size()), all_(std::move(of_the_uri)), ids_(of_the_uri_) {}

    const std::vector<node_address>& all() const noexcept { return all_; }

    /// `answers`: of all() or some of them, each with its place. `master`: the one that is believed in.
    /// Throws: std::bad_alloc; nothing was learned then.
    void learn(std::span<const sentinel_answer> answers, const node_address& master) {
        sentinel_directory next = *this;
        next.take_in(answers, master);
        *this = std::move(next);
    }

  private:
    void take_in(std::span<const sentinel_answer> answers, const node_address& master) {
        const auto trusted = [&](const sentinel_answer& one) {
            return one.what == sentinel_answer::kind::names_master && one.master == master;
        };
        for (const sentinel_answer& one : answers) {
            if (trusted(one) && !one.id.empty()) ids_[one.place] = one.id;
        }
        std::vector<const sentinel_answer*> told;  // by Sentinels of the URI
        std::size_t voters = of_the_uri_;
        for (const sentinel_answer& one : answers) {
            if (!trusted(one) || one.place >= of_the_uri_) continue;
            const auto same = [&](const sentinel_answer* before) { return same_vote(*before, one); };
            if (std::any_of(told.begin(), told.end(), same)) {
                --voters;
            } else {
                told.push_back(&one);
            }
        }
        const auto most_of_the_uri = [&](auto so_many) {
            return 2 * static_cast<std::size_t>(so_many) > voters;
        };
        if (!most_of_the_uri(told.size())) return;
        all_.resize(of_the_uri_);
        ids_.resize(of_the_uri_);
        for (const sentinel_answer* const one : told) {
            for (const known_sentinel& other : one->others) {
                const auto names = [&](const sentinel_answer* by) {
                    return std::any_of(by->others.begin(), by->others.end(),
                                       [&](const known_sentinel& it) { return it.at == other.at; });
                };
                if (all_.size() >= most || knows(other)) continue;
                if (!most_of_the_uri(std::count_if(told.begin(), told.end(), names))) continue;
                all_.push_back(other.at);
                ids_.push_back(other.id);
            }
        }
    }

    bool knows(const known_sentinel& one) const {
        const bool by_id = !one.id.empty() && std::find(ids_.begin(), ids_.end(), one.id) != ids_.end();
        return by_id || std::find(all_.begin(), all_.end(), one.at) != all_.end();
    }

    std::size_t of_the_uri_;  // so many come first
    std::vector<node_address> all_;
    std::vector<std::string> ids_;  // of all_, as far as they are known
};

}  // namespace distlock
