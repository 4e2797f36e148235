// What must hold, looked at from where nobody in the simulated world can stand: true time, the server's keys,
// and what every thread believes at once.
//
//   class lock_view;                                   // one lock object, asked without a word to the server
//   class checks {                                     // a witness of the server
//     hold& begin(...); let_go(hold&); end(hold&, outcome);
//         // a thread has the lock; before and after unlock()
//     void look();                                     // after everything that happens
//     void forget(name);                               // a declared loss of the server's data
//     void nothing_left();                             // at the end
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <distlock/base/key.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/ticket.hpp>

#include "model/simulator/server.hpp"

namespace sim {

class lock_view {
  public:
    /// Returns: until when that acquisition is believed, by the clock of its process; zero: not at all.
    virtual nanos valid_until(std::uint64_t serial) const = 0;

  protected:
    ~lock_view() = default;
};

/// The lock as one thread has it.
struct hold {
    process* who = nullptr;
    const lock_view* lock = nullptr;
    std::size_t name = 0;
    std::uint64_t serial = 0;
    std::string token;        // by which the server knows it
    bool sure = false;        // that the token is known
    bool ours = false;        // it was still believed when unlock() was called
    std::stop_token lost;     // if it was asked for
    nanos believed_until{0};  // the end that was seen last, in true time
    nanos doubted{0};         // when it was first seen not to be believed any more
};

class checks final : public witness {
  public:
    /// `slack`: how late a thread may run that is to say that a lock is lost.
    checks(world& w, scheduler& threads, server& s, nanos slack)
        : world_(w), scheduler_(threads), server_(s), slack_(slack) {
        server_.watched_by(*this);
    }

    bool looks_behind = true;  // whether every release is done in the end
    bool calm = false;         // nothing ever goes wrong
    bool answers = true;       // whether every process can tell what it does not want

    std::size_t add_name(const std::string& name, std::chrono::milliseconds longest_lease) {
        const distlock::key k(name);
        names_.push_back({name, k.sibling("queue"), k.sibling("fence"), k.sibling("owner"), longest_lease});
        return names_.size() - 1;
    }
    const std::string& name(std::size_t which) const { return names_[which].key; }
    /// Returns: since when the lock has neither been taken nor released.
    nanos progress(std::size_t which) const { return names_[which].progress; }
    bool held(std::size_t which) const { return !names_[which].holds.empty(); }
    std::uint64_t grants() const { return grants_; }

    hold& begin(process& who, const lock_view& lock, std::size_t which, std::uint64_t serial,
                std::uint64_t fence, std::stop_token lost) {
        state& n = names_[which];
        ++grants_;
        world_.note(act::grant, who.number, serial, n.key);
        n.progress = world_.now();
        hold& h = holds_.emplace_back();
        h.who = &who;
        h.lock = &lock;
        h.name = which;
        h.serial = serial;
        h.lost = std::move(lost);
        n.holds.push_back(&h);
        if (believes(h) && !pardoned(n)) {
            learn_token(h, n);
            if (fence != 0) {
                if (fence <= n.last_fence) fail(n, "a fencing token is not larger than the one before");
                n.last_fence = fence;
            }
        }
        return h;
    }

    /// Effects: from here on the thread does not believe that it has the lock.
    void let_go(hold& h) {
        state& n = names_[h.name];
        n.progress = world_.now();
        h.ours = believes(h);
        std::erase(n.holds, &h);
    }
    /// Effects: unlock() returned.
    void end(hold& h, distlock::release_outcome said) {
        state& n = names_[h.name];
        n.progress = world_.now();
        if (said == distlock::release_outcome::released && h.sure && !h.who->dead) {
            const info& t = tokens_[number_of(h.token)];
            const bool passed_on = h.token == n.holder;
            if (!t.freed && !passed_on && !h.ours && !pardoned(n))
                fail(n, "'released' is said of what was not");
        }
        using enum distlock::release_outcome;
        if (h.sure && (said == posted || said == unreachable || said == refused))
            n.behind = {h.token, h.who, world_.now()};
        holds_.remove_if([&](const hold& one) { return &one == &h; });
    }
    /// Effects: the process is dead: what its threads believe does not matter.
    void bury(const process& dead) {
        for (state& n : names_) std::erase_if(n.holds, [&](const hold* h) { return h->who == &dead; });
    }

    void look() {
        for (state& n : names_) {
            if (!n.holds.empty()) look_at(n);
            look_unclaimed(n);
            if (looks_behind && n.behind.who != nullptr) look_behind(n);
        }
    }

    /// Returns: whether the lock was somebody's on the server at some instant since then.
    bool was_held_since(std::size_t which, nanos since) const {
        const state& n = names_[which];
        if (pardoned(n)) return true;
        return (n.holder.empty() ? n.last_held : std::min(n.gone_at, world_.now())) >= since;
    }

