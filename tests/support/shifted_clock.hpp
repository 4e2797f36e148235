// The clocks of a server under the test's hands: set forward and back, run fast or slow, stopped.
//
//   shifted_clock clock;
//   redis_server server({.environment = clock.environment()});
//   clock.jump_wall(-1h); clock.rate_wall(500); clock.freeze_wall(at); clock.thaw_wall();
//       // and each with _steady
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "clock_page.hpp"

/// For the processes that are started with its environment(), also for those that are started anew. "Wall" is
/// CLOCK_REALTIME; "steady" is CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME. A change is seen by
/// the next call that asks for the time. What a process waits for in the kernel is not touched. Must outlive
/// those processes; one thread changes it at a time.
class shifted_clock {
  public:
    using duration = std::chrono::nanoseconds;

    /// Throws: std::system_error.
    shifted_clock() {
        std::error_code no_such_folder;
        path_ = (std::filesystem::temp_directory_path(no_such_folder) / "distlock-clock-XXXXXX").string();
        if (no_such_folder) path_ = "/tmp/distlock-clock-XXXXXX";
        const int fd = ::mkostemp(path_.data(), O_CLOEXEC);
        if (fd < 0) throw std::system_error(errno, std::generic_category(), path_);
        void* memory = MAP_FAILED;
        if (::ftruncate(fd, sizeof(clock_page)) == 0)
            memory = ::mmap(nullptr, sizeof(clock_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        const int failed = errno;
        ::close(fd);
        if (memory == MAP_FAILED) {
            ::unlink(path_.c_str());
            throw std::system_error(failed, std::generic_category(), path_);
        }
        page_ = new (memory) clock_page{};
    }
    shifted_clock(const shifted_clock&) = delete;
    shifted_clock& operator=(const shifted_clock&) = delete;
    ~shifted_clock() {
        ::munmap(page_, sizeof(clock_page));
        ::unlink(path_.c_str());
    }

#ifdef DISTLOCK_CLOCK_SHIM
    /// Returns: what a process must have in its environment; for redis_server_options::environment.
    std::vector<std::string> environment() const { return environment(DISTLOCK_CLOCK_SHIM); }
#endif
    /// `shim`: where clock_shim.cpp was linked to, as a shared library.
    std::vector<std::string> environment(const std::string& shim) const {
        return {"LD_PRELOAD=" + shim, "DISTLOCK_CLOCK=" + path_};
    }

    /// Effects: sets the clock forward, or back; a frozen one too.
    void jump_wall(duration by) { jump(page_->wall, by); }
    void jump_steady(duration by) { jump(page_->steady, by); }

    /// Effects: from now on the clock runs so many parts per million faster than the true one; negative:
    /// slower. A frozen one does so when it is thawed.
    void rate_wall(std::int64_t parts_per_million) { set_rate(page_->wall, parts_per_million); }
    void rate_steady(std::int64_t parts_per_million) { set_rate(page_->steady, parts_per_million); }

    /// Effects: the clock stands at this time: since the epoch, or since what CLOCK_MONOTONIC counts from.
    void freeze_wall(duration at) { freeze(page_->wall, at); }
    void freeze_steady(duration at) { freeze(page_->steady, at); }
    void freeze_wall() { freeze_wall(wall()); }
    void freeze_steady() { freeze_steady(steady()); }
    /// Effects: a frozen clock goes on from where it stands.
    void thaw_wall() { thaw(page_->wall, CLOCK_REALTIME); }
    void thaw_steady() { thaw(page_->steady, CLOCK_MONOTONIC); }

    /// Returns: what the clock shows those processes.
    duration wall() const { return shown(page_->wall, CLOCK_REALTIME); }
    duration steady() const { return shown(page_->steady, CLOCK_MONOTONIC); }

  private:
    static std::int64_t true_time(clockid_t id) {
        timespec t{};
        ::clock_gettime(id, &t);
        return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
    }
    static duration shown(const clock_control& control, clockid_t id) {
        return duration(read(control).shown(true_time(id), true_time(CLOCK_MONOTONIC)));
    }
    static clock_setting read(const clock_control& control) {
        return {control.offset, control.anchor, control.rate, control.frozen != 0, control.stands};
    }

    // Who asks for the time meanwhile waits; so what `change` reads of the true clocks is not old
    // when it is in force.
    template <class Change>
    void write(clock_control& control, Change change) {
        page_->sequence.fetch_add(1, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        clock_setting now = read(control);
        change(now);
        control.offset.store(now.offset, std::memory_order_relaxed);
        control.anchor.store(now.anchor, std::memory_order_relaxed);
        control.rate.store(now.rate, std::memory_order_relaxed);
        control.frozen.store(now.frozen ? 1 : 0, std::memory_order_relaxed);
        control.stands.store(now.stands, std::memory_order_relaxed);
        page_->sequence.fetch_add(1, std::memory_order_release);
    }
    void jump(clock_control& control, duration by) {
        write(control, [by](clock_setting& now) { (now.frozen ? now.stands : now.offset) += by.count(); });
    }
    void freeze(clock_control& control, duration at) {
        write(control, [at](clock_setting& now) {
            now.frozen = true;
            now.stands = at.count();
        });
    }
    void thaw(clock_control& control, clockid_t id) {
        write(control, [id](clock_setting& now) {
            if (!now.frozen) return;
            now.frozen = false;
            now.anchor = true_time(CLOCK_MONOTONIC);
            now.offset = now.stands - true_time(id);
        });
    }
    void set_rate(clock_control& control, std::int64_t parts_per_million) {
        write(control, [parts_per_million](clock_setting& now) {
            const std::int64_t monotonic = true_time(CLOCK_MONOTONIC);
            now.offset += now.gained(monotonic);
            now.anchor = monotonic;
            now.rate = parts_per_million;
        });
    }

    std::string path_;
    clock_page* page_ = nullptr;
};
