// A lock client of another language, as a process that is asked by lines.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>

namespace interop {

/// Where the programs were built, and what runs them: see run.sh.
inline std::string built() {
    const char* where = std::getenv("DISTLOCK_INTEROP");
    return where != nullptr ? where : "";
}

class peer {
  public:
    /// Effects: starts the program, and waits until it is ready.
    explicit peer(const std::vector<std::string>& words) {
        int to[2];
        int from[2];
        if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
        process_ = ::fork();
        if (process_ < 0) throw std::runtime_error("no process");
        if (process_ == 0) {
            ::dup2(to[0], STDIN_FILENO);
            ::dup2(from[1], STDOUT_FILENO);
            std::vector<char*> argv;
            for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
            argv.push_back(nullptr);
            ::execvp(argv[0], argv.data());
            ::_exit(127);
        }
        ::close(to[0]);
        ::close(from[1]);
        to_ = to[1];
        from_ = from[0];
        if (line() != "ready") throw std::runtime_error("the program did not start: " + words.front());
    }
    peer(peer&& other) noexcept
        : process_(std::exchange(other.process_, -1)),
          to_(std::exchange(other.to_, -1)),
          from_(std::exchange(other.from_, -1)),
          read_(std::move(other.read_)) {}
    peer& operator=(peer&&) = delete;
    ~peer() { kill(); }

    void kill() noexcept {
        if (process_ <= 0) return;
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
        process_ = -1;
        ::close(to_);
        ::close(from_);
    }

    void say(const std::string& request) const {
        const std::string text = request + "\n";
        if (::write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
            throw std::runtime_error("the program has ended");
    }

    /// Returns: its next line.
    /// Throws: std::runtime_error when none comes within two minutes.
    std::string line() {
        const auto deadline = distlock::clock::now() + std::chrono::minutes{2};
        for (;;) {
            if (const auto end = read_.find('\n'); end != std::string::npos) {
                std::string one = read_.substr(0, end);
                read_.erase(0, end + 1);
                return one;
            }
            pollfd ready{from_, POLLIN, 0};
            if (distlock::clock::now() > deadline) throw std::runtime_error("the program is silent");
            if (::poll(&ready, 1, 1000) <= 0) continue;
            char buffer[4096];
            const auto got = ::read(from_, buffer, sizeof buffer);
            if (got <= 0) throw std::runtime_error("the program has ended");
            read_.append(buffer, static_cast<std::size_t>(got));
        }
    }

    std::string ask(const std::string& request) {
        say(request);
        return line();
    }

  private:
    pid_t process_ = -1;
    int to_ = -1;
    int from_ = -1;
    std::string read_;
};

}  // namespace interop
