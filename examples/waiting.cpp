// Waiting: with a time limit, until stopped, until SIGTERM, for several locks; and telling contention from
// failure.
// Usage: waiting [URI]
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>

using namespace std::chrono_literals;

namespace {

void back_off() { std::puts("somebody else has it"); }
void alert(const char* what) { std::fprintf(stderr, "%s\n", what); }
void charge_card() { std::puts("charged"); }
void print_report() { std::puts("printed"); }
void serve() {
    std::puts("served");
    ::kill(::getpid(), SIGTERM);  // as somebody who ends the service does
}
void transfer() { std::puts("transferred"); }

void without_exceptions(distlock::hiredis_connection& redis) {
    distlock::mutex report{redis, "nightly-report", {.lease = 10s, .patience = 500ms}};

    std::error_code ec;
    if (report.try_lock_for(2s, ec)) {
        const distlock::scoped_lock guard{std::adopt_lock, report};
        print_report();
    } else if (!ec) {
        back_off();
    } else if (ec == distlock::errc::unreachable || ec == distlock::errc::no_reply) {
        alert("the lock server is down");
    } else {
        alert(ec.message().c_str());
    }
}

void until_stopped(distlock::hiredis_connection& redis) {
    distlock::mutex order{redis, "orders:42"};

    std::jthread worker{[&](std::stop_token stop) {
        try {
            distlock::scoped_lock guard{order, stop};  // a stop request ends the wait
            charge_card();
        } catch (const distlock::error& e) {
            if (e.code() != distlock::errc::cancelled) alert(e.what());
        }
    }};
}

void several(distlock::hiredis_connection& redis) {
    distlock::mutex from{redis, "account:1"};
    distlock::mutex to{redis, "account:2"};

    distlock::scoped_lock both{from, to};  // all or none, in the order of their names: no deadlock
    transfer();
}

// SIGTERM is blocked in `ends`, and in every thread.
void until_terminated(distlock::hiredis_connection& redis, const sigset_t& ends) {
    distlock::mutex payments{redis, "payments"};
    std::error_code ended_by;
    std::jthread worker([&](std::stop_token stop) {
        while (payments.lock(stop, ended_by)) {
            const distlock::scoped_lock guard{std::adopt_lock, payments};
            serve();
        }
        if (ended_by != distlock::errc::cancelled)
            ::kill(::getpid(), SIGTERM);  // a service without its worker is none
    });
    int signal = 0;
    sigwait(&ends, &signal);
    worker.request_stop();
    worker.join();
    if (ended_by != distlock::errc::cancelled)
        throw std::system_error(ended_by);  // to whoever started the service
}

void once_in_a_period(distlock::hiredis_connection& redis) {
    distlock::mutex job{redis, "daily-report", {.lease = 40s, .hold_at_least = 40s}};
    if (job.try_lock()) {
        const distlock::scoped_lock guard{std::adopt_lock, job};
        print_report();
    }  // over for this thread; for everybody else when the 40 s are over
}

}  // namespace

int main(int argc, char** argv) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before the first thread: all inherit it

    try {
        distlock::hiredis_connection redis{argc > 1 ? argv[1] : "redis://127.0.0.1:6379"};
        without_exceptions(redis);
        until_stopped(redis);
        several(redis);
        once_in_a_period(redis);
        until_terminated(redis, ends);
    } catch (const std::system_error& e) {
        alert(e.what());
        return 1;
    }
}
