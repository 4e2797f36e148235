// What makes a master suspect, and what may be sent to another one.
#include <string>

#include <distlock/base/error.hpp>
#include <distlock/net/master_answer.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace master_answer_tests {

using distlock::errc;
using distlock::judge_master;
using distlock::reply;

TEST_CASE("a server that is no master any more, or loads its data, is suspect, and executed nothing") {
    for (const std::string text :
         {"READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down",
          "LOADING Redis is loading the dataset in memory",
          "ERR Error running script (call to f_0): @user_script:1: -READONLY You can't"}) {
        INFO(text);
        CHECK(judge_master(reply::error(text)).suspect);
        CHECK_FALSE(judge_master(reply::error(text)).executed);
    }
    CHECK(judge_master(reply::error("UNBLOCKED force unblock")).suspect);
    CHECK(judge_master(reply::error("UNBLOCKED force unblock")).executed);
}

TEST_CASE("an answer of a master, an error too, says nothing against it") {
    for (const reply& one :
         {reply::nil(), reply::integer(0), reply::status("OK"), reply::error("OOM x"),
          reply::error("WRONGTYPE x"), reply::error("NOSCRIPT x"), reply::error("MISCONF x"),
          reply::error("ERR READONLY"), reply::error("BUSY x")}) {
        INFO(one.text());
        CHECK_FALSE(judge_master(one).suspect);
        CHECK(judge_master(one).executed);
    }
}

TEST_CASE(
    "a server that is not reached or does not answer is suspect; only what was not sent was not executed") {
    for (const errc cause : {errc::unreachable, errc::no_reply, errc::read_only, errc::tls_failed}) {
        CHECK(judge_master(reply::not_sent(cause, "")).suspect);
        CHECK_FALSE(judge_master(reply::not_sent(cause, "")).executed);
        CHECK(judge_master(reply::no_answer(cause, "")).suspect);
        CHECK(judge_master(reply::no_answer(cause, "")).executed);
    }
}

TEST_CASE("a caller that gave up, or is a forked child, says nothing of the server") {
    for (const errc cause : {errc::cancelled, errc::wrong_process}) {
        CHECK_FALSE(judge_master(reply::not_sent(cause, "")).suspect);
        CHECK_FALSE(judge_master(reply::no_answer(cause, "")).suspect);
        CHECK(judge_master(reply::not_sent(cause, "")).executed);
    }
}

}  // namespace master_answer_tests
