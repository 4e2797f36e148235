// Whom to believe, of Sentinels that are dead, silent, behind, or lie.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/sentinel_answer.hpp>
#include <distlock/net/sentinel_election.hpp>

#include "support/catch.hpp"

namespace sentinel_election_tests {

namespace {

using namespace std::chrono_literals;
using distlock::believed_master;
using distlock::clock;
using distlock::errc;
using distlock::node_address;
using distlock::sentinel_answer;
using distlock::sentinel_election;
using kind = sentinel_election::kind;

const clock::time_point start = clock::time_point{} + 1h;
const node_address old_master{"10.0.0.1", 6379};
const node_address new_master{"10.0.0.2", 6379};
const node_address stranger{"10.6.6.6", 6379};

sentinel_election election(std::size_t asked, std::optional<believed_master> last = {}) {
    return {asked, std::move(last), start + 700ms, 200ms};
}

sentinel_answer naming(const node_address& master, std::uint64_t epoch, const std::string& id = "") {
    return {.what = sentinel_answer::kind::names_master, .master = master, .epoch = epoch, .id = id};
}
sentinel_answer without(sentinel_answer::kind what, errc cause = errc::no_reply,
                        const std::string& why = "") {
    return {.what = what, .cause = cause, .detail = why};
}
const auto silent = without(sentinel_answer::kind::silent, errc::unreachable, "refused");
const auto ignorant = without(sentinel_answer::kind::unknown_name);

template <class... Answers>
sentinel_election after(sentinel_election what, const Answers&... answers) {
    (what.add(answers, start), ...);
    return what;
}

/// Returns: whether `who`, by that epoch, is believed.
bool believes(const sentinel_election& what, const node_address& who, std::uint64_t epoch) {
    const auto said = what.conclude();
    return said.what == kind::believed && said.master == believed_master{who, epoch};
}

}  // namespace

TEST_CASE("more than half of the Sentinels that were asked decide, without the others") {
    auto three = after(election(3), naming(old_master, 5));
    CHECK_FALSE(three.decided());
    three.add(naming(old_master, 5), start);
    CHECK(three.decided());
    CHECK(believes(three, old_master, 5));

    CHECK_FALSE(after(election(4), naming(old_master, 5), naming(old_master, 5)).decided());
    CHECK(after(election(1), naming(old_master, 5)).decided());
    CHECK(after(election(3), silent, ignorant, silent).decided());
    CHECK_FALSE(after(election(3), silent, ignorant).decided());
}

TEST_CASE("a Sentinel that lags behind counts in a majority, and the newest epoch is remembered") {
    CHECK(believes(after(election(3), naming(old_master, 4), naming(old_master, 5)), old_master, 5));
}

TEST_CASE("a majority is preferred to a higher epoch") {
    CHECK(believes(after(election(3), naming(stranger, 9), naming(old_master, 5), naming(old_master, 5)),
                   old_master, 5));
    CHECK(believes(
        after(election(5), naming(stranger, 9), naming(old_master, 5), naming(old_master, 5), silent, silent),
        old_master, 5));
}

// A name in the URI that leads to any of them: one that was cut off answered by it, and by its address.
TEST_CASE("a Sentinel that answers in two ways has one vote") {
    auto three = after(election(3), naming(old_master, 4, "b"), naming(old_master, 4, "b"));
    CHECK_FALSE(three.decided());
    three.add(naming(new_master, 5, "c"), start);
    CHECK(three.decided());
    CHECK(believes(three, new_master, 5));
    const auto last = believed_master{new_master, 5};
    CHECK(after(election(3, last), naming(old_master, 4, "b"), naming(old_master, 4, "b"), silent)
              .conclude()
              .what == kind::outdated);

    CHECK(
        after(election(3), naming(old_master, 4, "a"), naming(old_master, 4, "a"), naming(old_master, 4, "b"))
            .decided());
    // And counts once among those that were asked: these are two of three.
    const auto two = after(election(4, last), naming(old_master, 4, "a"), naming(old_master, 4, "a"),
                           naming(old_master, 4, "b"));
    CHECK(two.decided());
    CHECK(believes(two, old_master, 4));
    CHECK(after(election(3), naming(old_master, 4), naming(old_master, 4)).decided());  // they do not say
}

TEST_CASE("a Sentinel that uses the id of another does not silence it") {
    for (const bool liar_first : {false, true}) {
        const auto liar = naming(stranger, 9, "a");
        const auto honest = naming(old_master, 5, "a");
        const auto all = after(election(3), liar_first ? liar : honest, liar_first ? honest : liar,
                               naming(old_master, 5, "b"));
        CHECK(believes(all, old_master, 5));
    }
}

TEST_CASE("without a majority the highest epoch is believed") {
    CHECK(believes(after(election(3), naming(old_master, 5), naming(new_master, 6), silent), new_master, 6));
    CHECK(believes(after(election(3), naming(new_master, 6), naming(old_master, 5), silent), new_master, 6));
    CHECK(believes(after(election(3), naming(stranger, 3), naming(new_master, 6), naming(old_master, 5)),
                   new_master, 6));
    CHECK(believes(after(election(3), ignorant, naming(new_master, 0), silent), new_master, 0));
}

TEST_CASE("the master with more votes is believed where epochs are equal, then the first one") {
    CHECK(believes(after(election(5), naming(old_master, 5), naming(new_master, 5), naming(stranger, 1),
                         naming(stranger, 1), naming(new_master, 5)),
                   new_master, 5));
    CHECK(believes(after(election(2), naming(old_master, 5), naming(new_master, 5)), old_master, 5));
}

TEST_CASE("a stranger of an older epoch than the last master's is not believed") {
    const believed_master last{new_master, 6};
    const auto lied = after(election(3, last), naming(stranger, 5), silent, silent);
    CHECK(lied.conclude().what == kind::outdated);
    CHECK(believes(after(election(3, last), naming(stranger, 5), naming(new_master, 6), silent), new_master,
                   6));
    // Most of those that name any, but not of those that were asked.
    CHECK(after(election(5, last), naming(stranger, 5), naming(stranger, 5), silent, silent, silent)
              .conclude()
              .what == kind::outdated);
    CHECK(believes(after(election(3, last), naming(stranger, 6), silent, silent), stranger, 6));
}

TEST_CASE("Sentinels that were all set up anew are believed, though they begin to count anew") {
    CHECK(believes(
        after(election(3, believed_master{new_master, 6}), naming(old_master, 0), naming(old_master, 0)),
        old_master, 0));
}

TEST_CASE(
    "the election tells apart that no Sentinel answers, that none knows the name, and that none may say so") {
    CHECK(election(2).conclude().what == kind::silent);
    CHECK(election(2).conclude().why == nullptr);
    const auto nobody = after(election(2), silent, silent);
    CHECK(nobody.conclude().what == kind::silent);
    REQUIRE(nobody.conclude().why == &nobody.answers()[0]);
    CHECK(nobody.conclude().why->cause == errc::unreachable);

    const auto refused = without(sentinel_answer::kind::refused, errc::authentication_failed, "NOAUTH");
    CHECK(after(election(3), silent, refused, ignorant).conclude().what == kind::unknown_name);
    const auto locked_out = after(election(2), silent, refused);
    CHECK(locked_out.conclude().what == kind::refused);
    CHECK(locked_out.conclude().why == &locked_out.answers()[1]);
    CHECK(believes(after(election(3), ignorant, naming(old_master, 1), ignorant), old_master, 1));
}

TEST_CASE("a caller is told which of them it is, and what to do") {
    const auto told = [](const sentinel_election& what) {
        return explain(what.conclude(), distlock::uri_scheme::tcp, "redis+sentinel://s1/m", "m");
    };
    const auto refused = without(sentinel_answer::kind::refused, errc::authentication_failed, "s2: NOAUTH");
    const auto of_silence = told(after(election(2), silent));
    CHECK(of_silence.is(distlock::reply_kind::not_sent));
    CHECK(of_silence.cause() == errc::unreachable);
    CHECK(of_silence.text() == "redis+sentinel://s1/m: no Sentinel answers (refused)");
    CHECK(told(election(2)).text() == "redis+sentinel://s1/m: no Sentinel answers");
    const auto of_name = told(after(election(2), ignorant));
    CHECK(of_name.cause() == errc::unreachable);
    CHECK_THAT(of_name.text(), contains_text("knows a master named m; check the name in the URI"));
    const auto of_refusal = told(after(election(2), silent, refused));
    CHECK(of_refusal.cause() == errc::authentication_failed);
    CHECK_THAT(of_refusal.text(),
               contains_text("no Sentinel says who the master is (s2: NOAUTH); give its password "
                             "as ?sentinel_password="));
    // A password that was given is not to be given.
    const auto wrong = without(sentinel_answer::kind::refused, errc::authentication_failed,
                               "s2: AUTH was refused: this server has no password, leave it out of the URI");
    const auto of_password = told(after(election(2), silent, wrong));
    CHECK(of_password.cause() == errc::authentication_failed);
    CHECK_THAT(of_password.text(), contains_text("leave it out of the URI); check ?sentinel_password="));
    // It was said to lack a command that locks need.
    const auto none = without(sentinel_answer::kind::refused, errc::unsupported_command,
                              "s2: ERR unknown command 'SENTINEL'");
    CHECK_THAT(told(after(election(2), silent, none)).text(), contains_text("it is none: use redis://"));
    const auto told_tls = explain(after(election(2), silent, none).conclude(), distlock::uri_scheme::tls,
                                  "rediss+sentinel://s1/m", "m");
    CHECK_THAT(told_tls.text(), contains_text("it is none: use rediss://"));
    const auto untrusted = without(sentinel_answer::kind::refused, errc::tls_failed, "s2: TLS: expired");
    const auto of_all = told(after(election(1), untrusted));
    CHECK(of_all.cause() == errc::tls_failed);
    CHECK_THAT(of_all.text(), contains_text("s2: TLS: expired") && !contains_text("password"));
    // The other one may be trusted, when it is back.
    const auto of_some = told(after(election(2), silent, untrusted));
    CHECK(of_some.cause() == errc::unreachable);
    CHECK_THAT(of_some.text(), contains_text("s2: TLS: expired"));
    const auto of_past = told(after(election(3, believed_master{new_master, 6}), naming(stranger, 5)));
    CHECK(of_past.cause() == errc::unavailable);
    CHECK_THAT(of_past.text(), contains_text("name only an old master"));
}

TEST_CASE("once a master was named, the other Sentinels have a little time, and never more than there is") {
    auto some = election(3);
    CHECK(some.until() == start + 700ms);
    some.add(silent, start + 10ms);
    some.add(ignorant, start + 20ms);
    CHECK(some.until() == start + 700ms);
    some.add(naming(old_master, 1), start + 100ms);
    CHECK(some.until() == start + 300ms);

    auto late = election(3);
    late.add(naming(old_master, 1), start + 650ms);
    CHECK(late.until() == start + 700ms);
    auto two = election(5);
    two.add(naming(old_master, 1), start + 100ms);
    two.add(naming(new_master, 1), start + 250ms);
    CHECK(two.until() == start + 300ms);
}

TEST_CASE("only another address is another master, and only a newer configuration one between") {
    using distlock::compare;
    using distlock::succession;
    const believed_master last{old_master, 5};
    CHECK(compare(last, {new_master, 6}) == succession::other);
    CHECK(compare(last, {new_master, 5}) == succession::other);
    CHECK(compare(last, {new_master, 0}) == succession::other);
    CHECK(compare(last, last) == succession::same);
    CHECK(compare(last, {old_master, 4}) == succession::same);
    CHECK(compare(last, {old_master, 0}) == succession::same);
    CHECK(compare(last, {old_master, 6}) == succession::again);
    CHECK(compare({old_master, 0}, {old_master, 6}) == succession::same);  // it did not say before
}

}  // namespace sentinel_election_tests
