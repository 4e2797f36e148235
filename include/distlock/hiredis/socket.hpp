// A socket whose every wait ends at one absolute deadline, or at a stop request.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/hiredis/resolve.hpp>
#include <distlock/net/uri.hpp>

namespace distlock::detail {

enum class io { done, closed, timed_out, stopped, failed };

/// For the bytes of one read.
using receive_buffer = std::array<char, 16 * 1024>;

/// Effects: returns when `event` is set, `deadline` is reached, or a second is over.
inline void wait_for(const wake_event& event, clock::time_point deadline) noexcept {
    pollfd polled{event.fd(), POLLIN, 0};
    wait_for(&polled, 1, time_source().slice(deadline));
}

/// An event that a stop request sets, or another one.
class wake_on_stop {
  public:
    /// Throws: std::system_error.
    explicit wake_on_stop(const std::stop_token& stop, const std::stop_token& other = {})
        : on_stop_(stop, setter{event_}), on_other_(other, setter{event_}) {}
    int fd() const noexcept { return event_.fd(); }

  private:
    struct setter {
        void operator()() const noexcept { event.set(); }
        wake_event& event;
    };
    wake_event event_;
    std::stop_callback<setter> on_stop_;
    std::stop_callback<setter> on_other_;
};

/// A connected stream socket, close-on-exec. It never raises SIGPIPE, and a signal never prolongs a wait.
class stream_socket {
  public:
    /// Effects: connects to `server`, whose addresses `names` knows, before `deadline` and until `stop_fd`
    /// can be read (none: -1).
    /// Returns: the socket, or an empty one with `failure` saying what failed.
    [[gnu::cold]] static stream_socket connect(const uri& server, resolver& names, clock::time_point deadline,
                                               int stop_fd, std::string& failure) {
        if (server.scheme == uri_scheme::unix_socket)
            return connect_unix(server.path, deadline, stop_fd, failure);
        resolution found = names.resolve(deadline, stop_fd);
        failure = std::move(found.failure);
        auto left = static_cast<clock::rep>(found.addresses.size());
        for (const socket_address& address : found.addresses) {
            // An address that swallows packets must leave the next one its share of the time.
            const auto now = clock::now();
            stream_socket made = connect_to(address, now + time_left(deadline) / left--, stop_fd, failure);
            if (made && made.is_its_own_peer()) {
                made.abort();
                made = {};
                failure = describe(ECONNREFUSED);
            }
            if (made) {
                made.tune_tcp();
                return made;
            }
        }
        return {};
    }

    stream_socket() = default;
    explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
    int fd() const noexcept { return fd_.get(); }

    /// Effects: hands all of `bytes` to the system.
    /// Returns: done, or why not; `sent` counts what went out.
    io send(std::string_view bytes, clock::time_point deadline, std::size_t& sent) noexcept {
        while (!bytes.empty()) {
            const auto n = ::send(fd_.get(), bytes.data(), bytes.size(), send_flags);
            if (n >= 0) {
                sent += static_cast<std::size_t>(n);
                bytes.remove_prefix(static_cast<std::size_t>(n));
            } else if (would_block(errno)) {
                if (const io w = wait(POLLOUT, deadline, -1); w != io::done) return w;
            } else if (errno != EINTR) {
                return io::failed;
            }
        }
        return io::done;
    }

    /// Effects: waits for bytes and reads some.
    /// Returns: done with `got` non-empty, or why not.
    io receive(receive_buffer& into, std::string_view& got, clock::time_point deadline,
               int stop_fd) noexcept {
        // A call that may take the whole usual time-out needs no poll(): the system ends the read then. That
        // is one system call less on the way of every reply. Anything that follows, be it a part of a reply
        // or a signal, is polled to the deadline.
        const auto left = time_source().slice(deadline);
        bool block = stop_fd < 0 && usual_timeout_ > clock::duration::zero() &&
                     left > clock::duration::zero() && left >= usual_timeout_ - std::chrono::milliseconds{1};
        for (;;) {
            if (!block) {
                if (const io w = wait(POLLIN, deadline, stop_fd); w != io::done) return w;
            }
            const auto n = ::recv(fd_.get(), into.data(), into.size(), block ? 0 : MSG_DONTWAIT);
            block = false;
            if (n > 0) {
                got = {into.data(), static_cast<std::size_t>(n)};
                return io::done;
            }
            if (n == 0) return io::closed;
            if (errno != EINTR && !would_block(errno)) return io::failed;
        }
    }

