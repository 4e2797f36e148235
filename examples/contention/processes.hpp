// The processes of the contention demo: what they share, how they are started, and that they always end.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace contention {

[[noreturn]] inline void throw_errno(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

/// A folder of our own, gone at the end of the scope.
class temporary_folder {
  public:
    temporary_folder() : path_((std::filesystem::temp_directory_path() / "contention-XXXXXX").string()) {
        if (::mkdtemp(path_.data()) == nullptr) throw_errno(path_);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

/// A number in a file. Reading and writing it is one system call each, and nothing protects the time between.
class counter_file {
  public:
    explicit counter_file(const std::string& path)
        : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
        if (fd_ < 0) throw_errno(path);
    }
    counter_file(const counter_file&) = delete;
    counter_file& operator=(const counter_file&) = delete;
    ~counter_file() { ::close(fd_); }

    long long read() const {
        char text[width + 1] = {};
        if (::pread(fd_, text, width, 0) != width) throw_errno("reading the counter");
        return std::strtoll(text, nullptr, 10);
    }
    void write(long long number) {
        char text[width + 8];
        std::snprintf(text, sizeof text, "%020lld\n", number);
        if (::pwrite(fd_, text, width, 0) != width) throw_errno("writing the counter");
    }

  private:
    static constexpr int width = 21;  // every number is written over the whole of the one before
    int fd_;
};

/// SIGINT, SIGTERM and SIGHUP end the demo, SIGCHLD says that a worker ended. They are blocked and taken
/// where it suits, so that everything is put away by destructors and no code runs inside a signal handler.
inline sigset_t awaited_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&set, signal);
    return set;
}

/// Before the first thread starts, so that all of them inherit it; the workers do, too.
inline void block_awaited_signals() {
    const sigset_t set = awaited_signals();
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    ::signal(SIGPIPE, SIG_IGN);  // whoever reads our output may go away; we still tidy up
}

/// Returns: the signal that came first, 0 if none did for `patience`.
inline int next_signal(std::chrono::milliseconds patience) {
    const sigset_t set = awaited_signals();
    const timespec wait{static_cast<time_t>(patience.count() / 1000),
                        static_cast<long>(patience.count() % 1000 * 1000000)};
    const int signal = ::sigtimedwait(&set, nullptr, &wait);
    return signal > 0 ? signal : 0;
}

/// Somebody asked us to stop.
struct interrupted {
    int signal;
};

/// Processes that run this very program with other arguments. None survives the group.
class worker_group {
  public:
    worker_group() = default;
    worker_group(const worker_group&) = delete;
    worker_group& operator=(const worker_group&) = delete;
    ~worker_group() {
        using namespace std::chrono;
        for (const pid_t pid : running_) ::kill(pid, SIGTERM);
        for (const auto deadline = steady_clock::now() + seconds{3}; steady_clock::now() < deadline;) {
            collect();
            if (running_.empty()) return;
            ::poll(nullptr, 0, 5);
        }
        for (const pid_t pid : running_) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
    }

    void start(std::vector<std::string> arguments) {
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        pid_t pid = -1;
        errno = ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
        if (errno != 0) throw_errno("starting a process");
        running_.push_back(pid);
    }

    /// Effects: Waits until all have ended well, calling `tick` now and then.
    /// Throws: interrupted; std::runtime_error when one failed or `deadline` has passed.
    void wait(std::chrono::steady_clock::time_point deadline, const std::function<void()>& tick) {
        while (!running_.empty()) {
            const int signal = next_signal(std::chrono::milliseconds{50});
            if (signal != 0 && signal != SIGCHLD) throw interrupted{signal};
            if (!collect()) throw std::runtime_error("a process failed; it has said why above");
            if (std::chrono::steady_clock::now() > deadline)
                throw std::runtime_error("a process did not finish in time");
            tick();
        }
    }

  private:
    // Returns: false if one of those that ended meanwhile had failed.
    bool collect() {
        bool all_well = true;
        std::erase_if(running_, [&](pid_t pid) {
            int status = 0;
            if (::waitpid(pid, &status, WNOHANG) != pid) return false;
            all_well = all_well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            return true;
        });
        return all_well;
    }

    std::vector<pid_t> running_;
};

}  // namespace contention
