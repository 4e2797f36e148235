// A stop request ends the call at once, whatever the server does: here it stands still (SIGSTOP) in
// each phase of a lock().
#include <atomic>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <optional>
#include <stop_token>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/descriptors.hpp"
#include "support/fresh_name.hpp"
#include "support/lock_on_server.hpp"
#include "support/sleepers.hpp"
#include "support/stepping_proxy.hpp"
#include "support/stoppable.hpp"
#include "support/waiting.hpp"

namespace stop_requests_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::testing::redis_server;
using distlock::testing::redis_server_options;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

const std::string patient = "?command_timeout=5s&connect_timeout=5s";
constexpr lock_options no_looks{.recheck = 1h, .patience = 20s};

void wait_for(std::chrono::microseconds span) {
    const auto end = clk::now() + span;
    while (clk::now() < end) std::this_thread::yield();
}

redis_server& server(bool tcp) {
    static redis_server on_a_port([] {
        redis_server_options options;
        options.tcp = true;
        return options;
    }());
    static redis_server on_a_path;
    return tcp ? on_a_port : on_a_path;
}

/// A socket that listens, and whose queue of connections is full: whoever connects waits.
class full_backlog {
  public:
    explicit full_backlog(bool tcp) : tcp_(tcp) {
        const int family = tcp ? AF_INET : AF_UNIX;
        sockaddr_storage storage{};
        socklen_t size = 0;
        if (tcp) {
            auto& in = reinterpret_cast<sockaddr_in&>(storage);
            in.sin_family = AF_INET;
            in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            size = sizeof in;
        } else {
            auto& un = reinterpret_cast<sockaddr_un&>(storage);
            un.sun_family = AF_UNIX;
            path_ = server(false).folder() + "/full.sock";
            ::unlink(path_.c_str());
            std::memcpy(un.sun_path, path_.data(), path_.size());
            size = sizeof un;
        }
        auto* const address = reinterpret_cast<sockaddr*>(&storage);
        listener_ = unique_fd{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        REQUIRE(::bind(listener_.get(), address, size) == 0);
        REQUIRE(::listen(listener_.get(), 0) == 0);
        REQUIRE(::getsockname(listener_.get(), address, &size) == 0);
        if (tcp) port_ = ntohs(reinterpret_cast<sockaddr_in&>(storage).sin_port);
        for (int i = 0; i < 4; ++i) {
            waiting_.emplace_back(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            ::connect(waiting_.back().get(), address, size);
        }
    }
    std::string uri() const {
        return tcp_ ? "redis://127.0.0.1:" + std::to_string(port_)
                    : "unix://" + distlock::detail::percent_encoded(path_, "/");
    }

  private:
    using unique_fd = distlock::testing::impl::unique_fd;
    const bool tcp_;
    std::string path_;
    int port_ = 0;
    unique_fd listener_;
    std::vector<unique_fd> waiting_;
};

}  // namespace

TEST_CASE("a stop request ends the wait for the answer of a server that stands still") {
    const bool tcp = GENERATE(true, false);
    const bool warm = GENERATE(true, false);  // there is a socket already
    const bool contended = GENERATE(true, false);
    INFO((tcp ? "tcp" : "unix") << (warm ? ", warm" : "") << (contended ? ", contended" : ""));
    const lock_on_server seen(server(tcp), fresh_name());
    hiredis_connection redis(server(tcp).uri() + patient);
    locker lock(redis, seen.lock_key, no_looks);
    if (warm) {
        lock.lock();
        lock.unlock();
        REQUIRE(eventually([&] { return seen.untouched(); }));
    }
    if (contended) {  // the next attempt begins with EVALSHA
        REQUIRE(seen.strangers("60000"));
        REQUIRE_FALSE(lock.try_lock());
        seen.strangers_release();
    }
    {
        const standstill s(server(tcp));
        stoppable call(lock);
        REQUIRE(call.sleeps());
        call.stop();
    }
    CHECK(eventually([&] { return seen.untouched(); }));
    CHECK(lock.try_lock_for(10s));
    lock.unlock();
}

TEST_CASE("a stop request ends the wait of a waiter in the queue of a server that stands still") {
    const bool tcp = GENERATE(true, false);
    const lock_on_server seen(server(tcp), fresh_name());
    hiredis_connection redis(server(tcp).uri() + patient);
    locker lock(redis, seen.lock_key, no_looks);
    REQUIRE(seen.strangers("60000"));
    {
        stoppable call(lock);
        REQUIRE(seen.gets(1));
        const standstill s(server(tcp));
        REQUIRE(call.sleeps());
        call.stop();
    }
    CHECK(seen.gets(0));
    seen.strangers_release();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a stop request ends every step of a wait that begins when the server stands still") {
    const std::string step =
        GENERATE("SET request", "SSUBSCRIBE request", "SUBSCRIBE request", "join request", "leave request");
    INFO(step);
    stepping_proxy proxy(server(false).socket_path());
    const lock_on_server seen(server(false), fresh_name());
    REQUIRE(seen.strangers("60000"));
    {
        hiredis_connection redis(proxy.uri(patient));
        locker lock(redis, seen.lock_key, no_looks);
        std::atomic<bool> came{false};
        std::optional<standstill> s;
        proxy.at(step, [&] {
            s.emplace(server(false));
            came = true;
        });
        {
            stoppable call(lock);
            if (step == "leave request") {
                REQUIRE(seen.gets(1));
            } else {
                REQUIRE(eventually([&] { return came.load(); }));
            }
            REQUIRE(call.sleeps());
            call.stop();
        }
        REQUIRE(eventually([&] { return came.load(); }));
        s.reset();
        CHECK(seen.gets(0));
    }
    seen.strangers_release();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a stop request ends the handshake with a server that stands still") {
    const bool tcp = GENERATE(true, false);
    redis_server_options options;
    options.tcp = tcp;
    options.arguments = {"--requirepass", "secret"};
    redis_server locked(options);
    const std::string where = tcp ? "redis://:secret@127.0.0.1:" + std::to_string(locked.port()) + "/1"
                                  : "unix://:secret@" + locked.socket_path();
    const lock_on_server seen(locked, fresh_name());
    hiredis_connection redis(where + patient);
    locker lock(redis, seen.lock_key, no_looks);
    {
        const standstill s(locked);
        stoppable call(lock);
        REQUIRE(call.sleeps());
        call.stop();
    }
    CHECK(lock.try_lock_for(10s));
    lock.unlock();
}

TEST_CASE("a stop request ends connecting") {
    const full_backlog nobody(GENERATE(true, false));
    hiredis_connection redis(nobody.uri() + patient);
    locker lock(redis, "orders", no_looks);
    stoppable call(lock);
    REQUIRE(call.sleeps());
    call.stop();
}

TEST_CASE("a server that takes nobody in is said to take too long") {
    const full_backlog nobody(GENERATE(true, false));
    hiredis_connection redis(nobody.uri() + "?connect_timeout=50ms");
    distlock::reply said;
    CHECK(time_of([&] { said = redis.execute(distlock::command({distlock::argument("PING")})); }) >= 50ms);
    CHECK(said.is(distlock::reply_kind::not_sent));
    CHECK(said.cause() == errc::unreachable);
    CHECK_THAT(said.text(), contains_text("connecting took too long"));
}

TEST_CASE("the stop request of one thread harms no other that shares the mutex") {
    const lock_on_server seen(server(false), fresh_name());
    hiredis_connection redis(server(false).uri() + patient);
    locker lock(redis, seen.lock_key, no_looks);
    std::atomic<bool> got{false};
    std::optional<sleeper> other;
    {
        const standstill s(server(false));
        stoppable call(lock);
        REQUIRE(call.sleeps());
        other.emplace([&] {
            lock.lock();
            got = true;
            lock.unlock();
        });
        REQUIRE(other->sleeps());
        call.stop();
        CHECK(other->sleeps());
        CHECK_FALSE(other->done());
    }
    other->join();
    CHECK(got);
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a stop request that comes with the answer: the lock is there, or is free") {
    const lock_on_server seen(server(false), fresh_name());
    hiredis_connection redis(server(false).uri() + patient);
    locker lock(redis, seen.lock_key, no_looks);
    for (int i = 0; i < 300; ++i) {
        std::stop_source source;
        std::atomic<bool> begun{false};
        std::jthread stopper([&] {
            while (!begun) std::this_thread::yield();
            wait_for(std::chrono::microseconds(i));
            source.request_stop();
        });
        begun = true;
        std::error_code ec;
        if (lock.lock(source.get_token(), ec)) {
            CHECK(lock.owns_lock());
            lock.unlock();
        } else {
            CHECK(ec == errc::cancelled);
        }
    }
    CHECK(eventually([&] { return seen.untouched(); }));
    CHECK(lock.try_lock());
}

TEST_CASE("calls that were stopped leave no descriptor behind") {
    hiredis_connection redis(server(false).uri() + patient);
    locker lock(redis, fresh_name(), no_looks);
    lock.lock();
    lock.unlock();
    const auto before = open_descriptors().size();
    for (int i = 0; i < 10; ++i) {
        const standstill s(server(false));
        stoppable call(lock);
        REQUIRE(call.sleeps());
        call.stop();
    }
    CHECK(eventually([&] { return open_descriptors().size() <= before + 4; }));
}

}  // namespace stop_requests_tests
