// Error codes: messages, the standard's conditions they equal, and what an error says.
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <distlock/base/error.hpp>

#include "support/catch.hpp"

namespace error_tests {

namespace {

using distlock::errc;
using distlock::error_category;

struct row {
    errc code;
    std::errc condition;
    std::string_view about;  // words of its message
};

constexpr std::array table{
    row{errc::invalid_name, std::errc::invalid_argument, "name"},
    row{errc::invalid_lease, std::errc::invalid_argument, "24 h"},
    row{errc::invalid_option, std::errc::invalid_argument, "option"},
    row{errc::invalid_uri, std::errc::invalid_argument, "redis://"},
    row{errc::wrong_process, std::errc::operation_not_permitted, "fork()"},
    row{errc::no_entropy, std::errc::resource_unavailable_try_again, "random"},
    row{errc::cancelled, std::errc::operation_canceled, "stop_token"},
    row{errc::unreachable, std::errc::not_connected, "host and port"},
    row{errc::no_reply, std::errc::timed_out, "no answer in time"},
    row{errc::protocol_error, std::errc::protocol_error, "makes no sense"},
    row{errc::reply_too_large, std::errc::message_size, "larger"},
    row{errc::tls_unavailable, std::errc::protocol_not_supported, "distlock::hiredis_tls"},
    row{errc::tls_failed, std::errc::connection_refused, "certificate"},
    row{errc::authentication_failed, std::errc::permission_denied, "password"},
    row{errc::permission_denied, std::errc::permission_denied, "ACL"},
    row{errc::unavailable, std::errc::resource_unavailable_try_again, "try again"},
    row{errc::read_only, std::errc::read_only_file_system, "replica; connect to the master"},
    row{errc::out_of_memory, std::errc::not_enough_memory, "maxmemory"},
    row{errc::writes_refused, std::errc::io_error, "disk"},
    row{errc::wrong_type, std::errc::invalid_argument, "no lock of this kind"},
    row{errc::wrong_node, std::errc::not_supported, "cluster_connection"},
    row{errc::unsupported_command, std::errc::function_not_supported, "does not know or allow"},
    row{errc::server_error, std::errc::io_error, "look up what it says"},
    row{errc::deadlock, std::errc::resource_deadlock_would_occur, "wait for itself"},
    row{errc::lease_expired, std::errc::timed_out, "longer lease"},
    row{errc::holder_without_ttl, std::errc::device_or_resource_busy, "TTL"},
    row{errc::no_server, std::errc::no_such_file_or_directory, "private server"},
    row{errc::no_thread, std::errc::resource_unavailable_try_again, "limit of threads"},
    row{errc::not_replicated, std::errc::resource_unavailable_try_again, "acknowledged"},
    row{errc::limit_mismatch, std::errc::invalid_argument, "semaphore"},
    row{errc::not_held, std::errc::operation_not_permitted, "this thread"},
};

const std::string no_such_code = "unknown error";

static_assert(std::is_error_code_enum_v<errc>);
static_assert(!std::is_error_condition_enum_v<errc>);
static_assert(std::is_base_of_v<std::system_error, distlock::error>);
static_assert(noexcept(error_category()));

}  // namespace

TEST_CASE("every error code has a message of its own, about what went wrong") {
    std::set<std::string> messages;
    for (const row& r : table) {
        const auto text = std::error_code(r.code).message();
        INFO(static_cast<int>(r.code) << " " << text);
        CHECK(text != no_such_code);
        CHECK(messages.insert(text).second);
        CHECK(text.find(r.about) != std::string::npos);
    }
}

TEST_CASE("the message of a server that refuses writes says what each of its words is about") {
    const auto text = std::error_code(errc::writes_refused).message();
    CHECK(text.find("disk (MISCONF)") != std::string::npos);
    CHECK(text.find("replicas (NOREPLICAS)") != std::string::npos);
}

TEST_CASE("the error codes count from 1 without a gap, and the table of this test has them all") {
    int expected = 1;
    for (const row& r : table) CHECK(static_cast<int>(r.code) == expected++);
    CHECK(error_category().message(expected) == no_such_code);
}

TEST_CASE("every error code equals its standard condition and no other code's") {
    for (const row& r : table) {
        const std::error_code code = r.code;
        INFO(code.message());
        CHECK(code == r.condition);
        CHECK(code.default_error_condition() == std::make_error_condition(r.condition));
        for (const row& other : table) {
            CHECK((code == other.condition) == (r.condition == other.condition));
            CHECK((code == other.code) == (r.code == other.code));
        }
    }
}

TEST_CASE("every message says what is wrong, and behind a semicolon what to do") {
    for (const row& r : table) {
        if (r.code == errc::cancelled) continue;  // what the caller wanted
        const auto text = std::error_code(r.code).message();
        INFO(text);
        const auto semicolon = text.find("; ");
        CHECK(semicolon != std::string::npos);
        CHECK(semicolon + 10 < text.size());
        CHECK(text.find('\n') == std::string::npos);
        CHECK(text.size() < 120);
        CHECK(text.back() != '.');
    }
}

TEST_CASE("a number that is no error code has a message and is its own condition") {
    for (const int value : {-1, 0, 1000}) {
        CHECK(error_category().message(value) == no_such_code);
        CHECK(error_category().default_error_condition(value) ==
              std::error_condition(value, error_category()));
    }
}

TEST_CASE("the category has a name and is one object") {
    CHECK(std::string(error_category().name()) == "distlock");
    CHECK(&error_category() == &std::error_code(errc::deadlock).category());
    CHECK(distlock::make_error_code(errc::deadlock) == std::error_code(errc::deadlock));
    CHECK(std::error_code(errc::deadlock) !=
          std::error_code(static_cast<int>(errc::deadlock), std::generic_category()));
}

TEST_CASE("an error's what() says first what was done, then what is wrong and what to do") {
    const distlock::error e(errc::unreachable, "lock orders");
    CHECK(e.code() == errc::unreachable);
    CHECK(std::string(e.what()) == "lock orders: " + std::error_code(errc::unreachable).message());
}

TEST_CASE("an error is caught as the standard's") {
    const auto fail = [] { throw distlock::error(errc::wrong_type, "x"); };
    CHECK_THROWS_AS(fail(), std::system_error);
    CHECK_THROWS_AS(fail(), distlock::error);
}

}  // namespace error_tests
