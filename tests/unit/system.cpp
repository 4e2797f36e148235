// What the library asks of the system, in each way this one has: POSIX's, and Linux's own where it
// is not compiled away.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <netinet/in.h>
#include <new>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <utility>

#include <distlock/detail/system.hpp>
#include <distlock/detail/system_io.hpp>

#include "in_child.hpp"
#include "support/catch.hpp"

namespace system_tests {

namespace {

using namespace std::chrono_literals;
namespace detail = distlock::detail;
using detail::file_descriptor;
using detail::when_busy;

// A namespace as a type, for Catch.
#define WAYS_OF(system)                                                           \
    struct system {                                                               \
        using parker = detail::system::parker;                                    \
        using wake_event = detail::system::wake_event;                            \
        static constexpr auto& clock_time = detail::system::clock_time;           \
        static constexpr auto& random_bytes = detail::system::random_bytes;       \
        static constexpr auto& current_process = detail::system::current_process; \
        static constexpr auto& wait_for = detail::system::wait_for;               \
        static constexpr auto& open_pipe = detail::system::open_pipe;             \
        static constexpr auto& open_socket = detail::system::open_socket;         \
        static constexpr auto& accept_socket = detail::system::accept_socket;     \
    };

WAYS_OF(on_posix)
#ifdef DISTLOCK_ON_LINUX
WAYS_OF(on_linux)
#define WAYS on_posix, on_linux
#else
#define WAYS on_posix
#endif

// No test waits so long; only a call that was missed does.
constexpr auto never = 20s;

std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

template <class Ways>
bool readable(int fd, std::chrono::nanoseconds longest) {
    pollfd polled{fd, POLLIN, 0};
    return Ways::wait_for(&polled, 1, longest) == 1;
}

struct connected {
    file_descriptor ours;
    file_descriptor theirs;
};

template <class Ways>
connected connect_to_ourselves() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const file_descriptor listener = Ways::open_socket(AF_INET, when_busy::wait);
    file_descriptor ours = Ways::open_socket(AF_INET, when_busy::wait);
    REQUIRE(ours);
    REQUIRE(::bind(listener.get(), any, size) == 0);
    REQUIRE(::getsockname(listener.get(), any, &size) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::connect(ours.get(), any, size) == 0);
    file_descriptor theirs = Ways::accept_socket(listener.get());
    REQUIRE(theirs);
    return {std::move(ours), std::move(theirs)};
}

bool closes_on_exec(const file_descriptor& fd) { return (::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0; }
bool never_blocks(const file_descriptor& fd) { return (::fcntl(fd.get(), F_GETFL) & O_NONBLOCK) != 0; }

}  // namespace

TEMPLATE_TEST_CASE("the clock moves on, and never back", "", WAYS) {
    const auto first = TestType::clock_time();
    auto last = first;
    const auto end = now() + never;
    while (last == first && now() < end) last = TestType::clock_time();
    CHECK(last > first);
}

#ifdef DISTLOCK_ON_LINUX
// Leases would last longer, or shorter, by what an operator sets it.
TEMPLATE_TEST_CASE("the clock is none that an operator sets", "", WAYS) {
    const auto at = [](clockid_t id) {
        timespec t{};
        REQUIRE(::clock_gettime(id, &t) == 0);
        return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
    };
    const auto running = at(CLOCK_MONOTONIC);
    const auto read = TestType::clock_time();
    CHECK(read >= running);
    CHECK(read <= at(CLOCK_BOOTTIME));
}
#endif

TEMPLATE_TEST_CASE("a large buffer is filled with random bytes, piece by piece", "", WAYS) {
    const auto filled = [] {
        std::array<unsigned char, 1000> bytes{};
        for (std::size_t have = 0; have < bytes.size();) {
            const auto got = TestType::random_bytes(bytes.data() + have, bytes.size() - have);
            REQUIRE(got > 0);
            have += static_cast<std::size_t>(got);
        }
        return bytes;
    };
    const auto one = filled();
    const auto another = filled();
    CHECK(one != another);
    // A piece that was left as it was, all zeros, is none by chance.
    for (std::size_t at = 0; at + 20 <= one.size(); at += 20) {
        CHECK(std::any_of(one.begin() + static_cast<std::ptrdiff_t>(at),
                          one.begin() + static_cast<std::ptrdiff_t>(at + 20),
                          [](auto byte) { return byte != 0; }));
    }
}

TEMPLATE_TEST_CASE("a process, its child and the child of that each know themselves", "", WAYS) {
    const auto parent = TestType::current_process();
    CHECK(TestType::current_process() == parent);
    CHECK(in_child([&] {
        const auto child = TestType::current_process();
        const auto is_another = [&] {
            const auto third = TestType::current_process();
            return third != parent && third != child && third == TestType::current_process();
        };
        return child != parent && in_child(is_another) && TestType::current_process() == child;
    }));
    CHECK(TestType::current_process() == parent);
}

#ifdef DISTLOCK_ON_LINUX
namespace {

constexpr int passed = 0;
constexpr int failed = 1;
constexpr int not_tested = 2;

// Returns: what `piece` returned in a child that is number 1 of a namespace; `failed` where it did not;
// not_tested where the system permits no namespaces.
template <class Piece>
int as_number_one(Piece piece) {
    const auto begin = [](unsigned long flags) {
        return ::syscall(SYS_clone, SIGCHLD | CLONE_NEWPID | flags, nullptr, nullptr, nullptr, 0UL);
    };
    long child = begin(0);
    if (child < 0) child = begin(CLONE_NEWUSER);
    if (child < 0) return not_tested;
    if (child == 0) ::_exit(::getpid() == 1 ? piece() : failed);
    int status = -1;
    while (::waitpid(static_cast<pid_t>(child), &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : failed;
}

}  // namespace

// A shared library that could not open a file at first took its own process for another one, for good.
TEST_CASE("a process of which only the number is known is the same one") {
    const auto known = on_linux::current_process();
    CHECK(known.has_begin());
    CHECK(known == on_posix::current_process());
    CHECK(known != distlock::detail::process_id{on_posix::current_process().value + 1});
    CHECK(known != distlock::detail::process_id{known.value + distlock::detail::process_id::numbers});
}

// The service was the first process of its container, and its child in another namespace released its lock.
TEST_CASE("a child that has its parent's number, in a namespace of its own, is another process") {
    const int known = as_number_one([] {
        const auto parent = on_linux::current_process();
        const int other =
            as_number_one([&] { return on_linux::current_process() != parent ? passed : failed; });
        return other == passed && on_linux::current_process() == parent ? passed : failed;
    });
    NOT_TESTED_UNLESS(known != not_tested, "the system permits no process namespaces");
    CHECK(known == passed);
}

// A daemon whose parent had ended started a child that was given the parent's number: it had that one's
// locks, and waited at its end for threads that it had not.
TEST_CASE("a descendant that has the number of an ancestor that is gone is another process") {
    // Returns: the status of a child, which passed when it knows that it is another process than `first`,
    // whose number it has.
    const auto with_number_of = [](pid_t first, distlock::detail::process_id known) {
        // The kernel tells when a process began in hundredths of a second.
        const auto told = on_linux::clock_time() + 20ms;
        while (::kill(first, 0) == 0 || on_linux::clock_time() < told) ::sched_yield();
        const int last = ::open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
        const auto text = std::to_string(first - 1);
        if (::write(last, text.data(), text.size()) < 0) return not_tested;
        const pid_t child = ::fork();
        if (child == 0) ::_exit(on_linux::current_process() != known ? passed : failed);
        int status = -1;
        ::waitpid(child, &status, 0);
        return child == first ? WEXITSTATUS(status) : not_tested;
    };
    const int known = as_number_one([&] {
        // So that /proc, too, has the numbers of this namespace.
        const bool alone = ::unshare(CLONE_NEWNS) == 0 &&
                           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                           ::mount("proc", "/proc", "proc", 0, nullptr) == 0;
        const pid_t first = ::fork();
        if (first == 0) {
            const auto its = on_linux::current_process();
            const pid_t mine = ::getpid();
            if (::fork() == 0) ::_exit(with_number_of(mine, its));
            ::_exit(0);
        }
        ::waitpid(first, nullptr, 0);
        int end = -1;
        while (::waitpid(-1, &end, 0) < 0 && errno == EINTR) continue;
        const int known_there = WIFEXITED(end) ? WEXITSTATUS(end) : failed;
        return known_there == passed && !alone ? not_tested : known_there;
    });
    NOT_TESTED_UNLESS(
        known != not_tested,
        "the system permits no process namespaces with a /proc of their own, or lets nobody choose a number");
    CHECK(known == passed);
}
#endif

TEST_CASE("the machine has a name") {
    std::array<char, 256> name{};
    REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
    CHECK(detail::host_name() == name.data());
    CHECK_FALSE(detail::host_name().empty());
}

TEMPLATE_TEST_CASE("a call before the sleep is not missed", "", WAYS) {
    typename TestType::parker bed;
    bed.call(7);
    const auto begun = now();
    bed.sleep(never);
    REQUIRE(now() - begun < never / 2);
    bed.sleep(std::nullopt);
    CHECK(bed.word() == 7);
}

TEMPLATE_TEST_CASE("a call from another thread ends the sleep", "", WAYS) {
    for (std::uint32_t round = 1; round <= 100; ++round) {
        typename TestType::parker bed;
        const auto begun = now();
        std::thread caller([&] { bed.call(round); });
        while (bed.word() == 0 && now() - begun < never)
            bed.sleep(round % 2 == 0 ? std::optional(never) : std::nullopt);
        CHECK(now() - begun < never / 2);
        CHECK(bed.word() == round);
        caller.join();
    }
}

TEMPLATE_TEST_CASE("a nudge wakes, and does not overwrite a call", "", WAYS) {
    typename TestType::parker bed;
    std::thread other([&] { bed.nudge(1); });
    const auto begun = now();
    while (bed.word() == 0 && now() - begun < never) bed.sleep(never);
    other.join();
    CHECK(now() - begun < never / 2);
    CHECK(bed.word() == 1);
    bed.rest();
    CHECK(bed.word() == 0);
    bed.call(2);
    bed.nudge(1);
    CHECK(bed.word() == 2);
    bed.call(3);
    CHECK(bed.word() == 3);
}

TEMPLATE_TEST_CASE("a sleep ends by its time-out", "", WAYS) {
    typename TestType::parker bed;
    const auto begun = now();
    for (const auto longest : {0ns, 1ns, 999'999ns, std::chrono::nanoseconds(20ms)}) bed.sleep(longest);
    CHECK(now() - begun < never / 2);
    // Early when it likes, but not as a rule: a loop around it must not keep a processor busy.
    bed.rest();
    int sleeps = 0;
    for (const auto from = now(); now() - from < 50ms; ++sleeps) bed.sleep(10ms);
    CHECK(sleeps < 100);
    CHECK(bed.word() == 0);
}

TEMPLATE_TEST_CASE("a parker may end as soon as its thread has seen the word", "", WAYS) {
    using parker = typename TestType::parker;
    // Made in memory that is all zeros afterwards, and stays so: a call that is not over by
    // then writes into it.
    alignas(parker) std::array<unsigned char, sizeof(parker)> memory{};
    std::atomic<parker*> to_call{nullptr};
    std::atomic<bool> over{false};
    std::thread caller([&] {
        while (!over) {
            if (parker* const one = to_call.load()) {
                one->call(1);
                to_call = nullptr;
            } else {
                std::this_thread::yield();
            }
        }
    });
    int late = 0;
    const auto begun = now();
    for (int round = 0; round < 20'000 && now() - begun < 300ms; ++round) {
        auto* const bed = new (memory.data()) parker;
        to_call = bed;
        while (bed->word() == 0) {
            if (round % 4 == 0) bed->sleep(never);
        }
        bed->~parker();
        memory.fill(0);
        while (to_call.load() != nullptr) std::this_thread::yield();
        if (std::any_of(memory.begin(), memory.end(), [](auto byte) { return byte != 0; })) ++late;
    }
    over = true;
    caller.join();
    CHECK(late == 0);
}

TEMPLATE_TEST_CASE("an event that is set before it is waited for is seen", "", WAYS) {
    typename TestType::wake_event event;
    CHECK_FALSE(readable<TestType>(event.fd(), 0ns));
    event.set();
    CHECK(readable<TestType>(event.fd(), never));
    CHECK(readable<TestType>(event.fd(), never));
}

TEMPLATE_TEST_CASE("an event that is set many times is set once, and says so when it is reset", "", WAYS) {
    typename TestType::wake_event event;
    CHECK_FALSE(event.reset());
    for (const int times : {1, 2, 64, 65, 200'000}) {
        for (int i = 0; i < times; ++i) event.set();
        CHECK(event.reset());
        CHECK_FALSE(event.reset());
        CHECK_FALSE(readable<TestType>(event.fd(), 0ns));
    }
}

TEMPLATE_TEST_CASE("an event that another thread sets ends the wait", "", WAYS) {
    typename TestType::wake_event event;
    for (int round = 0; round < 100; ++round) {
        std::thread setter([&] { event.set(); });
        CHECK(readable<TestType>(event.fd(), never));
        setter.join();
        CHECK(event.reset());
    }
}

TEMPLATE_TEST_CASE("a wait ends by its time-out, and not before it", "", WAYS) {
    const typename TestType::wake_event event;
    for (const auto longest : {0ns, 1ns, 300'000ns, 1'000'001ns, 3'999'999ns}) {
        const auto begun = now();
        CHECK_FALSE(readable<TestType>(event.fd(), longest));
        CHECK(now() - begun >= longest);
        CHECK(now() - begun < never / 2);
    }
}

TEMPLATE_TEST_CASE("sending to a peer that is gone fails, and raises no signal", "", WAYS) {
    CHECK(in_child([] {
        std::signal(SIGPIPE, SIG_DFL);
        connected pair = connect_to_ourselves<TestType>();
        pair.theirs = file_descriptor();
        const auto end = now() + never / 2;
        while (now() < end) {
            if (::send(pair.ours.get(), "x", 1, detail::send_flags) < 0 && errno == EPIPE) return true;
        }
        return false;
    }));
}

TEMPLATE_TEST_CASE("no program that is started inherits a socket, a pipe or an event", "", WAYS) {
    const connected pair = connect_to_ourselves<TestType>();
    CHECK(closes_on_exec(pair.ours));
    CHECK(closes_on_exec(pair.theirs));
    const detail::pipe_ends pipe = TestType::open_pipe(when_busy::wait);
    CHECK(closes_on_exec(pipe.read));
    CHECK(closes_on_exec(pipe.write));
    const typename TestType::wake_event event;
    CHECK((::fcntl(event.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEMPLATE_TEST_CASE("a descriptor blocks when it was asked to, an accepted socket never", "", WAYS) {
    const connected pair = connect_to_ourselves<TestType>();
    CHECK_FALSE(never_blocks(pair.ours));
    CHECK(never_blocks(pair.theirs));
    CHECK(never_blocks(TestType::open_socket(AF_UNIX, when_busy::fail)));
    for (const auto what : {when_busy::wait, when_busy::fail}) {
        const detail::pipe_ends pipe = TestType::open_pipe(what);
        CHECK(never_blocks(pipe.read) == (what == when_busy::fail));
        CHECK(never_blocks(pipe.write) == (what == when_busy::fail));
    }
}

TEMPLATE_TEST_CASE("a socket that cannot be had says why", "", WAYS) {
    errno = 0;
    CHECK_FALSE(TestType::open_socket(-1, when_busy::fail));
    CHECK(errno == EAFNOSUPPORT);
    CHECK_FALSE(TestType::accept_socket(-1));
    CHECK(errno == EBADF);
}

}  // namespace system_tests