    /// Effects: tells what time-out most calls of receive() will have, 1 ms or more.
    [[gnu::cold]] void expect_timeout(std::chrono::milliseconds usual) noexcept {
        const auto whole = std::chrono::duration_cast<std::chrono::seconds>(usual);
        const timeval span{cast_where_needed<time_t>(whole.count()),
                           cast_where_needed<suseconds_t>(std::chrono::microseconds(usual - whole).count())};
        if (::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span) != 0) return;
        const int flags = ::fcntl(fd_.get(), F_GETFL);
        if (flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK) == 0) usual_timeout_ = usual;
    }

    /// Returns: without waiting, whether bytes came in (done), nothing did (timed_out), or the stream ended
    /// (closed, failed).
    io peek() const noexcept {
        char byte = 0;
        const auto n = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0) return io::done;
        if (n == 0) return io::closed;
        return would_block(errno) ? io::timed_out : io::failed;
    }

    /// Effects: ends the waits of the thread that uses it, and those to come: the stream is
    /// over. From any thread.
    void shut_down() noexcept { ::shutdown(fd_.get(), SHUT_RDWR); }

    /// Effects: closes at once, dropping what still sits in the send queue, so that it is not applied later:
    /// close() alone lets the kernel deliver it, and so does all of this where a forked child has a copy,
    /// except on Linux, which ends the connection of both.
    void abort() noexcept {
        sockaddr none{};
        none.sa_family = AF_UNSPEC;
        ::connect(fd_.get(), &none, sizeof none);
        const linger at_once{1, 0};
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        fd_ = file_descriptor();
    }

    /// Returns: whether it is a unix socket.
    [[gnu::cold]] bool is_local() const noexcept {
        sockaddr_storage mine{};
        socklen_t size = sizeof mine;
        return ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&mine), &size) == 0 &&
               mine.ss_family == AF_UNIX;
    }

  private:
    explicit stream_socket(file_descriptor fd) noexcept : fd_(std::move(fd)) {}

    static clock::duration time_left(clock::time_point deadline) noexcept {
        const auto now = clock::now();
        return deadline > now ? deadline - now : clock::duration::zero();
    }

    [[gnu::cold]] static stream_socket connect_unix(const std::string& path, clock::time_point deadline,
                                                    int stop_fd, std::string& failure) {
        socket_address address;
        auto& un = reinterpret_cast<sockaddr_un&>(address.storage);
        un.sun_family = AF_UNIX;
        std::memcpy(un.sun_path, path.data(), std::min(path.size(), sizeof un.sun_path - 1));
        address.size = sizeof un;
        return connect_to(address, deadline, stop_fd, failure);
    }

    [[gnu::cold]] static stream_socket connect_to(const socket_address& address, clock::time_point deadline,
                                                  int stop_fd, std::string& failure) {
        stream_socket made(open_socket(address.storage.ss_family, when_busy::fail));
        if (!made) {
            failure = describe(errno);
            return {};
        }
        const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
        for (;;) {
            if (::connect(made.fd_.get(), where, address.size) == 0) return made;
            if (errno == EINTR) continue;
            if (errno == EAGAIN) {  // a unix socket whose backlog is full: there is nothing to poll for
                if (clock::now() >= deadline) break;
                pollfd stopped{stop_fd, POLLIN, 0};
                if (::poll(&stopped, stop_fd >= 0 ? 1 : 0, 5) > 0) break;
                continue;
            }
            if (errno != EINPROGRESS && errno != EALREADY) {
                failure = describe(errno);
                return {};
            }
            if (made.wait(POLLOUT, deadline, stop_fd) != io::done) break;
            int error = 0;
            socklen_t size = sizeof error;
            ::getsockopt(made.fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
            if (error == 0) return made;
            failure = describe(error);
            return {};
        }
        failure = "connecting took too long";
        return {};
    }

    // Where nobody listens on a port that the system gives to clients, a client may be given
    // it, and reach itself.
    bool is_its_own_peer() const noexcept {
        sockaddr_storage mine{}, theirs{};
        socklen_t mine_size = sizeof mine, theirs_size = sizeof theirs;
        return ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&mine), &mine_size) == 0 &&
               ::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&theirs), &theirs_size) == 0 &&
               mine_size == theirs_size && std::memcmp(&mine, &theirs, mine_size) == 0;
    }

    static std::string describe(int error) {
        return std::error_code(error, std::generic_category()).message();
    }

    void tune_tcp() noexcept {
        const int on = 1;
        ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        keep_alive(fd_.get(), 15, 5, 3);  // the system's two hours outlast any lease
    }

    io wait(short events, clock::time_point deadline, int stop_fd) const noexcept {
        std::array<pollfd, 2> polled{{{fd_.get(), events, 0}, {stop_fd, POLLIN, 0}}};
        for (;;) {
            const int ready = wait_for(polled.data(), stop_fd >= 0 ? 2 : 1, time_source().slice(deadline));
            if (ready < 0 && errno != EINTR) return io::failed;
            if (ready > 0 && polled[0].revents != 0) return io::done;
            if (ready > 0) return io::stopped;
            if (clock::now() >= deadline) return io::timed_out;
        }
    }

    file_descriptor fd_;
    clock::duration usual_timeout_{};
};

}  // namespace distlock::detail
