// Which master to believe in, of those that Sentinels name: decided without a socket or a clock.
//
//   struct believed_master { node_address at; std::uint64_t epoch; };
//   class sentinel_election {
//     sentinel_election(std::size_t asked, std::optional<believed_master> last, time_point deadline,
//         duration patience);
//     void add(sentinel_answer, time_point now);
//     bool decided() const;                  // what is still to come changes nothing
//     time_point until() const;              // longer nobody waits for the others
//     verdict conclude() const;
//     std::span<const sentinel_answer> answers() const;
//   };
//   succession compare(last, next);            // of two that were believed in, one after the other
//   reply explain(verdict, scheme, shown, name);   // to a caller, when none is believed
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/sentinel_answer.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

struct believed_master {
    node_address at;
    std::uint64_t epoch = 0;  ///< of the configuration in which it is the master

    friend bool operator==(const believed_master&, const believed_master&) = default;
};

enum class succession {
    same,   ///< the master stays
    again,  ///< it stays, but in a newer configuration: another server was the master in between
    other,  ///< another server is the master
};

/// Of one address the newest epoch counts. Sentinels that lag behind name it by an older one, and those
/// that may not say by 0.
inline succession compare(const believed_master& last, const believed_master& next) noexcept {
    if (last.at != next.at) return succession::other;
    return last.epoch != 0 && next.epoch > last.epoch ? succession::again : succession::same;
}

/// The Sentinels are asked all at once, and vote by naming an address; answers of one id that name the same
/// address are one Sentinel's, which is reached in several ways. Rules:
/// - an address that more than half of the Sentinels that were asked name is believed, whatever its epoch:
///   Sentinels that were all set up anew begin to count anew;
/// - else one of an older epoch than the last that was believed is not: a Sentinel that was cut
///   off, or lies, names it;
/// - else one that more than half of those that name any agree on;
/// - else the one of the highest epoch; of equal ones that with more votes, or that of the first Sentinel.
class sentinel_election {
  public:
    enum class kind {
        believed,
        outdated,      ///< only older masters than the last one are named
        unknown_name,  ///< Sentinels answer, and none knows the name
        refused,       ///< Sentinels answer, but not that question
        silent,        ///< no Sentinel answers
    };
    struct verdict {
        kind what = kind::silent;
        believed_master master = {};  ///< of believed
        /// Of refused and silent: the first that said so; null: nobody was heard in time.
        const sentinel_answer* why = nullptr;
    };

    /// `patience`: once a master was named, the other Sentinels have so long.
    sentinel_election(std::size_t asked, std::optional<believed_master> last, clock::time_point deadline,
                      clock::duration patience)
        : asked_(asked), last_(std::move(last)), until_(deadline), patience_(patience) {
        answers_.reserve(asked);
    }

    /// Preconditions: no more than were asked. Of a Sentinel that cannot be reached, too.
    void add(sentinel_answer answer, clock::time_point now) {
        if (answer.what == sentinel_answer::kind::names_master) until_ = std::min(until_, now + patience_);
        answers_.push_back(std::move(answer));
    }

    bool complete() const noexcept { return answers_.size() == asked_; }
    bool decided() const { return complete() || majority_of(voters(), {}) != nullptr; }

    clock::time_point until() const noexcept { return until_; }

    verdict conclude() const {
        if (const auto* const most = majority_of(voters(), {})) return believe(*most);
        const auto oldest = last_ ? last_->epoch : 0;
        const auto naming = count([&](const sentinel_answer& one) { return names(one) && !repeats(one); });
        if (const auto* const most = majority_of(naming, oldest)) return believe(*most);
        const sentinel_answer* best = nullptr;
        for (const sentinel_answer& one : answers_) {
            if (!names(one) || epoch_of(one.master) < oldest) continue;
            if (best == nullptr || rank(*best) < rank(one)) best = &one;
        }
        if (best != nullptr) return believe(*best);
        if (naming > 0) return {.what = kind::outdated};
        using heard = sentinel_answer::kind;
        if (first(heard::unknown_name) != nullptr) return {.what = kind::unknown_name};
        const auto* const refusal = first(heard::refused);
        const auto* const silent = first(heard::silent);
        // A certificate is often renewed on one after the other; those that are silent may be trusted.
        if (refusal != nullptr && (silent == nullptr || refusal->cause != errc::tls_failed))
            return {.what = kind::refused, .why = refusal};
        return {.what = kind::silent, .why = refusal != nullptr ? refusal : silent};
    }

