// Asking a server, step by step; compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/examination.hpp>
#include <distlock/wire/examination_questions.hpp>
#include <distlock/wire/examination_report.hpp>
#include <distlock/wire/examined.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>
#include <distlock/wire/server_facts.hpp>

namespace distlock::detail {

DISTLOCK_INLINE examination::examination(const diagnose_options& options, abilities can,
                                         std::string_view random)
    : lock_(options.prefix + "diagnose-" + std::string(random)),
      queue_(lock_.sibling("queue")),
      fence_(lock_.sibling("fence")),
      owner_(lock_.sibling("owner")),
      channel_((can.shard ? "{" + std::string(hash_tag(lock_.name())) + "}:distlock:" : "distlock:") +
               std::string(random.substr(0, 16))),
      found_{.options = options, .can = can} {
    found_.needs.resize(asked_for::needs.size());
}

DISTLOCK_INLINE void examination::ask(std::string_view words,
                                      std::initializer_list<std::string_view> before_them) {
    std::vector<argument> all(before_them.begin(), before_them.end());
    while (!words.empty()) {
        const auto end = std::min(words.find(' '), words.size());
        const auto one = words.substr(0, end);
        words.remove_prefix(std::min(end + 1, words.size()));
        all.emplace_back(one == "$K"   ? lock_.name()
                         : one == "$Q" ? queue_
                         : one == "$F" ? fence_
                         : one == "$O" ? owner_
                         : one == "$C" ? channel_
                                       : one);
    }
    asked_.push_back(command::of(all, lock_.name()));
}

DISTLOCK_INLINE std::span<const command> examination::questions() {
    using asked_for::needs;
    asked_.clear();
    trial_.clear();
    if (stage_ == stage::facts) {
        for (const auto words : asked_for::facts) ask(words);
    } else if (stage_ == stage::dry_run) {
        for (std::size_t i = 0; i < needs.size(); ++i) {
            if (!found_.applies(i)) continue;
            trial_.push_back(i);
            ask(needs[i].words, {"ACL", "DRYRUN", found_.user});
        }
        if (may_write()) ask(needs.front().words);
    } else if (stage_ == stage::trial) {
        for (std::size_t i = 0; i < needs.size(); ++i) {
            if (!found_.applies(i) || needs[i].only_dry) continue;
            trial_.push_back(i);
            ask(needs[i].words);
        }
    }
    return asked_;
}

DISTLOCK_INLINE void examination::on_answers(std::span<const reply> replies, wall_time before,
                                             wall_time after) {
    switch (stage_) {
        case stage::facts:
            found_.before = before;
            found_.after = after;
            return on_facts(replies);
        case stage::dry_run:
            return on_dry_run(replies);
        case stage::trial:
            return on_trial(replies);
        case stage::over:
            return;
    }
}

DISTLOCK_INLINE void examination::on_facts(std::span<const reply> replies) {
    found_.facts.assign(replies.begin(), replies.end());
    found_.facts.resize(asked_for::facts.size());
    admitted_ = refused_or_silent() == nullptr;
    const reply& user = found_.facts[asked_for::who_am_i];
    if (user.is(reply_kind::string) || user.is(reply_kind::status)) found_.user = user.text();
    if (!admitted_ || found_.standing() == examined::role::sentinel) {
        stage_ = stage::over;
    } else {
        stage_ = !found_.user.empty() ? stage::dry_run : may_write() ? stage::trial : stage::over;
    }
}

// Returns: the answer that says that the server does not talk with this user, or not at all; null: it does.
DISTLOCK_INLINE const reply* examination::refused_or_silent() const noexcept {
    bool silent = true;
    for (const reply& one : found_.facts) {
        silent = silent && !one.answered();
        const bool error = one.is(reply_kind::error);
        if (error && classify_error(one.said()).cause == errc::authentication_failed) return &one;
    }
    return silent ? &found_.facts.front() : nullptr;
}

// A replica is not written to, not even in vain: connections that follow a master would look for another.
DISTLOCK_INLINE bool examination::may_write() const noexcept {
    const auto role = found_.standing();
    return role == examined::role::master || role == examined::role::unknown;
}

// Servers say "to run the 'get' command", or "to access" a key or a channel.
inline examined::tried refused_by(const reply& answer) {
    const bool about_name = answer.said().find("to access") != std::string::npos;
    return {examined::verdict::refused, answer.text(), about_name};
}

DISTLOCK_INLINE void examination::on_dry_run(std::span<const reply> replies) {
    bool all = true;
    for (std::size_t k = 0; k < trial_.size(); ++k) {
        const reply& said = replies[k];
        examined::tried& one = found_.needs[trial_[k]];
        if (said.is_status("OK") || said.is_string("OK")) {
            one = {examined::verdict::permitted};
        } else if (said.is(reply_kind::string) || said.is(reply_kind::status)) {
            one = refused_by(said);
        } else if (said.is(reply_kind::error) && said.said().find("not found") != std::string::npos &&
                   said.said().find("ser '") == std::string::npos) {
            one = {examined::verdict::unsupported, said.text()};
        } else {
            all = false;
        }
    }
    if (may_write()) found_.write = replies[trial_.size()];
    stage_ = !all && may_write() ? stage::trial : stage::over;
}

DISTLOCK_INLINE void examination::on_trial(std::span<const reply> replies) {
    for (std::size_t k = 0; k < trial_.size(); ++k) {
        const reply& said = replies[k];
        examined::tried& one = found_.needs[trial_[k]];
        one = {examined::verdict::permitted};
        if (!said.answered()) {
            one = {examined::verdict::unanswered, said.text()};
        } else if (said.is(reply_kind::error)) {
            const auto cause = classify_error(said.said()).cause;
            if (cause == errc::permission_denied || cause == errc::authentication_failed)
                one = refused_by(said);
            if (cause == errc::unsupported_command ||
                said.said().find("nknown subcommand") != std::string::npos)
                one = {examined::verdict::unsupported, said.text()};
        }
    }
    found_.write = replies.front();
    stage_ = stage::over;
}

DISTLOCK_INLINE void examination::on_subscribed(bool confirmed, std::string_view why) {
    found_.subscribed = confirmed;
    found_.why_not = why;
}

DISTLOCK_INLINE diagnosis examination::conclude() const {
    if (found_.facts.empty()) return {};
    if (const reply* const why = refused_or_silent()) {
        const auto cause = why->answered() ? classify_error(why->said()).cause : why->cause();
        const bool silent = cause == errc::unreachable || cause == errc::no_reply;
        return diagnosis({{severity::problem, "server",
                           error(cause, (silent ? "not answered: " : "") + printable(why->text())).what()}});
    }
    return examination_report(found_).all();
}

}  // namespace distlock::detail
