// What is sent for several locks at once, and what each of them is told.
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/sha1.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/joint_try.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"

namespace joint_try_tests {

using distlock::command;
using distlock::errc;
using distlock::reply;
using distlock::reply_kind;
using distlock::token;
using distlock::detail::joint_try;
using words = std::vector<std::string>;

namespace {

const distlock::handoff orders("{shop}orders", {});
const distlock::shared_handoff prices("{shop}prices", {});
const distlock::permits workers("{shop}workers", {}, {}, distlock::channel_kind::ordinary, 8, 2);
const token mine = token::generate();

}  // namespace

TEST_CASE("the script for several locks states its contract first, and its digest is that of its text") {
    const auto& script = distlock::detail::joint_enter;
    const auto digest = distlock::detail::sha1_hex(script.text());
    CHECK(std::string_view(digest.data(), digest.size()) == script.sha1());
    CHECK(script.text().starts_with("-- KEYS and ARGV: "));
}

TEST_CASE("several tries are one command of all keys, all arguments, and what each lock has of them") {
    const command tries[] = {orders.look(mine), prices.look(mine), workers.look(mine)};
    const joint_try all(tries);
    const command ask = all.ask();
    const auto sent = argv_of<std::string>(ask);
    words wanted{"EVALSHA", std::string(distlock::detail::joint_enter.sha1()), "12"};
    for (const auto& one : tries) {
        const auto its = argv_of<std::string>(one);
        wanted.insert(wanted.end(), its.begin() + 3, its.begin() + 3 + std::stoi(its[2]));
    }
    for (const auto& one : tries) {
        const auto its = argv_of<std::string>(one);
        wanted.insert(wanted.end(), its.begin() + 3 + std::stoi(its[2]), its.end());
    }
    wanted.emplace_back("m44s55n35");
    CHECK(sent == wanted);
    CHECK(ask.routing_key() == "{shop}orders");
    CHECK(ask.is_script());

    wanted[0] = "EVAL";
    wanted[1] = distlock::detail::joint_enter.text();
    CHECK(argv_of<std::string>(ask.with_body()) == wanted);
    CHECK(argv_of<std::string>(ask.with_body().with_body()) == wanted);
}

TEST_CASE("only the scripts that enter a queue go together") {
    CHECK(joint_try::may_contain(orders.look(mine)));
    CHECK(joint_try::may_contain(prices.look(mine)));
    CHECK(joint_try::may_contain(distlock::exclusive_handoff("a", {}).look(mine)));
    CHECK(joint_try::may_contain(workers.look(mine)));
    CHECK_FALSE(joint_try::may_contain(orders.renew(mine)));
    CHECK_FALSE(joint_try::may_contain(orders.release(mine)));
    CHECK_FALSE(joint_try::may_contain(distlock::plain("a", {}).look(mine)));
    CHECK_FALSE(joint_try::may_contain(distlock::plain("a", {}).acquire(mine)));
    CHECK_FALSE(joint_try::may_contain(distlock::handoff("a}", {}).look(mine)));  // has no keys beside it
}

TEST_CASE("each is told what its own script has said; that it is taken when another's is; and any trouble") {
    const auto first = reply::array({reply::integer(1), reply::string(""), reply::integer(100)});
    const auto second = reply::array({reply::integer(1), reply::string(""), reply::integer(200)});
    const auto both = reply::array({first, second});
    CHECK(orders.read_look(joint_try::answer_to(0, both)).granted_for == std::chrono::milliseconds(100));
    CHECK(orders.read_look(joint_try::answer_to(1, both)).granted_for == std::chrono::milliseconds(200));

    using kind = distlock::acquire_outcome::kind;
    CHECK(orders.read_look(joint_try::answer_to(0, reply::integer(2))).what == kind::busy);
    CHECK(prices.read_look(joint_try::answer_to(1, reply::integer(2))).what == kind::busy);
    CHECK(workers.read_look(joint_try::taken()).what == kind::busy);
    CHECK(workers.read_look(joint_try::taken()).ttl ==
          std::chrono::milliseconds(0));  // nobody knows how long

    for (const auto& trouble :
         {reply::error("OOM command not allowed"), reply::nil(), reply::array({}),
          reply::no_answer(errc::no_reply, "silence"), reply::not_sent(errc::unreachable, "refused")}) {
        CHECK(joint_try::answer_to(0, trouble).kind() == trouble.kind());
        CHECK(orders.read_look(joint_try::answer_to(0, trouble)).what != kind::granted);
        CHECK(orders.read_look(joint_try::answer_to(0, trouble)).what != kind::busy);
    }
}

}  // namespace joint_try_tests