    std::span<const sentinel_answer> answers() const noexcept { return answers_; }

  private:
    static bool names(const sentinel_answer& one) noexcept {
        return one.what == sentinel_answer::kind::names_master;
    }

    template <class Predicate>
    std::size_t count(Predicate which) const {
        return static_cast<std::size_t>(std::count_if(answers_.begin(), answers_.end(), which));
    }
    std::size_t votes_for(const node_address& who) const {
        return count(
            [&](const sentinel_answer& one) { return names(one) && one.master == who && !repeats(one); });
    }
    // Preconditions: it is one of answers_.
    bool repeats(const sentinel_answer& one) const {
        return std::any_of(answers_.data(), &one,
                           [&](const sentinel_answer& before) { return same_vote(before, one); });
    }
    std::size_t voters() const {
        return asked_ - count([&](const sentinel_answer& one) { return repeats(one); });
    }
    // One that lags behind may name the right master by an older epoch.
    std::uint64_t epoch_of(const node_address& who) const {
        std::uint64_t newest = 0;
        for (const sentinel_answer& one : answers_) {
            if (names(one) && one.master == who) newest = std::max(newest, one.epoch);
        }
        return newest;
    }
    std::pair<std::uint64_t, std::size_t> rank(const sentinel_answer& one) const {
        return {epoch_of(one.master), votes_for(one.master)};
    }

    // Returns: one of the answers of more than half of so many that name the same master, of
    // that epoch at least.
    const sentinel_answer* majority_of(std::size_t voters, std::uint64_t oldest) const {
        for (const sentinel_answer& one : answers_) {
            if (names(one) && 2 * votes_for(one.master) > voters && epoch_of(one.master) >= oldest)
                return &one;
        }
        return nullptr;
    }
    const sentinel_answer* first(sentinel_answer::kind what) const noexcept {
        const auto found = std::find_if(answers_.begin(), answers_.end(),
                                        [&](const sentinel_answer& one) { return one.what == what; });
        return found == answers_.end() ? nullptr : &*found;
    }

    verdict believe(const sentinel_answer& one) const {
        return {.what = kind::believed, .master = {one.master, epoch_of(one.master)}};
    }

    std::size_t asked_;
    std::optional<believed_master> last_;
    clock::time_point until_;
    clock::duration patience_;
    std::vector<sentinel_answer> answers_;
};

/// Returns: what a caller is told when no master is believed in. `shown`: the URI, fit for messages, and
/// `scheme` that of the servers it leads to.
inline reply explain(const sentinel_election::verdict& said, uri_scheme scheme, const std::string& shown,
                     const std::string& name) {
    using kind = sentinel_election::kind;
    const std::string why =
        said.why != nullptr && !said.why->detail.empty() ? " (" + said.why->detail + ")" : "";
    const auto what_to_do = [&]() -> std::string {
        if (said.why->cause == errc::unsupported_command)
            return detail::concat(
                {"; it is none: use ", detail::scheme_name(scheme), "://, or a Sentinel's port"});
        if (said.why->cause != errc::authentication_failed) return "";
        const bool none_given = said.why->detail.find("NOAUTH") != std::string::npos;
        return none_given ? "; give its password as ?sentinel_password=" : "; check ?sentinel_password=";
    };
    switch (said.what) {
        case kind::unknown_name:
            return reply::not_sent(errc::unreachable, shown +
                                                          ": no Sentinel that answers knows a master named " +
                                                          name + "; check the name in the URI");
        case kind::refused:
            return reply::not_sent(said.why->cause,
                                   shown + ": no Sentinel says who the master is" + why + what_to_do());
        case kind::outdated:
            return reply::not_sent(
                errc::unavailable,
                shown +
                    ": the Sentinels that answer name only an old master; check that they reach each other");
        case kind::silent:
        case kind::believed:
            break;
    }
    return reply::not_sent(errc::unreachable, shown + ": no Sentinel answers" + why);
}

}  // namespace distlock
