// Processes that own a lock in turn, and can be stopped where they stand. They never outlive their parent.
#pragma once

#include <cerrno>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

/// A child forked from here, which leaves without running anything else. It is killed with its
/// parent, stopped or not.
class owner_process {
  public:
    /// Preconditions: this process has one thread.
    template <class Piece>
    explicit owner_process(Piece piece) {
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ < 0) throw std::system_error(errno, std::generic_category());
        if (pid_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(2);  // it was gone before
        ::_exit(piece() ? 0 : 1);
    }
    owner_process(const owner_process&) = delete;
    owner_process& operator=(const owner_process&) = delete;
    ~owner_process() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        wait(WEXITED);
    }

    /// Effects: stops the child wherever it is, and all of its threads; returns when they stand.
    /// Returns: false when it has ended.
    bool stop() {
        if (pid_ <= 0) return false;
        ::kill(pid_, SIGSTOP);
        stopped_ = wait(WSTOPPED | WEXITED).si_code == CLD_STOPPED;
        return stopped_;
    }
    void go_on() {
        if (pid_ > 0) ::kill(pid_, SIGCONT);
        stopped_ = false;
    }
    bool stopped() const { return stopped_; }

    pid_t pid() const { return pid_; }

    /// Returns: whether it has ended, and well.
    bool ended_well() {
        if (pid_ > 0) wait(WEXITED | WNOHANG);
        return pid_ <= 0 && last_.si_code == CLD_EXITED && last_.si_status == 0;
    }
    /// Returns: how it ended, for a person to read.
    std::string end() const {
        if (pid_ > 0) return "process " + std::to_string(pid_) + " goes on";
        const auto what = last_.si_code == CLD_EXITED ? "exit code " : "signal ";
        return what + std::to_string(last_.si_status);
    }

  private:
    siginfo_t wait(int events) {
        siginfo_t seen{};
        while (::waitid(P_PID, static_cast<id_t>(pid_), &seen, events) < 0 && errno == EINTR) continue;
        if (seen.si_pid == pid_ && seen.si_code != CLD_STOPPED) {
            last_ = seen;
            pid_ = -1;
        }
        return seen;
    }

    pid_t pid_ = -1;
    bool stopped_ = false;
    siginfo_t last_{};
};
