// Error replies of the servers in use, word for word, and what they mean.
#include <string>
#include <string_view>
#include <vector>

#include <distlock/wire/server_error.hpp>

#include "support/catch.hpp"

namespace server_error_tests {

namespace {

using distlock::classify_error;
using distlock::errc;

constexpr bool passing = true;  // worth asking again
constexpr bool final = false;

struct sample {
    errc cause;
    bool transient;
    const char* text;
};

// Texts of the commands and scripts of this library. Those a server here can be brought to send
// were read off Redis 7.0.
const std::vector<sample> plain_texts{
    {errc::unavailable, passing, "LOADING Redis is loading the dataset in memory"},
    {errc::unavailable, passing, "LOADING Valkey is loading the dataset in memory"},
    {errc::unavailable, passing,
     "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."},
    {errc::unavailable, passing,
     "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."},
    {errc::unavailable, passing,
     "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."},
    {errc::unavailable, passing, "CLUSTERDOWN Hash slot not served"},
    {errc::unavailable, passing, "CLUSTERDOWN The cluster is down"},
    {errc::unavailable, passing, "TRYAGAIN Multiple keys request during rehashing of slot"},
    {errc::unavailable, passing, "NOSCRIPT No matching script. Please use EVAL."},
    {errc::unavailable, passing, "NOSCRIPT No matching script."},  // Valkey 8
    {errc::unavailable, passing, "ERR max number of clients reached"},
    {errc::unavailable, passing, "ERR max number of clients + cluster connections reached"},
    {errc::read_only, passing, "READONLY You can't write against a read only replica."},
    {errc::wrong_node, final, "MOVED 3999 127.0.0.1:6381"},
    {errc::wrong_node, final, "ASK 3999 127.0.0.1:6381"},
    {errc::wrong_node, final, "CROSSSLOT Keys in request don't hash to the same slot"},
    {errc::out_of_memory, final, "OOM command not allowed when used memory > 'maxmemory'."},
    {errc::writes_refused, final,
     "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. "
     "Commands that may modify the data set are disabled, because this instance is configured to report "
     "errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the "
     "Redis logs for details about the RDB error."},
    {errc::writes_refused, final, "MISCONF Errors writing to the AOF file: No space left on device"},
    {errc::writes_refused, final, "NOREPLICAS Not enough good replicas to write."},
    {errc::authentication_failed, final, "NOAUTH Authentication required."},
    // To a script of many arguments, or of a long body, before it says what it is.
    {errc::authentication_failed, final, "ERR Protocol error: unauthenticated multibulk length"},
    {errc::authentication_failed, final, "ERR Protocol error: unauthenticated bulk length"},
    {errc::authentication_failed, final,
     "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
     "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
     "the same time"},
    {errc::authentication_failed, final, "WRONGPASS invalid username-password pair or user is disabled."},
    {errc::permission_denied, final, "NOPERM this user has no permissions to run the 'get' command"},
    {errc::permission_denied, final,
     "NOPERM this user has no permissions to run the 'get' command or its subcommand"},  // 6.2
    {errc::permission_denied, final,
     "NOPERM this user has no permissions to access one of the keys used as arguments"},
    {errc::permission_denied, final, "NOPERM User u has no permissions to run the 'get' command"},  // 7.2
    {errc::permission_denied, final, "NOPERM No permissions to access a key"},                      // 7.2
    {errc::server_error, final,
     "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for "
     "the default user."},
    {errc::wrong_type, final, "WRONGTYPE Operation against a key holding the wrong kind of value"},
    {errc::unsupported_command, final, "ERR unknown command 'EVALSHA', with args beginning with: 'a' "},
    {errc::unsupported_command, final, "ERR unknown command `EVALSHA`, with args beginning with: `a`, "},
    {errc::unsupported_command, final, "ERR unknown command 'EVALSHA'"},
    {errc::unavailable, passing,
     "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"},
    {errc::read_only, passing,
     "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if ..."},
    {errc::server_error, final, "ERR syntax error"},
    {errc::server_error, final, "ERR wrong number of arguments for 'set' command"},
    {errc::server_error, final, "ERR Protocol error: too big bulk count string"},
    {errc::server_error, final, "EXECABORT Transaction discarded because of previous errors."},
};

// Inside a script 7.0 and later send the error itself and say behind it where it was.
const std::vector<sample> script_texts{
    {errc::wrong_type, final,
     "WRONGTYPE Operation against a key holding the wrong kind of value script: "
     "545c9fe5539f5ec57c4fcc28d9ec5f8bbfc06fef, on @user_script:3."},
    {errc::out_of_memory, final,
     "OOM command not allowed when used memory > 'maxmemory'. script: "
     "545c9fe5539f5ec57c4fcc28d9ec5f8bbfc06fef, on @user_script:4."},
    {errc::writes_refused, final,
     "NOREPLICAS Not enough good replicas to write. script: 545c9fe5539f5ec57c4fcc28d9ec5f8bbfc06fef, on "
     "@user_script:4."},
    {errc::read_only, passing,
     "READONLY You can't write against a read only replica. script: "
     "be7fae33402fccb7a2aa0d89321a6f1221493760, on @user_script:5."},
    {errc::permission_denied, final,
     "ERR The user executing the script can't run this command or subcommand script: "
     "545c9fe5539f5ec57c4fcc28d9ec5f8bbfc06fef, on @user_script:3."},
    {errc::permission_denied, final,
     "ERR The user executing the script can't access at least one of the keys mentioned in the command "
     "arguments script: 496368505412ccb8a568d43cf5c46b9910905b08, on @user_script:1."},
    {errc::permission_denied, final,  // 7.2, Valkey 8
     "ERR ACL failure in script: User u has no permissions to run the 'get' command script: "
     "545c9fe5539f5ec57c4fcc28d9ec5f8bbfc06fef, on @user_script:3."},
    {errc::unsupported_command, final,
     "ERR Unknown Redis command called from script script: 206396248e12c6e742fd7296250433c8d7343b74, on "
     "@user_script:1."},
    {errc::unsupported_command, final,  // Valkey 8
     "ERR Unknown command called from script script: 206396248e12c6e742fd7296250433c8d7343b74, on "
     "@user_script:1."},
    {errc::unavailable, passing,
     "ERR Script attempted to access a non local key in a cluster node script: "
     "be7fae33402fccb7a2aa0d89321a6f1221493760, on @user_script:5."},
    {errc::server_error, final,
     "ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: "
     "03c387736bb5cc009ff35151572cee04677aa374, on @user_script:1."},
    {errc::read_only, passing,  // 6.2, of what a script has caught and answers
     "@user_script: 191: -READONLY You can't write against a read only replica."},
    {errc::out_of_memory, final,
     "@user_script: 191: -OOM command not allowed when used memory > 'maxmemory'."},
};

// 6.2 wraps it. What the server itself refuses comes with a second place and the '-' of the protocol, what a
// command answers without.
const std::string wrapper =
    "ERR Error running script (call to f_545c9fe5539f5ec57c4fcc28d9ec5f8bbfc06fef): @user_script:4: ";
const std::vector<sample> wrapped_texts{
    {errc::wrong_type, final, "WRONGTYPE Operation against a key holding the wrong kind of value"},
    {errc::out_of_memory, final, "@user_script: 4: -OOM command not allowed when used memory > 'maxmemory'."},
    {errc::out_of_memory, final, "OOM command not allowed when used memory > 'maxmemory'."},
    {errc::read_only, passing, "@user_script: 4: -READONLY You can't write against a read only replica."},
    {errc::writes_refused, final, "@user_script: 4: -MISCONF Redis is configured to save RDB snapshots, but"},
    {errc::writes_refused, final, "@user_script: 4: -NOREPLICAS Not enough good replicas to write."},
    {errc::permission_denied, final,
     "@user_script: 4: The user executing the script can't run this command or subcommand"},
    {errc::permission_denied, final,
     "@user_script: 4: The user executing the script can't access at least one of the keys mentioned in the "
     "command arguments"},
    {errc::unsupported_command, final, "@user_script: 4: Unknown Redis command called from Lua script"},
    {errc::unavailable, passing,
     "@user_script: 4: Lua script attempted to access a non local key in a cluster node"},
    {errc::server_error, final, "user_script:4: attempt to index a nil value"},
};

void check(std::string_view text, const sample& expected) {
    INFO(text);
    const auto got = classify_error(text);
    CHECK(got.cause == expected.cause);
    CHECK(got.transient == expected.transient);
}

static_assert(classify_error("OOM x").cause == errc::out_of_memory);

}  // namespace

TEST_CASE("the errors of Redis 6.2, 7.0 and 8 and of Valkey 8 are told apart") {
    for (const sample& s : plain_texts) check(s.text, s);
}

TEST_CASE("an error inside a script of Redis 7 and later means what it means outside") {
    for (const sample& s : script_texts) check(s.text, s);
}

TEST_CASE("an error inside a script of Redis 6.2 is found in its wrapping") {
    for (const sample& s : wrapped_texts) check(wrapper + s.text, s);
}

TEST_CASE("only the first word tells, the text behind it may change") {
    for (const sample& s : plain_texts) {
        const std::string_view text = s.text;
        const auto word = text.substr(0, text.find(' '));
        if (word == "ERR") continue;
        check(word, s);
        check(std::string(word) + " other words", s);
    }
}

TEST_CASE("a word that only begins or ends like a known one is not that word") {
    for (const char* text :
         {"BUSYKEY Target key name already exists.", "BUSYGROUP Consumer Group name exists", "OOMX x",
          "XOOM x", "ASKING x", "loading x", " LOADING x", "-LOADING x", "ERR LOADING x", "ERR OOM", "", " ",
          "ERR", "\r\n", "NOSCRIPTX"}) {
        check(text, {errc::server_error, final, ""});
    }
}

TEST_CASE("a wrapping without the error in it is an error like any other") {
    for (const char* text :
         {"ERR Error running script", "ERR Error running script (call to f_0): ",
          "ERR Error running script (call to f_0): @user_script:", "ERR Error running script @user_script:1",
          "ERR Error running script (call to f_0): @user_script:1: ",
          "ERR Error running script (call to f_0): @user_script:1: -"}) {
        check(text, {errc::server_error, final, ""});
    }
}

TEST_CASE("words that somebody else wrote into an error do not change its meaning") {
    check("ERR unknown command 'X', with args beginning with: '@user_script:1: OOM x' ",
          {errc::unsupported_command, final, ""});
    check("ERR syntax error @user_script:1: LOADING x", {errc::server_error, final, ""});
    check("ERR syntax error Script attempted to access a non local key", {errc::server_error, final, ""});
}

TEST_CASE(
    "an error says that the roles changed when it is a replica's, or that of a master that becomes one") {
    using distlock::says_role_changed;
    for (const char* text :
         {"READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down",
          "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
          "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -READONLY You can't",
          "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 ..."}) {
        INFO(text);
        CHECK(says_role_changed(text));
    }
    for (const char* text : {"ERR READONLY", "READONLYX x", "BUSY READONLY", "LOADING x", "", "UNBLOCKEDX"}) {
        INFO(text);
        CHECK_FALSE(says_role_changed(text));
    }
}

TEST_CASE(
    "a node that has not got the slot refuses one key, too; a request over two slots is refused for its "
    "size") {
    CHECK_FALSE(distlock::refused_for_its_size("MOVED 3999 127.0.0.1:6381"));
    CHECK_FALSE(distlock::refused_for_its_size("ASK 3999 127.0.0.1:6381"));
    CHECK(distlock::refused_for_its_size("CROSSSLOT Keys in request don't hash to the same slot"));
    CHECK(distlock::refused_for_its_size("TRYAGAIN Multiple keys request during rehashing of slot"));
    CHECK(distlock::refused_for_its_size(
        "ERR Script attempted to access a non local key in a cluster node script: 0, on @user_script:5."));
    CHECK(distlock::refused_for_its_size("OOM x"));
    CHECK_FALSE(distlock::refused_for_its_size("LOADING x"));
}

TEST_CASE(
    "an error that refuses a script for a key beside the lock, or for a command, does not refuse one key's "
    "delete") {
    for (const std::string_view error :
         {"WRONGTYPE Operation against a key holding the wrong kind of value",
          "NOPERM this user has no permissions to access one of the keys used as arguments",
          "ERR The user executing the script can't run this command or subcommand script: x",
          "ERR unknown command 'EVALSHA'", "ERR something that nobody knows"}) {
        INFO(error);
        CHECK(distlock::refused_for_its_size(error));
    }
    for (const std::string_view error : {"READONLY replica", "MISCONF x", "NOREPLICAS x", "NOAUTH x",
                                         "BUSY x", "MASTERDOWN x", "CLUSTERDOWN x"}) {
        INFO(error);
        CHECK_FALSE(distlock::refused_for_its_size(error));
    }
}

}  // namespace server_error_tests
