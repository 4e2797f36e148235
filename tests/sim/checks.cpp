// The checks themselves: checks.hpp.
#include "sim/checks.hpp"

namespace sim {

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

// A release that was not heard of is asked again, as long as its process lives. Two seconds are enough for the worst that
// goes wrong together.
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
    n.offered.clear();
    if (on.list_size(n.offers, wall) > 0) {
        const auto items = on.list(n.offers, wall);
        if (items.size() > 1) fail(n, "more than one offer");
        n.offered = items.front().substr(0, 32);
    }
    for (const auto& key : {std::string_view(n.offers), std::string_view(n.waiters)}) {
        const auto ttl = on.pttl(key, wall);
        if (ttl == -1 || ttl > n.longest_lease.count())
            fail(n, std::string(key) + " has a TTL of " + std::to_string(ttl));
    }
    if (const auto fence = on.get(n.fence, wall)) {
        const auto value = std::strtoull(fence->c_str(), nullptr, 10);
        if (value < n.server_fence) fail(n, "the fence went back");
        n.server_fence = value;
    }
}

// Whether a command may have done to the lock what it did.
void checks::judge(const state& n, const std::string& was, std::int64_t deadline, bool was_offered,
                   std::span<const std::string_view> argv) const {
    if (was.empty() || (n.holder == was && n.deadline == deadline)) return;
    const bool by_owner = std::find(argv.begin(), argv.end(), was) != argv.end();
    if (by_owner) return;
    if (n.holder == was) fail(n, "its lease was changed by who does not own it");
    // Who finds an open offer may take it over, or free it.
    if (!was_offered) fail(n, "it was taken from its owner by another");
}

void checks::executed(process& /*by*/, std::span<const std::string_view> argv, const model_server& /*on*/) {
    state* const found = name_of(argv);
    if (found == nullptr) return;
    state& n = *found;
    const std::string was = world_.now() < n.gone_at ? n.holder : std::string();
    const auto deadline = n.deadline;
    const bool was_offered = !was.empty() && was == n.offered;
    see(n);
    judge(n, was, deadline, was_offered, argv);
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
        t.given_up = true;
    } else if (t.given_up) {
        world_.fail("a token by which a release was sent is used again: " + std::string(token));
    }
}

void checks::delivered(process& to, const distlock::reply& what) {
    const auto& parts = what.elements();
    if (parts.size() != 2 || !parts[1].is(distlock::reply_kind::string) || parts[1].text().size() < 33)
        return;
    info& t = tokens_[number_of(std::string_view(parts[1].text()).substr(0, 32))];
    if (t.user != 0 && t.user != to.number) world_.fail("an offer is delivered to two");
    t.user = to.number;
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
    if (is(handoff_enter) || is(plain_look) || is(plain_look_beside)) return role::takes;
    if (is(plain_release)) return role::frees;
    if (is(handoff_pass)) return arguments.size() == 4 ? role::other : role::frees;
    return role::other;
}

checks::state* checks::name_of(std::span<const std::string_view> argv) {
    const std::size_t place = argv[0].starts_with("EVAL") ? 3 : 1;
    if (argv.size() <= place) return nullptr;
    for (state& n : names_) {
        if (argv[place] == n.key || argv[place] == n.offers) return &n;
    }
    return nullptr;
}

}  // namespace sim
