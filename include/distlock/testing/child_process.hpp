// A program run beside this one that never outlives it: the process half of testing::redis_server.
//
//   class child_process;   // spawn, pause, resume, stop by pid; gone when its owner is gone, even by SIGKILL
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/detail/system_io.hpp>

extern char** environ;

namespace distlock::testing::impl {

using unique_fd = detail::file_descriptor;

inline void nap(std::chrono::milliseconds duration) noexcept {
    ::poll(nullptr, 0, static_cast<int>(duration.count()));
}

/// Returns: whether `program` is found where posix_spawnp() looks for it.
inline bool on_path(const std::string& program) {
    const char* const path = std::getenv("PATH");
    std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
    while (!rest.empty()) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        rest.remove_prefix(folder.size() < rest.size() ? folder.size() + 1 : rest.size());
        const std::string file = std::string(folder.empty() ? "." : folder) + "/" + program;
        if (::access(file.c_str(), X_OK) == 0) return true;
    }
    return false;
}

/// What a child starts with: default signals, an empty signal mask, none of our descriptors, its own group.
class spawn_plan {
  public:
    /// `group` 0 makes the child the leader of a new process group.
    explicit spawn_plan(pid_t group) {
        check(::posix_spawnattr_init(&attributes_));
        if (const int failed = ::posix_spawn_file_actions_init(&actions_); failed != 0) {
            ::posix_spawnattr_destroy(&attributes_);
            check(failed);
        }
        sigset_t none;
        sigset_t all;
        sigemptyset(&none);  // macros on some systems
        sigfillset(&all);
        sigdelset(&all, SIGKILL);
        sigdelset(&all, SIGSTOP);
        ::posix_spawnattr_setsigmask(&attributes_, &none);
        ::posix_spawnattr_setsigdefault(&attributes_, &all);
        ::posix_spawnattr_setpgroup(&attributes_, group);
        ::posix_spawnattr_setflags(&attributes_,
                                   POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    }
    spawn_plan(const spawn_plan&) = delete;
    spawn_plan& operator=(const spawn_plan&) = delete;
    ~spawn_plan() {
        ::posix_spawn_file_actions_destroy(&actions_);
        ::posix_spawnattr_destroy(&attributes_);
    }

    void input(int fd) { check(::posix_spawn_file_actions_adddup2(&actions_, fd, STDIN_FILENO)); }
    void input(const char* path) {
        check(::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, path, O_RDONLY, 0));
    }
    void output(const char* path) {
        check(::posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, path,
                                                 O_WRONLY | O_CREAT | O_APPEND, 0600));
        check(::posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, STDERR_FILENO));
    }

    /// Effects: adds these "NAME=value" to what the child has in its environment; they win.
    void environment(const std::vector<std::string>& entries) { entries_ = entries; }

    /// Throws: std::system_error with what the operating system said, for instance ENOENT.
    pid_t start(const std::string& program, const std::vector<std::string>& arguments) {
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 34)
        // Descriptors of the owner that are not close-on-exec: a server must not keep the owner's pipes open.
        check(::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1));
#endif
#endif
        std::vector<char*> argv{const_cast<char*>(program.c_str())};
        for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
        argv.push_back(nullptr);
        std::vector<char*> variables;
        for (const std::string& entry : entries_) variables.push_back(const_cast<char*>(entry.c_str()));
        for (char** inherited = environ; inherited != nullptr && *inherited != nullptr; ++inherited) {
            if (!is_replaced(*inherited)) variables.push_back(*inherited);
        }
        variables.push_back(nullptr);
        pid_t pid = -1;
        check(::posix_spawnp(&pid, program.c_str(), &actions_, &attributes_, argv.data(), variables.data()));
        return pid;
    }

  private:
    bool is_replaced(std::string_view inherited) const {
        const auto name = inherited.substr(0, inherited.find('=')).size() + 1;  // with the '='
        for (const std::string_view entry : entries_) {
            if (entry.substr(0, name) == inherited.substr(0, name)) return true;
        }
        return false;
    }

    static void check(int failed) {
        if (failed != 0) throw std::system_error(failed, std::generic_category());
    }

    posix_spawnattr_t attributes_;
    posix_spawn_file_actions_t actions_;
    std::vector<std::string> entries_;
};

