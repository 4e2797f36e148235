// Fuzzes what every dialect makes of a reply: an input builds one, of any kind, nested.
//
// Checks, by a table of this file of what the server's commands and scripts can answer: a lock is granted,
// kept or released only for an answer that says so; that somebody else has it likewise; an inspector's report
// likewise. Nothing else is a success. It says which lease and fence it was granted with.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/interop.hpp>
#include <distlock/wire/handoff.hpp>

#include "fuzz.hpp"

namespace {

using distlock::release_outcome;
using distlock::reply;
using distlock::reply_kind;
using fuzz::must;
using acquired = distlock::acquire_outcome::kind;
using renewed = distlock::renew_outcome::kind;

const std::string digits = "0123456789abcdef0123456789abcdef";

// What texts are made of, so that the fuzzer need not spell them.
const std::array<std::string, 24> pieces{"OK",
                                         "",
                                         digits,
                                         ":",
                                         "0",
                                         "1",
                                         "30000",
                                         "86400000",
                                         "86400001",
                                         "1700000000000000",
                                         "9007199254740993",
                                         "18446744073709551615",
                                         "-1",
                                         "WRONGTYPE Operation against a key",
                                         "NOSCRIPT No matching script",
                                         "READONLY",
                                         " ",
                                         "orders",
                                         "QUEUED",
                                         "PONG",
                                         "\n",
                                         digits + " 1700000000000000 2000 17 orders",
                                         digits + " 30000 0 p4 herebox\n1\nme",
                                         "LOADING"};

std::string made_text(fuzz::input& in) {
    std::string text;
    for (int parts = in.byte() % 8; parts > 0; --parts) {
        const auto which = in.byte();
        text += which < pieces.size() ? pieces[which] : in.text(which % 40U);
    }
    return text;
}

reply made_reply(fuzz::input& in, int depth) {
    switch (in.byte() % 10) {
        case 0:
            return reply::nil();
        case 1:
            return reply::integer(static_cast<std::int64_t>(in.number()));
        case 2:
            return reply::integer(in.byte() % 6 - 3);
        case 3:
            return reply::string(made_text(in));
        case 4:
            return reply::status(made_text(in));
        case 5:
            return reply::error(made_text(in));
        case 6:
            return reply::not_sent(static_cast<distlock::errc>(in.byte()), made_text(in));
        case 7:
            return reply::no_answer(static_cast<distlock::errc>(in.byte()), made_text(in));
        default: {
            std::vector<reply> elements;
            for (int count = in.byte() % 8; count > 0 && depth > 0; --count)
                elements.push_back(made_reply(in, depth - 1));
            return reply::array(std::move(elements));
        }
    }
}

// What can be said, in the words of the scripts.

// Returns: the number above zero, of 64 bits, that is all of the text.
std::optional<std::uint64_t> number(std::string_view text) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
    const auto from = text.find_first_not_of('0');
    if (from == std::string_view::npos || text.size() - from > 20) return std::nullopt;
    std::uint64_t value = 0;
    for (const char c : text.substr(from)) {
        const auto digit = static_cast<std::uint64_t>(c - '0');
        if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
        value = value * 10 + digit;
    }
    return value;
}

bool is_number(const reply& r, std::int64_t least) {
    return r.kind() == reply_kind::integer && r.number() >= least;
}
bool is_pair(const reply& r, std::size_t size = 2) {
    return r.kind() == reply_kind::array && r.elements().size() == size;
}

// {1, fence or ''} and {0, TTL left}. Without fencing the fence is not looked at.
bool takes(const reply& r, bool fences, std::size_t size = 2) {
    return is_pair(r, size) && r.elements()[0].is_integer(1) && r.elements()[1].is(reply_kind::string) &&
           (!fences || number(r.elements()[1].text()));
}
bool finds_taken(const reply& r) {
    return is_pair(r) && r.elements()[0].is_integer(0) && is_number(r.elements()[1], -2);
}

struct may_say {
    bool granted;
    bool busy;
    std::uint64_t fence = 0;
};

may_say of_set(const reply& r) { return {r.is_status("OK"), r.is(reply_kind::nil)}; }
may_say of_plain_script(const reply& r) { return {r.is_status("OK"), is_number(r, -2)}; }
may_say of_script(const reply& r, bool fences, std::size_t size = 2) {
    const bool granted = takes(r, fences, size);
    return {granted, finds_taken(r), granted && fences ? *number(r.elements()[1].text()) : 0};
}
// {1, fence or '', TTL} and {0, TTL left, ticket, tickets before it, 0 or 1}.
may_say of_enter(const reply& r, bool fences) {
    const auto& parts = r.elements();
    const bool granted = takes(r, fences, 3) && is_number(parts[2], 1);
    const bool busy = is_pair(r, 5) && parts[0].is_integer(0) && is_number(parts[1], -2) &&
                      is_number(parts[2], 0) && is_number(parts[3], 0) &&
                      parts[3].number() < (std::int64_t{1} << 32) && is_number(parts[4], 0) &&
                      parts[4].number() <= 1;
    return {granted, busy, granted && fences ? *number(parts[1].text()) : 0};
}
may_say of_redisson(const reply& r, bool fences) {
    auto said = of_script(r, fences, 3);
    const bool listens = is_pair(r, 3) && r.elements()[2].is(reply_kind::integer);
    said.granted = said.granted && listens;
    // Only a grant has a third part; a refusal that has one is read as a refusal, which gives nothing away.
    said.busy = said.busy || (listens && finds_taken(reply::array({r.elements()[0], r.elements()[1]})));
    return said;
}

