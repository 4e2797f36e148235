// The checks themselves: checks.hpp.
#include "model/simulator/checks.hpp"

#include <algorithm>
#include <utility>

namespace sim {

namespace {

std::string_view token_of(const dataset::member& ticket) {
    return std::string_view(ticket.second).substr(0, 32);
}

}  // namespace

// One look at a lock that threads believe they have.
void checks::look_at(state& n) {
    const nanos now = world_.now();
    const hold* first = nullptr;
    for (hold* const h : n.holds) {
        scheduler_.saw_locked = false;
        const nanos until = h->lock->valid_until(h->serial);
        const bool believed = believes_at(*h, until, now);
        const bool told = h->lost.stop_possible() && h->lost.stop_requested();
        if (!believed) {
            if (h->doubted == nanos(0) && scheduler_.saw_locked) continue;
            if (h->doubted == nanos(0)) h->doubted = now;
            const bool ran = !h->who->stopped() && now - h->who->went_on() > slack_;
            if (h->lost.stop_possible() && !told && ran && now - h->doubted > slack_)
                fail(n, "it is lost, and its owner is not told");
            continue;
        }
        if (h->doubted != nanos(0)) fail(n, "what was lost is believed again");
        if (told) fail(n, "an owner is told of a loss and still has the lock");
        if (pardoned(n)) continue;
        if (first != nullptr) fail(n, "two threads have it");
        first = h;
        if (!h->sure) learn_token(*h, n);
        if (n.holder != h->token) fail(n, "a thread has it, and on the server it is not its own");
        h->believed_until = h->who->when(until);
        if (h->believed_until > n.gone_at)
            fail(n, "a thread will believe in it longer than the server keeps it");
    }
}

// A release that was not heard of is asked again, as long as its process lives. Two seconds are enough for
// the worst that goes wrong together.
void checks::look_behind(state& n) {
    const process& who = *n.behind.who;
    const nanos now = world_.now();
    if (n.holder != n.behind.token || now >= n.gone_at || who.dead || who.left) {
        n.behind.who = nullptr;
        return;
    }
    const nanos since = std::max({n.behind.since, who.went_on(), server_.works_again()});
    if (!who.stopped() && now - since > 2s) fail(n, "it was released, and the server still has it");
}

// What the server knows of a lock now.
void checks::see(state& n) {
    const auto wall = server_.wall();
    const model_server& on = server_.model();
    const bool was_there = !n.holder.empty();
    if (was_there) n.last_held = std::max(n.last_held, std::min(n.gone_at, world_.now()));
    n.holder = on.get(n.key, wall).value_or(std::string());
    const auto ms = std::chrono::floor<std::chrono::milliseconds>(wall).count();
    n.deadline = 0;
    if (!n.holder.empty()) {
        const auto ttl = on.pttl(n.key, wall);
        if (ttl < 0 || ttl > n.longest_lease.count())
            fail(n, "its key has a TTL of " + std::to_string(ttl) + " ms");
        n.deadline = ms + ttl;
        n.gone_at = server_.clock().when(std::chrono::milliseconds(n.deadline + 1));
    }
    n.queue = on.sorted_set(n.queue_key, wall);
    const auto life = on.pttl(n.queue_key, wall);
    if (life == -1 || life > distlock::handoff::queue_life({}).count())
        fail(n, "its queue has a TTL of " + std::to_string(life) + " ms");
    n.queue_until =
        n.queue.empty() ? nanos(0) : server_.clock().when(std::chrono::milliseconds(ms + life + 1));
    for (std::size_t i = 0; i < n.queue.size(); ++i) {
        if (!distlock::detail::ticket::read(n.queue[i].second)) fail(n, "a ticket that cannot be read");
        if (i > 0 && n.queue[i].first == n.queue[i - 1].first) fail(n, "two tickets have one number");
        for (std::size_t j = 0; j < i; ++j) {
            if (token_of(n.queue[i]) == token_of(n.queue[j])) fail(n, "a token has two tickets");
        }
    }
    if (const auto fence = on.get(n.fence, wall)) {
        const auto value = std::strtoull(fence->c_str(), nullptr, 10);
        if (value < n.server_fence) fail(n, "the fence went back");
        n.server_fence = value;
    }
}

// Whether a command may have done to the lock what it did.
void checks::judge(const state& n, const std::string& was, std::int64_t deadline,
                   std::span<const std::string_view> argv) const {
    if (was.empty() || (n.holder == was && n.deadline == deadline)) return;
    const bool by_owner = std::find(argv.begin(), argv.end(), was) != argv.end();
    if (by_owner) return;
    if (n.holder == was) fail(n, "its lease was changed by who does not own it");
    fail(n, "it was taken from its owner by another");
}

// Whether a ticket that is gone was removed for no good reason: neither by its own token, nor for a grant,
// nor because nobody heard of one.
bool checks::lost_its_turn(const state& n, const dataset::member& one, std::span<const std::string_view> argv,
                           const model_server& on) {
    const auto token = token_of(one);
    if (token == n.holder || std::find(argv.begin(), argv.end(), token) != argv.end()) return false;
    const auto ticket = *distlock::detail::ticket::read(one.second);
    return on.listeners(ticket.channel, ticket.kind == distlock::channel_kind::sharded) > 0;
}

void checks::judge_queue(const state& n, const std::string& holder, const dataset::sorted& was,
                         std::span<const std::string_view> argv, const model_server& on) {
    const auto still_there = [&](const dataset::member& one) {
        return std::find(n.queue.begin(), n.queue.end(), one) != n.queue.end();
    };
    // The ticket that was served now, if one was.
    const auto served = std::find_if(was.begin(), was.end(), [&](const dataset::member& one) {
        return n.holder != holder && token_of(one) == n.holder && !still_there(one);
    });
    for (auto one = was.begin(); one != was.end(); ++one) {
        const bool before = served != was.end() && one < served;
        if (still_there(*one) && before) fail(n, "a waiter was served before one that had come earlier");
        if (still_there(*one)) continue;
        if (lost_its_turn(n, *one, argv, on)) fail(n, "a waiter has lost its ticket");
    }
    for (const dataset::member& one : n.queue) {
        if (std::find(was.begin(), was.end(), one) != was.end()) continue;
        if (one != n.queue.back()) fail(n, "a ticket is not the last when it is new");
        info& t = tokens_[number_of(token_of(one))];
        // A request of a caller that has stopped may come after the release that followed it.
        if (t.queued && calm && !t.given_up) fail(n, "a waiter had to queue twice");
        t.queued = true;
    }
}

// A lock that ended although a process had heard that it was its, and could have used or released it.
void checks::look_unclaimed(state& n) {
    if (n.holder.empty() || world_.now() < n.gone_at) return;
    const auto known = tokens_.find(number_of(n.holder));
    if (known == tokens_.end() || known->second.told == nullptr) return;
    const process& who = *std::exchange(known->second.told, nullptr);
    const info& t = known->second;
    const bool ran = !who.dead && !who.left && !who.stopped() && who.went_on() <= t.told_at &&
                     server_.works_again() <= t.told_at && t.told_at + 500ms < n.gone_at;
    const bool used = t.lock != nullptr || t.answered;
    if (answers && ran && !used && t.told_at >= n.pardoned_until)
        fail(n, "it ended unused although its process had heard of it");
}

void checks::executed(process& /*by*/, std::span<const std::string_view> argv, const model_server& on) {
    state* const found = name_of(argv);
    if (found == nullptr) return;
    state& n = *found;
    look_unclaimed(n);
    const std::string was = world_.now() < n.gone_at ? n.holder : std::string();
    const auto deadline = n.deadline;
    const auto queue = world_.now() < n.queue_until ? n.queue : dataset::sorted{};
    see(n);
    judge(n, was, deadline, argv);
    judge_queue(n, was, queue, argv, on);
    std::string_view token;
    const bool freed = role_of(argv, token) == role::frees && !was.empty() && token == was && n.holder != was;
    if (freed) tokens_[number_of(token)].freed = true;
}

void checks::sent(process& by, const distlock::command& what) {
    std::string_view token;
    const role how = role_of(what.argv(), token);
    if (how == role::other) return;
    info& t = tokens_[number_of(token)];
    if (t.user == 0) t.user = by.number;
    if (t.user != by.number) world_.fail("a token is used by two processes");
    if (how == role::frees) {
        t.given_up = t.answered = true;
    } else if (how == role::renews) {
        t.answered = true;
    } else if (t.given_up) {
        world_.fail("a token by which a release was sent is used again: " + std::string(token));
    }
}

void checks::heard(process& by, std::string_view message) {
    info& t = tokens_[number_of(message.substr(0, 32))];
    if (t.user != by.number) world_.fail("a process is told of what is not its own");
    t.told = &by;
    t.told_at = world_.now();
    t.answered = false;
}

checks::role checks::role_of(std::span<const std::string_view> argv, std::string_view& token) {
    using namespace distlock::detail;
    if (argv[0] == "SET") {
        token = argv[2];
        return role::takes;
    }
    if (!argv[0].starts_with("EVAL")) return role::other;
    const auto is = [&](const distlock::script& s) {
        return argv[1].data() == s.text().data() || argv[1] == s.sha1();
    };
    const auto arguments = argv.subspan(3 + static_cast<std::size_t>(argv[2][0] - '0'));
    if (arguments.empty()) return role::other;
    token = arguments[0];
    if (is(handoff_enter) || is(plain_look) || is(plain_look_with_siblings)) return role::takes;
    if (is(plain_release) || is(handoff_leave)) return role::frees;
    return is(plain_renew) ? role::renews : role::other;
}

checks::state* checks::name_of(std::span<const std::string_view> argv) {
    const std::size_t place = argv[0].starts_with("EVAL") ? 3 : 1;
    if (argv.size() <= place) return nullptr;
    for (state& n : names_) {
        if (argv[place] == n.key) return &n;
    }
    return nullptr;
}

}  // namespace sim
