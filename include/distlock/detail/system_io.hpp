// The system calls of the optional modules: descriptors and sockets, all close-on-exec. No layer includes it.
//
//   class file_descriptor;                                    // closes it
//   namespace on_linux, on_posix {  // one way each; without the namespace: this system's
//     class wake_event;  // set by one thread, waited for by another in its poll()
//     pipe_ends open_pipe(when_busy);                         // both empty: see errno
//     file_descriptor open_socket(int family, when_busy);     // a stream socket; empty: see errno
//     file_descriptor accept_socket(int listener);            // it never blocks
//     int wait_for(pollfd* polled, nfds_t count, std::chrono::nanoseconds longest) noexcept;    // as poll(2)
//   }
//   constexpr bool would_block(int error) noexcept;
//   constexpr int send_flags;                                 // of send(): no SIGPIPE, no waiting
//   void keep_alive(int socket, int idle, int interval, int count) noexcept;    // seconds, seconds, probes
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <errno.h>
#include <fcntl.h>
#include <limits>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <distlock/detail/system.hpp>

#ifdef DISTLOCK_ON_LINUX
#include <sys/eventfd.h>
#endif

namespace distlock::detail {

/// A file descriptor, closed when it ends. Closing alone never talks to the peer, so a child after fork() may
/// do it.
class file_descriptor {
  public:
    file_descriptor() = default;
    explicit file_descriptor(int fd) noexcept : fd_(fd) {}
    file_descriptor(file_descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    file_descriptor& operator=(file_descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~file_descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const noexcept { return fd_; }
    int release() noexcept { return std::exchange(fd_, -1); }
    explicit operator bool() const noexcept { return fd_ >= 0; }

  private:
    int fd_ = -1;
};

/// Returns: whether a call with this errno would have had to wait.
constexpr bool would_block(int error) noexcept {
#if EAGAIN != EWOULDBLOCK
    if (error == EWOULDBLOCK) return true;
#endif
    return error == EAGAIN;
}

struct pipe_ends {
    file_descriptor read;
    file_descriptor write;
};

/// How a call on a descriptor ends that cannot be served at once.
enum class when_busy { wait, fail };

#if !defined(MSG_NOSIGNAL) && !defined(SO_NOSIGPIPE)
#error \
    "distlock needs MSG_NOSIGNAL or SO_NOSIGPIPE: without either a peer that is gone ends the program with SIGPIPE"
#endif
#ifdef MSG_NOSIGNAL
inline constexpr int send_flags = MSG_NOSIGNAL | MSG_DONTWAIT;
#else
inline constexpr int send_flags = MSG_DONTWAIT;
#endif

/// Effects: dead peers of an idle socket are found after `idle` seconds and `count` probes, `interval`
/// seconds apart; where the system cannot be told so, when it likes.
inline void keep_alive(int socket, int idle, int interval, int count) noexcept {
    const auto set = [socket](int level, int option, int value) {
        ::setsockopt(socket, level, option, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set(IPPROTO_TCP, TCP_KEEPIDLE, idle);
#elif defined(TCP_KEEPALIVE)  // macOS
    set(IPPROTO_TCP, TCP_KEEPALIVE, idle);
#endif
#ifdef TCP_KEEPINTVL
    set(IPPROTO_TCP, TCP_KEEPINTVL, interval);
    set(IPPROTO_TCP, TCP_KEEPCNT, count);
#endif
}

namespace on_posix {

// Between its birth and this a child of another thread may inherit it: only Linux and the BSDs
// can do both at once.
inline void prepare(const file_descriptor& fresh, when_busy what) noexcept {
    if (!fresh) return;
    ::fcntl(fresh.get(), F_SETFD, FD_CLOEXEC);
    // An accepted socket is as its listener on some systems.
    const int flags = ::fcntl(fresh.get(), F_GETFL);
    ::fcntl(fresh.get(), F_SETFL, what == when_busy::fail ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
#ifdef SO_NOSIGPIPE
    const int on = 1;  // kernels may be older than their MSG_NOSIGNAL
    ::setsockopt(fresh.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

inline pipe_ends open_pipe(when_busy what) noexcept {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return {};
    pipe_ends made{file_descriptor(ends[0]), file_descriptor(ends[1])};
    prepare(made.read, what);
    prepare(made.write, what);
    return made;
}

inline file_descriptor open_socket(int family, when_busy what) noexcept {
    file_descriptor made(::socket(family, SOCK_STREAM, 0));
    prepare(made, what);
    return made;
}

inline file_descriptor accept_socket(int listener) noexcept {
    file_descriptor made(::accept(listener, nullptr, nullptr));
    prepare(made, when_busy::fail);
    return made;
}

inline int wait_for(pollfd* polled, nfds_t count, std::chrono::nanoseconds longest) noexcept {
    // Rounded up: a wait that ends a little too early would be made again and again.
    constexpr std::chrono::milliseconds most{std::numeric_limits<int>::max()};
    const auto span = longest < most ? std::chrono::ceil<std::chrono::milliseconds>(longest) : most;
    return ::poll(polled, count, static_cast<int>(span.count()));
}

/// An event that one thread waits for beside a socket, in the same poll(). Thread-safe.
class wake_event {
  public:
    /// Throws: std::system_error.
    wake_event() : ends_(open_pipe(when_busy::fail)) {
        if (!ends_.read) throw std::system_error(errno, std::generic_category(), "pipe");
    }
    /// Returns: what can be read once it was set.
    int fd() const noexcept { return ends_.read.get(); }
    void set() noexcept {
        // A pipe that has no room is set already.
        [[maybe_unused]] const auto written = ::write(ends_.write.get(), "", 1);
    }
    /// Effects: it is not set any more. Returns: whether it was.
    bool reset() noexcept {
        bool was_set = false;
        std::array<char, 64> bytes;
        for (;;) {
            const ssize_t got = ::read(ends_.read.get(), bytes.data(), bytes.size());
            was_set = was_set || got > 0;
            if (got < static_cast<ssize_t>(bytes.size())) return was_set;
        }
    }

  private:
    pipe_ends ends_;
};

}  // namespace on_posix

#ifdef DISTLOCK_ON_LINUX
namespace on_linux {

inline pipe_ends open_pipe(when_busy what) noexcept {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), what == when_busy::fail ? O_CLOEXEC | O_NONBLOCK : O_CLOEXEC) != 0) return {};
    return {file_descriptor(ends[0]), file_descriptor(ends[1])};
}

inline file_descriptor open_socket(int family, when_busy what) noexcept {
    const int busy = what == when_busy::fail ? SOCK_NONBLOCK : 0;
    return file_descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | busy, 0));
}

inline file_descriptor accept_socket(int listener) noexcept {
    return file_descriptor(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

inline int wait_for(pollfd* polled, nfds_t count, std::chrono::nanoseconds longest) noexcept {
    const timespec span = timespec_of(longest);
    return ::ppoll(polled, count, &span, nullptr);
}

// One descriptor instead of two.
class wake_event {
  public:
    /// Throws: std::system_error.
    wake_event() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!fd_) throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    int fd() const noexcept { return fd_.get(); }
    void set() noexcept {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
    }
    bool reset() noexcept {
        std::uint64_t count = 0;
        return ::read(fd_.get(), &count, sizeof count) > 0;
    }

  private:
    file_descriptor fd_;
};

}  // namespace on_linux
#endif

using this_system::accept_socket;
using this_system::open_pipe;
using this_system::open_socket;
using this_system::wait_for;
using this_system::wake_event;

}  // namespace distlock::detail