void check_taken(const distlock::acquire_outcome& got, const may_say& can, const char* dialect) {
    must((got.what == acquired::granted) == can.granted, "a lock is granted by what says so only", dialect);
    must(got.what != acquired::busy || can.busy, "a lock is taken when the server says so only", dialect);
    must(!can.granted || got.fence == can.fence, "a fence is the one the server gave", dialect);
}

void check_renewed(const distlock::renew_outcome& got, const reply& r, const char* dialect) {
    const bool other_type = r.is(reply_kind::error) && r.text().find("WRONGTYPE") != std::string::npos;
    must((got.what == renewed::kept) == r.is_integer(1), "a lease is kept by 1 only", dialect);
    must(got.what != renewed::gone || r.is_integer(0), "a lock is gone by 0 only", dialect);
    must(got.what != renewed::taken || r.is_integer(-1) || other_type,
         "a lock was taken by -1 or another type only", dialect);
}

void check_released(const distlock::release_verdict& got, const reply& r, bool hands_on,
                    const char* dialect) {
    const bool done = r.is_integer(1) || (hands_on && r.is_integer(2));
    must((got.what == release_outcome::released) == done, "a lock is released by 1, or 2, only", dialect);
    must(got.what != release_outcome::expired || r.is_integer(0), "nothing was there by 0 only", dialect);
    must(got.what != release_outcome::taken || r.is_integer(-1), "somebody else's by -1 only", dialect);
    must(!r.answered() || got.what != release_outcome::wrong_process, "no server knows of processes",
         dialect);
    const bool settled = done || r.is_integer(0) || r.is_integer(-1);
    must(settled || got.what == release_outcome::unreachable || got.what == release_outcome::refused ||
             got.what == release_outcome::wrong_process,
         "what is no answer settles nothing", dialect);
}