/// A running program, and beside it a minder: a shell that does nothing but read a pipe whose only write end
/// this process holds. When this process ends, however it ends, the kernel closes that end, and the minder
/// kills its process group: the program and itself. A group cannot be mistaken for another while its leader
/// lives, so no process number is ever reused under our hands; and the group is not the terminal's, so Ctrl-C
/// reaches the owner first. (A child forked without exec holds a copy of the write end: if it outlives its
/// killed parent, so does the program.)
class child_process {
  public:
    /// Effects: runs `program` (looked up on PATH), its output appended to the file `output`, with these
    /// "NAME=value" added to its environment.
    /// Throws: std::system_error if it cannot be run.
    child_process(const std::string& program, const std::vector<std::string>& arguments,
                  const std::string& output, const std::vector<std::string>& environment = {}) {
        detail::pipe_ends ends = detail::open_pipe(detail::when_busy::wait);
        if (!ends.read) throw std::system_error(errno, std::generic_category());
        lifeline_ = std::move(ends.write);

        spawn_plan minder{0};
        minder.input(ends.read.get());
        minder.output("/dev/null");
        minder_ =
            minder.start("/bin/sh", {"-c", "trap '' HUP INT QUIT TERM TSTP; read -r _; kill -s KILL 0"});
        try {
            // Were this process killed right here, the new child would hold the write end until its exec, so
            // the minder cannot fire before the child has joined the group it kills.
            spawn_plan plan{minder_};
            plan.input("/dev/null");
            plan.output(output.c_str());
            plan.environment(environment);
            pid_ = plan.start(program, arguments);
        } catch (...) {
            kill();
            throw;
        }
    }
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;
    ~child_process() { kill(); }

    pid_t pid() const noexcept { return pid_; }

    /// Returns: false once the program has ended; a paused one is running.
    bool running() const noexcept { return pid_ > 0 && !has(pid_, WEXITED | WNOHANG); }

    /// Effects: stops the program where it stands; returns when all of its threads have, or it ended.
    void pause() noexcept {
        if (!running()) return;
        ::kill(pid_, SIGSTOP);
        has(pid_, WSTOPPED | WEXITED);
    }

    void resume() noexcept {
        if (running()) ::kill(pid_, SIGCONT);
    }

    /// Effects: asks the program to end (continuing it if it is paused), and after `patience` makes it.
    void stop(std::chrono::milliseconds patience) noexcept {
        using namespace std::chrono;
        if (running()) {
            ::kill(pid_, SIGTERM);
            ::kill(pid_, SIGCONT);
        }
        for (const auto deadline = steady_clock::now() + patience;
             running() && steady_clock::now() < deadline;) {
            nap(milliseconds{2});
        }
        kill();
    }

    /// Effects: ends the program, its own children and the minder at once, and waits until they are gone.
    void kill() noexcept {
        if (minder_ > 0) ::kill(-minder_, SIGKILL);
        reap(pid_);
        reap(minder_);
        lifeline_ = unique_fd{};
    }

    /// Effects: forgets the program: for the copy of this object that a child has after fork().
    void disown() noexcept { minder_ = pid_ = -1; }

  private:
    // Peeks only (WNOWAIT): until kill() reaps them, both process numbers stay ours.
    static bool has(pid_t pid, int events) noexcept {
        siginfo_t seen{};
        int failed;
        do {
            failed = ::waitid(P_PID, static_cast<id_t>(pid), &seen, events | WNOWAIT);
        } while (failed != 0 && errno == EINTR);
        return failed != 0 ||
               seen.si_pid == pid;  // an error is ECHILD: somebody waits for all children, or ignores SIGCHLD
    }

    static void reap(pid_t& pid) noexcept {
        while (pid > 0 && ::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
        pid = -1;
    }

    pid_t minder_ = -1;
    pid_t pid_ = -1;
    unique_fd lifeline_;
};

}  // namespace distlock::testing::impl