    /// Effects: the queue is gone, as where the server lacks memory.
    void evict(std::size_t which) {
        const std::string_view argv[] = {"DEL", names_[which].queue_key};
        server_.model().execute(0, argv, server_.wall());
        see(names_[which]);
    }
    void forget(std::size_t which) {
        state& n = names_[which];
        const std::string_view argv[] = {"DEL", n.key};
        server_.model().execute(0, argv, server_.wall());
        n.pardoned_until = world_.now() + n.longest_lease + n.longest_lease / 50 + 10ms;
        see(n);
    }

    /// Returns: when the last key of a lock is gone by itself at the latest.
    nanos all_gone_by() const {
        nanos last{0};
        for (const state& n : names_)
            last = std::max<nanos>({last, n.longest_lease, distlock::handoff::queue_life({})});
        return world_.now() + last + last / 50 + 5ms;
    }
    void nothing_left() {
        for (const state& n : names_) {
            for (const std::string* key : {&n.key, &n.queue_key, &n.owner}) {
                if (server_.model().exists(*key, server_.wall())) fail(n, "a key is left: " + *key);
            }
        }
    }

    [[noreturn]] void fail(std::size_t which, const std::string& what) const { fail(names_[which], what); }

    // As a witness.
    void sent(process& by, const distlock::command& what) override;
    void executed(process& by, std::span<const std::string_view> argv, const model_server& on) override;
    void heard(process& by, std::string_view message) override;

  private:
    struct state {
        std::string key;
        std::string queue_key;
        std::string fence;
        std::string owner;
        std::chrono::milliseconds longest_lease{};
        std::string holder = {};     // on the server, as of the last command
        std::int64_t deadline = 0;   // of its key, in ms of the server's clock
        nanos gone_at{0};            // the same in true time
        dataset::sorted queue = {};  // as of the last command
        nanos queue_until{0};        // when its key is gone, in true time
        nanos last_held{0};
        nanos pardoned_until{0};
        std::uint64_t last_fence = 0;
        std::uint64_t server_fence = 0;
        nanos progress{0};
        std::vector<hold*> holds = {};
        struct {
            std::string token;
            process* who = nullptr;
            nanos since{0};
        } behind = {};  // the last release that was not confirmed
    };
    // What is known of a token.
    struct info {
        std::uint64_t user = 0;  // number of the process
        const lock_view* lock = nullptr;
        bool given_up = false;    // a release by it was sent
        bool freed = false;       // a release by it was executed and found it
        bool answered = false;    // a renewal or a release by it was sent since it was told
        bool queued = false;      // it has had a ticket
        process* told = nullptr;  // by a message that it was granted
        nanos told_at{0};
    };
    enum class role { other, takes, frees, renews };

    [[noreturn]] void fail(const state& n, const std::string& what) const {
        world_.fail("lock '" + n.key + "': " + what);
    }

    bool pardoned(const state& n) const { return world_.now() < n.pardoned_until; }
    static bool believes_at(const hold& h, nanos until, nanos now) { return h.who->local(now) < until; }
    bool believes(const hold& h) const {
        const scheduler::aside here(scheduler_);
        return believes_at(h, h.lock->valid_until(h.serial), world_.now());
    }

    static std::uint64_t number_of(std::string_view token) {
        std::uint64_t word[2] = {0, 0};
        std::memcpy(word, token.data(), std::min<std::size_t>(token.size(), sizeof word));
        return word[0] * 0x9e3779b97f4a7c15U ^ word[1];
    }

    void learn_token(hold& h, const state& n) {
        if (n.holder.empty() || world_.now() >= n.gone_at)
            fail(n, "it was granted, and the server knows nothing of it");
        h.token = n.holder;
        h.sure = true;
        info& t = tokens_[number_of(h.token)];
        if (t.user != h.who->number) fail(n, "it was granted, and somebody else has it on the server");
        if (t.lock != nullptr && t.lock != h.lock) fail(n, "a token is used for two acquisitions");
        if (t.given_up) fail(n, "it was granted under a token that was given up");
        t.lock = h.lock;
    }

    void look_at(state& n);
    void look_behind(state& n);
    void see(state& n);
    void look_unclaimed(state& n);
    void judge(const state& n, const std::string& was, std::int64_t deadline,
               std::span<const std::string_view> argv) const;
    void judge_queue(const state& n, const std::string& holder, const dataset::sorted& was,
                     std::span<const std::string_view> argv, const model_server& on);
    static bool lost_its_turn(const state& n, const dataset::member& one,
                              std::span<const std::string_view> argv, const model_server& on);
    static role role_of(std::span<const std::string_view> argv, std::string_view& token);
    state* name_of(std::span<const std::string_view> argv);

    world& world_;
    scheduler& scheduler_;
    server& server_;
    const nanos slack_;
    std::deque<state> names_;
    std::list<hold> holds_;
    std::unordered_map<std::uint64_t, info> tokens_;
    std::uint64_t grants_ = 0;
};

}  // namespace sim
