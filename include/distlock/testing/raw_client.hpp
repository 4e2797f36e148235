// The smallest Redis client: one command on a unix socket, the reply as text, everything to one deadline.
//
//   class raw_client;   // connects to a unix socket, sends words, renders what comes back
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>

#include <distlock/base/error.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/net/uri_syntax.hpp>
#include <distlock/testing/child_process.hpp>
#include <distlock/testing/request_framing.hpp>

namespace distlock::testing::impl {

static_assert(detail::longest_socket_path < sizeof(sockaddr_un::sun_path));

inline std::string resp_request(std::span<const std::string_view> words) {
    std::string request = "*" + std::to_string(words.size()) + "\r\n";
    for (const std::string_view word : words) {
        request.append("$").append(std::to_string(word.size())).append("\r\n").append(word).append("\r\n");
    }
    return request;
}

/// Preconditions: `rest` begins with a whole reply.
/// Effects: takes it off the front and appends it to `text` the way a person reads it.
inline void render_reply(std::string_view& rest, std::string& text) {
    const std::size_t end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    const frame_kind kind = kind_of(line[0]).value();
    if (kind == frame_kind::line) {
        text.append(line[0] == '_' ? "(nil)" : line.substr(line[0] == '-' ? 0 : 1));
        return;
    }
    const long long size = number_of(line).value();
    if (size < 0) {
        text.append("(nil)");
    } else if (kind == frame_kind::text) {
        text.append(rest.substr(0, static_cast<std::size_t>(size)));
        rest.remove_prefix(static_cast<std::size_t>(size) + 2);
    } else {
        for (std::size_t element = 0; element < elements_of(line[0], size); ++element) {
            if (element > 0) text += '\n';
            render_reply(rest, text);
        }
    }
}

/// Returns: the time that is so much later than now, or the end of time.
inline std::chrono::steady_clock::time_point after(std::chrono::milliseconds span) {
    using std::chrono::steady_clock;
    return detail::saturating_add(
        steady_clock::now(), detail::saturating_cast<steady_clock::duration, detail::rounding::up>(span));
}

/// A stream to a server, on which every call ends by the deadline it was built with.
class raw_client {
  public:
    raw_client(const std::string& path, std::chrono::steady_clock::time_point deadline)
        : deadline_(deadline), socket_(detail::open_socket(AF_UNIX, detail::when_busy::fail)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (socket_.get() < 0 || path.size() > detail::longest_socket_path)
            throw error(errc::unreachable, "private server");
        std::memcpy(address.sun_path, path.data(), path.size());
        while (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            if (errno == EINTR) continue;
            // EAGAIN: a paused server's queue of connections is full.
            if (errno != EAGAIN || left() == 0) throw error(errc::unreachable, "private server, " + path);
            nap(std::chrono::milliseconds{1});
        }
    }

    std::string ask(std::span<const std::string_view> words) {
        const std::string request = resp_request(words);
        for (std::string_view unsent = request; !unsent.empty();) {
            const ssize_t sent = ::send(socket_.get(), unsent.data(), unsent.size(), detail::send_flags);
            if (sent >= 0) {
                unsent.remove_prefix(static_cast<std::size_t>(sent));
            } else {
                wait(POLLOUT);
            }
        }
        frame_end end;
        for (std::string received;;) {
            char chunk[16384];
            if (left() == 0) throw error(errc::no_reply, "private server");
            const ssize_t got = ::recv(socket_.get(), chunk, sizeof chunk, 0);
            if (got == 0) throw error(errc::no_reply, "private server closed the connection");
            if (got < 0) {
                wait(POLLIN);
                continue;
            }
            received.append(chunk, static_cast<std::size_t>(got));
            const std::size_t size = end.in(received);
            if (size == not_ours) throw error(errc::protocol_error, "private server");
            if (size == not_whole) continue;
            std::string text;
            std::string_view rest = received;
            render_reply(rest, text);
            return text;
        }
    }

  private:
    int left() const {
        using namespace std::chrono;
        const auto rest = ceil<milliseconds>(deadline_ - steady_clock::now());
        return static_cast<int>(std::clamp<milliseconds>(rest, milliseconds{0}, hours{1}).count());
    }

    // After a call that would not go on: EAGAIN and EINTR are waited out, all else ends this connection.
    void wait(short event) const {
        if (!detail::would_block(errno) && errno != EINTR) {
            throw error(errc::no_reply, "private server: " + std::generic_category().message(errno));
        }
        if (left() == 0) throw error(errc::no_reply, "private server");
        pollfd ready{socket_.get(), event, 0};
        ::poll(&ready, 1, left());
    }

    std::chrono::steady_clock::time_point deadline_;
    unique_fd socket_;
};

}  // namespace distlock::testing::impl
