// The server's own order of commands, replayed through a state machine of one lock in the default dialect:
// who may change its key.
//
//   class server_order;
//       // a second opinion beside testing::check_history: it does not ask what clients believed
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/plain.hpp>

#include "fault/monitor.hpp"

/// A server executes one command after the other: its MONITOR is the order in which a lock changed hands.
class server_order {
    using time = std::chrono::microseconds;

  public:
    /// Effects: replays what concerns the lock `name`.
    server_order(std::string name, const std::vector<monitor::entry>& commands)
        : lock_(std::move(name)), beside_("{" + lock_ + "}:distlock:") {
        for (const monitor::entry& e : commands) {
            now_ = e.at;
            if (e.command.size() > 1) take(e.command);
        }
    }

    /// Returns: what nobody was allowed to do, a line each.
    const std::string& violations() const { return violations_; }
    /// Returns: the fences that were issued, and the tokens of those whose script issued them.
    const std::map<std::uint64_t, std::string>& fences() const { return fences_; }
    /// Returns: how often the key was set to a new owner, and freed or handed on by its owner.
    int grants() const { return grants_; }
    int releases() const { return releases_; }

  private:
    enum class call { other, take, enter, leave, free, renew };

    void take(const monitor::words& w) {
        if (w[0] == "lua") return inside({w.begin() + 1, w.end()});
        call_ = call::other;
        if ((w[0] == "EVALSHA" || w[0] == "EVAL") && w.size() > 3 && w[3] == lock_) return begin(w);
        if (w[1] != lock_) return;
        if (w[0] == "SET" && w.size() == 6 && w[3] == "NX") {
            if (free()) own(w[2], w[5]);
        } else if (w[0] == "DEL" || w[0] == "SET") {
            owner_.clear();  // somebody's who may: an operator's
        }
    }

    void begin(const monitor::words& w) {
        using namespace distlock::detail;
        const auto is = [&](const distlock::script& s) { return w[1] == s.sha1() || w[1] == s.text(); };
        const auto first = 3 + static_cast<std::size_t>(std::strtoul(w[2].c_str(), nullptr, 10));
        token_ = first < w.size() ? w[first] : "";
        fence_ = 0;
        if (is(handoff_enter)) call_ = call::enter;
        if (is(plain_look_with_siblings)) call_ = call::take;
        if (is(handoff_leave)) call_ = call::leave;
        if (is(plain_release)) call_ = call::free;
        if (is(plain_renew)) call_ = call::renew;
        may_give_ = takes() ? free() : call_ == call::leave && owner_ == token_;
    }

    // What was there before the first command is not known: nothing is said until the key was
    // set or deleted once.
    void inside(const monitor::words& w) {
        if (call_ == call::other || w.size() < 2) return;
        const std::string& key = w[1];
        if (key == beside_ + "fence") return fence(w);
        if (key == beside_ + "queue") return queue(w);
        if (key != lock_) return;
        if (w[0] == "set") return set(w);
        if (w[0] == "del") return remove();
        if (w[0] == "pexpire" && owner_ != token_) say("is prolonged by another than its owner");
        if (w[0] == "pexpire") gone_by_ = now_ + std::chrono::milliseconds(number(w[2]));
    }

    // Tickets from before the first command are not known: they are removed once, or never seen.
    void queue(const monitor::words& w) {
        if (w[0] == "zadd") {
            if (!w[4].starts_with(token_)) say("is waited for with somebody else's token");
            const auto has = [&](const auto& one) { return one.second == w[4]; };
            if (std::any_of(tickets_.begin(), tickets_.end(), has)) return;  // NX: it joins again
            const auto score = static_cast<std::uint64_t>(number(w[3]));
            if (!tickets_.empty() && score <= tickets_.rbegin()->first)
                say("is waited for by a ticket out of order");
            tickets_[score] = w[4];
        } else if (w[0] == "zrem") {
            const auto at = std::find_if(tickets_.begin(), tickets_.end(),
                                         [&](const auto& one) { return one.second == w[2]; });
            if (at == tickets_.end()) return;
            if (at != tickets_.begin() && !w[2].starts_with(token_))
                say("loses a ticket that is not the first");
            tickets_.erase(at);
        }
    }

    void set(const monitor::words& w) {
        if (w[2].empty()) {  // the question whether this is a replica
            if (free()) say("is free, and is asked for as if it were not");
            return;
        }
        if (call_ == call::free || call_ == call::renew) say("is set by a script that must not");
        if (takes() && !may_give_) say("is given away although it is owned");
        if (call_ == call::leave && !may_give_) say("is handed on by another than its owner");
        if (call_ == call::leave && w[2] == token_) say("is taken by a release");
        // Known tickets stand behind those that are not.
        const bool waits = std::any_of(tickets_.begin(), tickets_.end(),
                                       [&](const auto& one) { return one.second.starts_with(w[2]); });
        const bool first = !tickets_.empty() && tickets_.begin()->second.starts_with(w[2]);
        if (call_ != call::take && !first && (waits || (w[2] == token_ && !tickets_.empty())))
            say("is given to one who is not the first");
        releases_ += call_ == call::leave;
        own(w[2], w[4]);
    }

    void remove() {
        if (!free() && owner_ != token_) say("is freed by another than its owner");
        if (call_ == call::leave && !tickets_.empty()) say("is freed although somebody waits");
        releases_ += !free();
        known_ = true;
        owner_.clear();
    }

    void fence(const monitor::words& w) {
        if (w[0] == "set") fence_ = static_cast<std::uint64_t>(number(w[2]));
        if (w[0] == "incrby") fence_ = last_fence_ + static_cast<std::uint64_t>(number(w[2]));
        if (fence_ == 0 || w[0] == "pexpire" || w[0] == "get") return;
        if (fence_ <= last_fence_) say("has a fence that does not grow");
        last_fence_ = fence_;
        fences_[fence_] = token_;
    }

    void own(const std::string& token, const std::string& ttl) {
        if (token != owner_ && std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end())
            say("is owned by a token that has been used before");
        if (token != owner_) {
            ++grants_;
            tokens_.push_back(token);
        }
        known_ = true;
        owner_ = token;
        gone_by_ = now_ + std::chrono::milliseconds(number(ttl));
    }

    bool takes() const { return call_ == call::enter || call_ == call::take; }

    // The time of a command is that of its beginning, and an expiry is in whole milliseconds.
    bool free() const { return owner_.empty() || now_ + std::chrono::milliseconds(2) > gone_by_; }

    static long long number(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

    void say(const char* what) {
        if (!known_) return;
        violations_ += std::to_string(now_.count()) + ": " + lock_ + ' ' + what + " (" + owner_ +
                       ", asked by " + token_ + ")\n";
    }

    const std::string lock_;
    const std::string beside_;
    time now_{};
    call call_ = call::other;
    std::string token_;  // of the script that runs
    std::uint64_t fence_ = 0;
    std::string owner_;
    time gone_by_{};
    bool may_give_ = false;                         // the script that runs
    std::map<std::uint64_t, std::string> tickets_;  // by their numbers
    std::uint64_t last_fence_ = 0;
    std::vector<std::string> tokens_;
    std::map<std::uint64_t, std::string> fences_;
    bool known_ = false;
    int grants_ = 0;
    int releases_ = 0;
    std::string violations_;
};