// "<token> <ticket> <TTL> <fence or 0> <lock's name>"; the parts of one, the name last;
// none for another text.
std::vector<std::string> parts_of_message(const std::string& text) {
    std::vector<std::string> parts{""};
    for (const char c : text) {
        if (c == ' ' && parts.size() < 5) {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    if (parts.size() != 5 || parts[0].size() != 32 ||
        parts[0].find_first_not_of("0123456789abcdef") != std::string::npos)
        return {};
    const bool asks = parts[2] == "poll" && parts[3] == "0";
    const auto ttl = number(parts[2]);
    if (!number(parts[1]) || (!asks && (!ttl || *ttl > 2000)) || (parts[3] != "0" && !number(parts[3])) ||
        parts[4].empty())
        return {};
    return parts;
}

void check_message(const std::string& text) {
    const auto parts = parts_of_message(text);
    const auto heard = distlock::handoff::read_message(text);
    must(heard.has_value() == !parts.empty(), "a hand-over is what says so only", text);
    must(distlock::handoff::name_in(text) == (parts.empty() ? "" : parts[4]), "a message names one lock",
         text);
    must(!heard || (heard->owner.view() == parts[0] && heard->ticket == number(parts[1]) &&
                    heard->ttl.count() == static_cast<std::int64_t>(number(parts[2]).value_or(0)) &&
                    heard->fence == number(parts[3]).value_or(0)),
         "a hand-over is what the message says", text);
    const auto ticket = distlock::detail::ticket::read(text);
    must(!ticket || ticket->owner.view() == text.substr(0, 32), "a ticket is its token's", text);
    must(!ticket || text.ends_with(std::string(ticket->channel) + std::string(ticket->owner_info)),
         "a ticket ends with its channel and its owner", text);
}

const distlock::lock_options bare{};
const distlock::lock_options fenced{.fencing = true};
const distlock::lock_options labelled{.owner_info = "me"};
const distlock::lock_options both{.fencing = true, .owner_info = "me"};

void check_handoff(const reply& r, const distlock::lock_options& options, const char* name) {
    const distlock::handoff lock(name, options);
    const bool queued = lock.hands_over();
    const bool beside = options.fencing || !options.owner_info.empty();
    const auto script = queued   ? of_enter(r, options.fencing)
                        : beside ? of_script(r, options.fencing)
                                 : of_plain_script(r);
    check_taken(lock.read_acquire(r), beside ? of_script(r, options.fencing) : of_set(r), "handoff, acquire");
    check_taken(lock.read_look(r), script, "handoff, look");
    check_renewed(lock.read_renew(r), r, "handoff");
    check_released(lock.read_release(r), r, queued, "handoff");
    if (!queued) return;
    const auto entered = lock.read_enter(r);
    check_taken(entered, script, "handoff, enter");
    must(entered.granted_for.has_value() == script.granted, "a script that grants says for how long");
    must(!script.granted || entered.granted_for->count() ==
                                std::min(r.elements()[2].number(), std::int64_t{lock.lease().count()}),
         "a TTL is the server's, and the lease at most");
    must(entered.what != acquired::busy ||
             static_cast<std::int64_t>(entered.queued.ticket) == r.elements()[2].number(),
         "a ticket's number is the server's");
}

template <class Dialect>
void check_plain(const reply& r, const distlock::lock_options& options, const char* dialect) {
    const Dialect lock("orders", options);
    const bool beside = options.fencing || !options.owner_info.empty();
    const auto script = beside ? of_script(r, options.fencing) : of_plain_script(r);
    check_taken(lock.read_acquire(r), beside ? script : of_set(r), dialect);
    check_taken(lock.read_look(r), script, dialect);
    check_renewed(lock.read_renew(r), r, dialect);
    check_released(lock.read_release(r), r, false, dialect);
}

template <class Dialect>
void check_script(const reply& r, const distlock::lock_options& options, const may_say& can,
                  const char* dialect) {
    const Dialect lock("orders", options);
    check_taken(lock.read_acquire(r), can, dialect);
    check_taken(lock.read_look(r), can, dialect);
    check_renewed(lock.read_renew(r), r, dialect);
    check_released(lock.read_release(r), r, false, dialect);
}

// {token, TTL left, fence, owner}, perhaps {..., time, size, {tickets}}; of Redisson {holder,
// holds, TTL left, fence}.
template <class Dialect>
void check_inspector(const reply& r, std::size_t ttl_at, const char* dialect) {
    const typename Dialect::inspector about("orders");
    const bool with_queue = ttl_at == 1 && is_pair(r, 7);
    bool can = is_pair(r, 4) || with_queue;
    for (std::size_t i = 0; can && i < 4; ++i)
        can = i == ttl_at ? is_number(r.elements()[i], -2) : r.elements()[i].is(reply_kind::string);
    if (can && with_queue) {
        const auto& tickets = r.elements()[6].elements();
        can = is_number(r.elements()[4], 0) && is_number(r.elements()[5], -1) &&
              r.elements()[6].is(reply_kind::array) && tickets.size() % 2 == 0;
        // One that is no ticket is left out, but all of them are texts.
        for (const reply& each : tickets) can = can && each.is(reply_kind::string);
    }
    const auto report = about.read_inspect(r);
    must(report.has_value() == can, "a report is made of what says so only", dialect);
    if (report) {
        const auto ttl = r.elements()[ttl_at].number();
        must(report->holder.has_value() == (ttl != -2), "nobody holds what is not there", dialect);
        must(report->remaining.has_value() == (ttl >= 0), "only what has a TTL has time left", dialect);
        must(!report->holder || report->holder->token == r.elements()[0].text(), "a holder is the server's",
             dialect);
    }
    const auto forced = about.read_force_release(r);
    must(forced.has_value() == (r.is_integer(0) || r.is_integer(1)), "1 and 0 are all there is to say",
         dialect);
    must(!forced || *forced == r.is_integer(1), "taken from somebody by 1 only", dialect);
    must(!about.was_forced(r, distlock::token::from(digits)) || r.is_string(digits),
         "forced only from whom it names", dialect);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    const reply r = made_reply(in, 5);
    for (const auto* options : {&bare, &fenced, &labelled, &both}) {
        check_handoff(r, *options, "orders");
        check_plain<distlock::plain>(r, *options, "plain");
        check_plain<distlock::redigo>(r, *options, "redigo");
        check_plain<distlock::redis_semaphore>(r, *options, "redis_semaphore");
        check_plain<distlock::pottery>(r, *options, "pottery");
        check_plain<distlock::prefixed<"mine:">>(r, *options, "prefixed");
        check_plain<distlock::python_redis_lock>(r, *options, "python_redis_lock");
        check_plain<distlock::go_zero>(r, *options, "go_zero");
        check_script<distlock::getset>(r, *options, of_script(r, options->fencing), "getset");
        if (options->owner_info.empty())
            check_script<distlock::redisson>(r, *options, of_redisson(r, options->fencing), "redisson");
    }
    check_handoff(r, bare, "a}b");
    check_message(r.text());
    check_inspector<distlock::plain>(r, 1, "plain");
    check_inspector<distlock::getset>(r, 1, "getset");
    check_inspector<distlock::python_redis_lock>(r, 1, "python_redis_lock");
    check_inspector<distlock::redisson>(r, 2, "redisson");
    return 0;
}
