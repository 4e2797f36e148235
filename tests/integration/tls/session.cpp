// One TLS session against an OpenSSL server in memory: whom it trusts, and what it makes of odd peers.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <openssl/conf.h>
#include <openssl/err.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/hiredis/tls.hpp>
#include <distlock/net/uri.hpp>

#include "integration/tls/certificates.hpp"
#include "integration/tls/servers.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"

namespace session_tests {

using distlock::errc;
using distlock::secure_layer;
using distlock::secure_session;
using distlock::tls_options;
using progress = secure_session::progress;

namespace {

const certificates::set& all() { return certificates::set::get(); }

tls_options trusting_ca() { return {.ca_file = all().ca.certificate_file}; }

// A client and a server, and what passes between them.
struct pair {
    pair(servers::in_memory& with, const std::string& host, const tls_options& options = trusting_ca())
        : server(with) {
        distlock::uri where;
        where.scheme = distlock::uri_scheme::tls;
        where.host = host;
        client = distlock::tls(options)->start(where);
    }

    // Returns: how the handshake ended; wants_more when it stands still. `step`: bytes handed over at a time.
    progress shake(std::size_t step = std::string::npos) {
        std::string to_server;
        progress now = client->handshake({}, to_server, why);
        while (now == progress::wants_more && !to_server.empty()) {
            std::string to_client = server.step(std::exchange(to_server, {}));
            for (std::size_t at = 0; at < to_client.size() && now == progress::wants_more; at += step) {
                if (step == std::string::npos) step = to_client.size();
                now = client->handshake(std::string_view(to_client).substr(at, step), to_server, why);
            }
        }
        last_alert = server.step(to_server);
        return now;
    }

    // Effects: the rest of the handshake's news (tickets) reaches the client.
    bool settle() { return open(last_alert); }

    bool open(std::string_view bytes) {
        std::string to_server;
        const bool alive = client->open(bytes, plain, to_server);
        reaction = server.step(to_server);
        return alive;
    }

