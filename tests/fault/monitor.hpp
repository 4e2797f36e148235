// A server's MONITOR, read while it runs: every command as the server executed it, in order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/testing.hpp>
#include <distlock/wire/script.hpp>

#include "support/waiting.hpp"

class monitor {
  public:
    using words = std::vector<std::string>;
    struct entry {
        std::chrono::microseconds at;  // by the server's wall clock
        words command;                 // inside a script "lua" stands before it
    };

    /// Effects: watches `server`, until it is destroyed.
    explicit monitor(const distlock::testing::redis_server& server) : server_(server) {
        fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, server.socket_path().data(), server.socket_path().size());
        constexpr std::string_view request = "*1\r\n$7\r\nMONITOR\r\n";
        const bool asked =
            ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
            ::send(fd_, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size());
        if (!asked) {
            ::close(fd_);
            throw std::runtime_error("no monitor");
        }
        reader_ = std::thread([this] { read(); });
        eventually([this] { return received_.load() > 0; });  // "+OK"
    }
    monitor(const monitor&) = delete;
    monitor& operator=(const monitor&) = delete;
    ~monitor() {
        ::shutdown(fd_, SHUT_RDWR);
        if (reader_.joinable()) reader_.join();
        ::close(fd_);
    }

    /// Returns: whether a command is a call of the script, with a key and a token.
    static bool runs(const words& w, const distlock::script& s) {
        return w.size() > 4 &&
               ((w[0] == "EVALSHA" && w[1] == s.sha1()) || (w[0] == "EVAL" && w[1] == s.text()));
    }

    /// Effects: sends a command that means nothing, so that it stands among the others.
    void mark(std::string_view text) const { server_.command({"ECHO", text}); }

    /// Effects: ends the watching, once all commands until now have come.
    /// Returns: the commands; those inside scripts have "lua" before their first word.
    std::vector<words> end() {
        std::vector<words> commands;
        for (entry& e : end_timed()) commands.push_back(std::move(e.command));
        return commands;
    }
    std::vector<entry> end_timed() {
        mark(last_);
        // Only the reader looks for it: it ends by itself.
        reader_.join();
        std::vector<entry> commands;
        std::string_view rest = text_;
        while (!rest.empty()) {
            const auto line = rest.substr(0, rest.find("\r\n"));
            rest.remove_prefix(std::min(rest.size(), line.size() + 2));
            if (auto one = parse(line); !one.empty()) commands.push_back({time_of(line), std::move(one)});
        }
        return commands;
    }

  private:
    void read() {
        std::vector<char> chunk(1 << 16);
        const std::string last = "\"" + last_ + "\"\r\n";
        for (;;) {
            const auto n = ::recv(fd_, chunk.data(), chunk.size(), 0);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return;
            // Others may have said something right behind it.
            const auto from = text_.size() - std::min(text_.size(), last.size());
            text_.append(chunk.data(), static_cast<std::size_t>(n));
            received_ = text_.size();
            if (text_.find(last, from) != std::string::npos) return;
        }
    }

    static std::chrono::microseconds time_of(std::string_view line) {
        std::string digits(line.substr(1, line.find(' ') - 1));
        std::erase(digits, '.');
        return std::chrono::microseconds(std::strtoll(digits.c_str(), nullptr, 10));
    }

    static std::string unescaped(std::string_view word) {
        std::string text;
        for (std::size_t i = 0; i < word.size(); ++i) {
            if (word[i] == '\\' && i + 1 < word.size()) {
                ++i;
                text += word[i] == 'n' ? '\n' : word[i];
            } else {
                text += word[i];
            }
        }
        return text;
    }

    // +1700000000.123456 [0 unix:/path] "EVALSHA" "sha" "1" "name"
    static words parse(std::string_view line) {
        words found;
        const auto bracket = line.find("] ");
        if (bracket == std::string_view::npos) return found;
        if (line.substr(0, bracket).ends_with(" lua")) found.push_back("lua");
        // Valkey 8.1 escapes nothing, neither a quote nor a line break: what stands between
        // two words parts them.
        const bool escaped = line.find('\n') == std::string_view::npos;
        constexpr std::string_view between = "\" \"";
        line.remove_prefix(std::min(bracket + 3, line.size()));
        if (line.ends_with('"')) line.remove_suffix(1);
        while (true) {
            const auto size = std::min(line.find(between), line.size());
            found.push_back(escaped ? unescaped(line.substr(0, size)) : std::string(line.substr(0, size)));
            if (size == line.size()) break;
            line.remove_prefix(size + between.size());
        }
        return found;
    }

    const distlock::testing::redis_server& server_;
    const std::string last_ = "the end of what is watched";
    int fd_ = -1;
    std::string text_;  // the reader's, until it has ended
    std::atomic<std::size_t> received_{0};
    std::thread reader_;
};
