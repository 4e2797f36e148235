// For LD_PRELOAD: the clocks of a process as the file says that the environment variable DISTLOCK_CLOCK
// names. See shifted_clock.hpp, which makes that file. Without the variable every clock is the true one.
//
//   clock_gettime, gettimeofday, time
//
// A server's allocator asks for the time before anything is set up: nothing here allocates, throws, or
// calls more of the C library than syscall(). What waits in the kernel (poll with a time-out, for one)
// waits by the true clocks.
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "clock_page.hpp"

extern char** environ;

namespace {

constexpr std::int64_t second = 1'000'000'000;
const clock_page* page = nullptr;

std::int64_t true_time(clockid_t id) {
    timespec t{};
    ::syscall(SYS_clock_gettime, id, &t);
    return t.tv_sec * second + t.tv_nsec;
}

// The clocks are read between the two looks at the sequence, too: with a setting that is no longer in force a
// clock would seem to jump back.
std::int64_t shown_time(clockid_t id, const clock_control& control) {
    for (;;) {
        const auto before = page->sequence.load(std::memory_order_acquire);
        const clock_setting now{
            control.offset.load(std::memory_order_relaxed), control.anchor.load(std::memory_order_relaxed),
            control.rate.load(std::memory_order_relaxed), control.frozen.load(std::memory_order_relaxed) != 0,
            control.stands.load(std::memory_order_relaxed)};
        std::int64_t shown = now.stands;
        if (!now.frozen) {
            const std::int64_t real = true_time(id);
            const bool is_the_anchors =
                now.rate == 0 || id == CLOCK_MONOTONIC;  // or what it is does not matter
            shown = now.shown(real, is_the_anchors ? real : true_time(CLOCK_MONOTONIC));
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        if (before % 2 == 0 && page->sequence.load(std::memory_order_relaxed) == before) return shown;
    }
}

// Returns: what governs this clock; null: it is left alone.
const clock_control* control_of(clockid_t id) {
    if (page == nullptr) return nullptr;
    switch (id) {
        case CLOCK_REALTIME:
        case CLOCK_REALTIME_COARSE:
            return &page->wall;
        case CLOCK_MONOTONIC:
        case CLOCK_MONOTONIC_RAW:
        case CLOCK_MONOTONIC_COARSE:
        case CLOCK_BOOTTIME:
            return &page->steady;
        default:
            return nullptr;
    }
}

std::int64_t wall_time() {
    return page == nullptr ? true_time(CLOCK_REALTIME) : shown_time(CLOCK_REALTIME, page->wall);
}

// Returns: whole units of so many ns, rounded down also before the epoch.
std::int64_t whole(std::int64_t time, std::int64_t unit) { return time / unit - (time % unit < 0 ? 1 : 0); }

// Returns: the value of this variable; null: there is none.
const char* variable(const char* name) {
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        std::size_t i = 0;
        while (name[i] != '\0' && (*entry)[i] == name[i]) ++i;
        if (name[i] == '\0' && (*entry)[i] == '=') return *entry + i + 1;
    }
    return nullptr;
}

[[gnu::constructor]] void open_page() {
    const char* const path = variable("DISTLOCK_CLOCK");
    if (path == nullptr) return;
    const auto fd = ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) ::syscall(SYS_exit_group, 127);  // a clock that nobody shifts would prove nothing
    void* const memory = ::mmap(nullptr, sizeof(clock_page), PROT_READ, MAP_SHARED, static_cast<int>(fd), 0);
    ::syscall(SYS_close, fd);
    if (memory == MAP_FAILED) ::syscall(SYS_exit_group, 127);
    page = static_cast<const clock_page*>(memory);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t id, timespec* out) noexcept {
    const clock_control* const control = control_of(id);
    if (control == nullptr) return static_cast<int>(::syscall(SYS_clock_gettime, id, out));
    const std::int64_t now = shown_time(id, *control);
    out->tv_sec = whole(now, second);
    out->tv_nsec = now - out->tv_sec * second;
    return 0;
}

int gettimeofday(timeval* __restrict out, void* __restrict zone) noexcept {
    if (zone != nullptr) *static_cast<struct timezone*>(zone) = {};
    const std::int64_t now = wall_time();
    out->tv_sec = whole(now, second);
    out->tv_usec = (now - out->tv_sec * second) / 1000;
    return 0;
}

time_t time(time_t* out) noexcept {
    const time_t now = whole(wall_time(), second);
    if (out != nullptr) *out = now;
    return now;
}
}