    servers::in_memory& server;
    std::unique_ptr<secure_session> client;
    std::string why;
    std::string plain;
    std::string last_alert;
    std::string reaction;
};

// Returns: why the client refused; empty when it did not.
std::string refusal(const certificates::identity& shown, const std::string& host,
                    const tls_options& options = trusting_ca()) {
    servers::in_memory server(shown);
    pair both(server, host, options);
    const progress end = both.shake();
    if (end == progress::done) return {};
    return end == progress::failed && !both.why.empty() ? both.why : "stands still";
}

// Returns: what tls() says of options it cannot use.
std::string option_error(const tls_options& options) {
    try {
        [[maybe_unused]] const auto unwanted = distlock::tls(options);
    } catch (const distlock::error& failed) {
        return failed.code() == errc::invalid_option ? failed.what() : "another code";
    }
    return "no error";
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string write(const std::string& file, const std::string& text) {
    std::ofstream(file) << text;
    return file;
}

}  // namespace

TEST_CASE("no reason is made up where OpenSSL gives none") {
    const distlock::detail::openssl_errors none;
    CHECK(none.first() == "no reason given");
}

TEST_CASE("a certificate is accepted for the name it holds, and for no other") {
    CHECK(refusal(all().good, "localhost").empty());
    CHECK(refusal(all().good, "LOCALHOST").empty());
    CHECK(refusal(all().good, "localhost.").empty());
    CHECK(contains(refusal(all().good, "127.0.0.1"), "not for 127.0.0.1"));
    CHECK(contains(refusal(all().good, "localhost.example"), "not for localhost.example"));
    CHECK(contains(refusal(all().good, "host"), "not for host"));
    CHECK(contains(refusal(all().wrong_host, "localhost"), "not for localhost"));
    CHECK(refusal(all().wrong_host, "other.example").empty());
}

TEST_CASE("a certificate is accepted for the address it holds, and for no other") {
    CHECK(refusal(all().address, "127.0.0.1").empty());
    CHECK(refusal(all().ipv6, "fe80::1").empty());
    CHECK(refusal(all().ipv6, "fe80:0::0:1").empty());
    CHECK(refusal(all().ipv6, "fe80::1%eth0").empty());
    CHECK(contains(refusal(all().address, "localhost"), "not for localhost"));
    CHECK(contains(refusal(all().address, "127.0.0.2"), "not for 127.0.0.2"));
    CHECK(contains(refusal(all().address, "::ffff:127.0.0.1"), "not for ::ffff:127.0.0.1"));
    // An address written as a name is no address.
    CHECK(contains(refusal(all().address_as_name, "127.0.0.1"), "not for 127.0.0.1"));
}

TEST_CASE(
    "a certificate is refused when its authority is not trusted, or its time is over, whatever its names") {
    CHECK(contains(refusal(all().wrong_ca, "localhost"), "unable to get local issuer certificate"));
    CHECK(contains(refusal(all().expired, "localhost"), "expired"));
    CHECK(contains(refusal(all().future, "localhost"), "not yet valid"));
    CHECK(contains(refusal(all().self_signed, "localhost"), "self-signed"));
    CHECK(contains(refusal(all().for_clients, "localhost"), "purpose"));
    for (const auto* shown : {&all().wrong_ca, &all().expired, &all().self_signed}) {
        CHECK(contains(refusal(*shown, "127.0.0.1"), "cannot be trusted"));
    }
    CHECK(refusal(all().wrong_ca, "localhost", {.ca_file = all().other_ca.certificate_file}).empty());
}

TEST_CASE("a wildcard stands for one whole label") {
    CHECK(refusal(all().wildcards, "a.wild.example").empty());
    CHECK_FALSE(refusal(all().wildcards, "a.b.wild.example").empty());
    CHECK_FALSE(refusal(all().wildcards, "wild.example").empty());
    CHECK_FALSE(refusal(all().wildcards, "partly.label.example").empty());
}

TEST_CASE("server_name is verified in the place of the host") {
    CHECK(refusal(all().good, "10.0.0.1", {.ca_file = all().ca.certificate_file, .server_name = "localhost"})
              .empty());
    CHECK(refusal(all().address, "tunnel", {.ca_file = all().ca.certificate_file, .server_name = "127.0.0.1"})
              .empty());
    CHECK(contains(refusal(all().good, "localhost",
                           {.ca_file = all().ca.certificate_file, .server_name = "other.example"}),
                   "not for other.example"));
}

TEST_CASE("without verification everybody is believed, and only then") {
    for (const auto* shown : {&all().wrong_host, &all().wrong_ca, &all().expired, &all().self_signed}) {
        CHECK(refusal(*shown, "localhost", {.insecure_skip_verification = true}).empty());
        CHECK_FALSE(refusal(*shown, "localhost").empty());
    }
}

TEST_CASE("no host that would match any name is ever verified") {
    using namespace std::string_literals;
    servers::in_memory server(all().good);
    for (const std::string& host : {""s, "."s, ".localhost"s, "localhost\0.evil"s, "local host"s, "*"s,
                                    "a%b"s, "[::1]"s, std::string(254, 'a')}) {
        CAPTURE(host);
        for (const auto& options : {tls_options{}, tls_options{.insecure_skip_verification = true}}) {
            try {
                pair both(server, host, options);
                FAIL_CHECK("a session started");
            } catch (const distlock::error& failed) {
                CHECK(failed.code() == errc::tls_failed);
            }
        }
        if (!host.empty()) CHECK(contains(option_error({.server_name = host}), "server_name"));
    }
}

TEST_CASE("the server is told the name it was asked by, never an address") {
    const auto told = [](const std::string& host, const tls_options& options) {
        servers::in_memory server(all().good);
        pair both(server, host, options);
        REQUIRE(both.shake() == progress::done);
        const char* const name = ::SSL_get_servername(server.ssl(), TLSEXT_NAMETYPE_host_name);
        return std::string(name != nullptr ? name : "(none)");
    };
    CHECK(told("localhost", trusting_ca()) == "localhost");
    CHECK(told("127.0.0.1", {.insecure_skip_verification = true}) == "(none)");
    CHECK(told("::1", {.insecure_skip_verification = true}) == "(none)");
    CHECK(told("10.0.0.1", {.ca_file = all().ca.certificate_file, .server_name = "localhost"}) ==
          "localhost");
}

TEST_CASE("TLS 1.2 and 1.3 are spoken, nothing older") {
    const auto outcome = [](int version) {
        servers::in_memory server(all().good, version, version);
        pair both(server, "localhost");
        return both.shake();
    };
    CHECK(outcome(TLS1_3_VERSION) == progress::done);
    CHECK(outcome(TLS1_2_VERSION) == progress::done);
    CHECK(outcome(TLS1_1_VERSION) == progress::failed);
    CHECK(outcome(TLS1_VERSION) == progress::failed);
}

TEST_CASE("a system set up for older versions changes nothing in that") {
    const std::string lax = write(all().folder / "lax.cnf",
                                  "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = lax\n"
                                  "[lax]\nMinProtocol = TLSv1\nCipherString = DEFAULT:@SECLEVEL=0\n");
    const pid_t child = ::fork();  // what is read from such a file stays for the life of a process
    REQUIRE(child >= 0);
    if (child == 0) {
        if (::CONF_modules_load_file(lax.c_str(), nullptr, 0) != 1) ::_exit(1);
        try {
            servers::in_memory old(all().good, TLS1_1_VERSION, TLS1_1_VERSION);
            pair refused(old, "localhost");
            servers::in_memory present(all().good, TLS1_2_VERSION, TLS1_2_VERSION);
            pair accepted(present, "localhost");
            ::_exit(refused.shake() == progress::failed && accepted.shake() == progress::done ? 0 : 2);
        } catch (const std::exception&) {
            ::_exit(3);  // the child must not go on with the parent's tests
        }
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("commands and replies of any size pass, in pieces of any size") {
    std::string large(1'000'000, 'x');
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i);
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
        servers::in_memory server(all().good, version, version);
        pair both(server, "localhost");
        REQUIRE(both.shake(1) == progress::done);
        REQUIRE(both.settle());
        std::string sealed;
        REQUIRE(both.client->seal("", sealed));
        CHECK(sealed.empty());
        REQUIRE(both.client->seal(large, sealed));
        CHECK(sealed.find(large.substr(0, 64)) == std::string::npos);
        server.step(sealed);
        CHECK((server.received == large));

        const std::string reply = server.say(large);
        bool alive = true;
        for (std::size_t at = 0; at < reply.size(); at += 777)
            alive = alive && both.open(std::string_view(reply).substr(at, 777));
        CHECK(alive);
        CHECK((both.plain == large));
        CHECK(both.open(server.say("one byte more at a time")));
        both.plain.clear();
        for (const char c : server.say("slow")) alive = alive && both.open({&c, 1});
        CHECK(alive);
        CHECK(both.plain == "slow");
    }
}

TEST_CASE("a change of keys is answered and shows nowhere") {
    servers::in_memory server(all().good);
    pair both(server, "localhost");
    REQUIRE(both.shake() == progress::done);
    REQUIRE(both.settle());
    REQUIRE(::SSL_key_update(server.ssl(), SSL_KEY_UPDATE_REQUESTED) == 1);
    CHECK(both.open(server.say("before and after")));
    CHECK(both.plain == "before and after");
    std::string sealed;
    CHECK(both.client->seal("with new keys", sealed));
    server.step(sealed);
    CHECK(server.received == "with new keys");
}

TEST_CASE("a renegotiation is refused, and the session goes on under the old terms") {
    servers::in_memory server(all().good, TLS1_2_VERSION, TLS1_2_VERSION);
    pair both(server, "localhost");
    REQUIRE(both.shake() == progress::done);
    REQUIRE(::SSL_renegotiate(server.ssl()) == 1);
    ::SSL_do_handshake(server.ssl());
    std::string to_server;
    CHECK(both.client->open(server.sent(), both.plain, to_server));
    // 21: an alert. A client that went along would send 22, a handshake.
    REQUIRE_FALSE(to_server.empty());
    CHECK(to_server.front() == 21);
}

TEST_CASE("a session that the server ended is over for both directions") {
    servers::in_memory server(all().good);
    pair both(server, "localhost");
    REQUIRE(both.shake() == progress::done);
    REQUIRE(both.settle());
    std::string last = server.say("good bye");
    ::SSL_shutdown(server.ssl());
    last += server.sent();
    CHECK_FALSE(both.open(last));
    CHECK(both.plain == "good bye");
    std::string sealed;
    CHECK_FALSE(both.client->seal("too late", sealed));
    CHECK(sealed.empty());
    CHECK_FALSE(both.open({}));
}

TEST_CASE("garbage, and records that were tampered with, end the session") {
    for (const bool tampered : {false, true}) {
        servers::in_memory server(all().good);
        pair both(server, "localhost");
        REQUIRE(both.shake() == progress::done);
        REQUIRE(both.settle());
        std::string bytes = tampered ? server.say("+OK\r\n") : "+OK\r\n+OK\r\n";
        bytes.back() = static_cast<char>(bytes.back() ^ 1);
        CHECK_FALSE(both.open(bytes));
        CHECK(both.plain.empty());
        std::string sealed;
        CHECK_FALSE(both.client->seal("more", sealed));
        CHECK(sealed.empty());
    }
}

TEST_CASE("plain text instead of a handshake is named as what it is") {
    for (const std::string_view said :
         {"-ERR unknown command\r\n", "+OK\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\n"}) {
        servers::in_memory server(all().good);
        pair both(server, "localhost");
        std::string to_server;
        REQUIRE(both.client->handshake({}, to_server, both.why) == progress::wants_more);
        to_server.clear();
        CHECK(both.client->handshake(said, to_server, both.why) == progress::failed);
        CHECK(contains(both.why, "does not speak TLS"));
        CHECK(to_server.empty());
        // What failed stays failed.
        CHECK(both.client->handshake({}, to_server, both.why) == progress::failed);
        CHECK_FALSE(both.client->seal("secret", to_server));
        CHECK(to_server.empty());
    }
}

TEST_CASE("the error shows a server's reason for a refusal") {
    servers::in_memory server(all().good);
    pair both(server, "localhost");
    std::string to_server;
    REQUIRE(both.client->handshake({}, to_server, both.why) == progress::wants_more);
    CHECK(both.client->handshake(std::string("\x15\x03\x03\x00\x02\x02\x28", 7), to_server, both.why) ==
          progress::failed);
    CHECK(contains(both.why, "handshake failure"));
}

TEST_CASE("a handshake or a stream of nothing that does not end is cut off") {
    SECTION("in the handshake: requests to start again, which TLS 1.2 clients must ignore while they do") {
        servers::in_memory server(all().good);
        pair both(server, "localhost");
        std::string to_server;
        progress now = both.client->handshake({}, to_server, both.why);
        const std::string hello_request("\x16\x03\x03\x00\x04\x00\x00\x00\x00", 9);
        std::string many;
        for (int i = 0; i < 1000; ++i) many += hello_request;
        int rounds = 0;
        while (now == progress::wants_more && rounds < 100) {
            now = both.client->handshake(many, to_server, both.why);
            ++rounds;
        }
        CHECK(now == progress::failed);
        CHECK(contains(both.why, "does not end"));
        CHECK(rounds > 20);
    }
    SECTION("afterwards: tickets") {
        servers::in_memory server(all().good);
        pair both(server, "localhost");
        REQUIRE(both.shake() == progress::done);
        REQUIRE(both.settle());
        std::size_t bytes = 0;
        bool alive = true;
        while (alive && bytes < 10'000'000) {
            ::SSL_new_session_ticket(server.ssl());
            ::SSL_do_handshake(server.ssl());
            const std::string ticket = server.sent();
            REQUIRE_FALSE(ticket.empty());
            bytes += ticket.size();
            alive = both.open(ticket);
        }
        CHECK_FALSE(alive);
        CHECK(bytes > 200'000);
        CHECK(bytes < 1'000'000);
    }
}

TEST_CASE("errors that others left in OpenSSL's queue break nothing, and none are left there") {
    const auto stray = [] { ERR_raise(ERR_LIB_USER, 42); };
    servers::in_memory server(all().good);
    pair both(server, "localhost");
    std::string to_server;
    std::string to_client;
    progress now = progress::wants_more;
    while (now == progress::wants_more) {
        stray();
        now = both.client->handshake(to_client, to_server, both.why);
        CHECK(::ERR_peek_error() == 0);
        to_client = server.step(std::exchange(to_server, {}));
    }
    REQUIRE(now == progress::done);
    stray();
    CHECK(both.open(to_client));
    stray();
    CHECK(both.client->seal("ping", to_server));
    stray();
    CHECK(both.open(server.say("pong")));
    CHECK(both.plain == "pong");
    CHECK(::ERR_peek_error() == 0);

    CHECK_FALSE(refusal(all().expired, "localhost").empty());
    CHECK(::ERR_peek_error() == 0);
    CHECK(contains(option_error({.ca_file = "/nonexistent"}), "/nonexistent"));
    CHECK(::ERR_peek_error() == 0);
}

TEST_CASE("authorities are taken from a file, from a folder, or from the system, and from nowhere else") {
    const std::string folder = all().folder / "hashed";
    certificates::write_hashed(all().ca.certificate.get(), folder);
    CHECK(refusal(all().good, "localhost", {.ca_directory = folder}).empty());
    CHECK_FALSE(refusal(all().wrong_ca, "localhost", {.ca_directory = folder}).empty());

    const tls_options both{.ca_file = all().other_ca.certificate_file, .ca_directory = folder};
    CHECK(refusal(all().good, "localhost", both).empty());
    CHECK(refusal(all().wrong_ca, "localhost", both).empty());

    CHECK(contains(refusal(all().good, "localhost", {}), "unable to get local issuer certificate"));
    REQUIRE(::setenv("SSL_CERT_FILE", all().ca.certificate_file.c_str(), 1) == 0);
    CHECK(refusal(all().good, "localhost", {}).empty());
    // Whoever names an authority trusts no other.
    CHECK_FALSE(refusal(all().good, "localhost", {.ca_file = all().other_ca.certificate_file}).empty());
    REQUIRE(::unsetenv("SSL_CERT_FILE") == 0);
}

// Only the first certificate of the file was shown, which a server that knows the root alone cannot trust.
TEST_CASE("a client shows the intermediates of its certificate file, to a server that knows the root only") {
    const auto accepted = [](const std::string& certificate_file, const certificates::identity& mine) {
        servers::in_memory server(all().good);
        SSL* const ssl = server.ssl();
        certificates::must(
            ::SSL_CTX_load_verify_file(::SSL_get_SSL_CTX(ssl), all().ca.certificate_file.c_str()) == 1);
        ::SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
        pair both(server, "localhost",
                  {.ca_file = all().ca.certificate_file,
                   .certificate_file = certificate_file,
                   .key_file = mine.key_file});
        // In TLS 1.3 the client is done before the server has seen its certificate.
        return both.shake() == progress::done && ::SSL_is_init_finished(ssl) == 1 &&
               ::SSL_get_verify_result(ssl) == X509_V_OK;
    };
    const auto& chained = all().under_intermediate;
    CHECK(accepted(all().for_clients.certificate_file, all().for_clients));
    CHECK(accepted(chained.certificate_file, chained));
    CHECK_FALSE(accepted(certificates::alone(all().folder, chained), chained));
    CHECK_FALSE(accepted(all().foreign_client.certificate_file, all().foreign_client));
}

TEST_CASE("an option that cannot be used is an error that names it, the file, and what is wrong") {
    const auto& folder = all().folder;
    const auto said = [](const tls_options& options, std::vector<std::string> parts) {
        const std::string text = option_error(options);
        for (const std::string& part : parts) {
            CAPTURE(text, part);
            CHECK(contains(text, part));
        }
    };
    const std::string nowhere = folder / "nowhere.pem";
    const std::string empty = write(folder / "empty.pem", "");
    const std::string text = write(folder / "text.pem", "not a certificate\n");
    const std::string unhashed = folder / "unhashed";
    std::filesystem::create_directory(unhashed);
    write(unhashed + "/ca.pem", "x");
    const std::string locked = folder / "locked.key";
    certificates::write_encrypted(all().good.key.get(), locked);
    const std::string& certificate = all().good.certificate_file;

    said({.ca_file = nowhere}, {"ca_file", nowhere, "No such file"});
    said({.ca_file = empty}, {"ca_file", empty, "no certificate"});
    said({.ca_file = text}, {"ca_file", text, "no certificate"});
    said({.ca_file = folder / ""}, {"ca_file", "tls_options"});
    said({.ca_file = all().good.key_file}, {"ca_file", "no certificate"});
    said({.ca_directory = nowhere}, {"ca_directory", nowhere, "No such file"});
    said({.ca_directory = certificate}, {"ca_directory", certificate, "Not a directory"});
    said({.ca_directory = unhashed}, {"ca_directory", unhashed, "openssl rehash"});
    said({.certificate_file = certificate}, {"certificate_file", certificate, "no key_file"});
    said({.key_file = all().good.key_file}, {"key_file", all().good.key_file, "no certificate_file"});
    said({.certificate_file = nowhere, .key_file = all().good.key_file},
         {"certificate_file", nowhere, "No such file"});
    said({.certificate_file = certificate, .key_file = nowhere}, {"key_file", nowhere, "No such file"});
    said({.certificate_file = certificate, .key_file = certificate}, {"key_file", certificate});
    said({.certificate_file = certificate, .key_file = all().expired.key_file},
         {"key_file", all().expired.key_file, "key values mismatch"});
    said({.certificate_file = certificate, .key_file = locked}, {"key_file", locked});
    said({.ca_file = std::string(1000, 'x') + "\x1b[31m"}, {"...", "name"});
    CHECK_FALSE(contains(option_error({.ca_file = "/\x1b[31m"}), "\x1b"));
}

// A service that was started by hand stood still.
TEST_CASE("nobody is asked on the terminal for the password of an encrypted key: it is an error") {
    const std::string locked = all().folder / "asked_for.key";
    certificates::write_encrypted(all().good.key.get(), locked);
    const int keyboard = ::posix_openpt(O_RDWR | O_NOCTTY);
    const bool there = keyboard >= 0 && ::grantpt(keyboard) == 0 && ::unlockpt(keyboard) == 0;
    const int terminal = there ? ::open(::ptsname(keyboard), O_RDWR | O_NOCTTY) : -1;
    NOT_TESTED_UNLESS(terminal >= 0, "there are no terminals here");
    CHECK(in_child([&] {
        if (::setsid() < 0 || ::ioctl(terminal, TIOCSCTTY, 0) != 0) return false;
        if (::write(keyboard, "secret\n", 7) != 7) return false;
        return contains(option_error({.certificate_file = all().good.certificate_file, .key_file = locked}),
                        locked);
    }));
    ::close(terminal);
    ::close(keyboard);
}

}  // namespace session_tests
