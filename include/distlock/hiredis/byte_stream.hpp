// A socket, and the TLS session on it where there is one: bytes in clear to whoever uses it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// The error of a server that has its fill of clients.
inline constexpr const char* no_room = "max number of clients reached";

class byte_stream {
  public:
    explicit byte_stream(stream_socket socket) noexcept : socket_(std::move(socket)) {}

    /// Preconditions: the socket is connected, and nothing was sent.
    /// Effects: begins a session with `server`, before `deadline` and until `stop_fd` can be read (none: -1).
    /// Returns: not_sent, with the reason, when there is none.
    [[gnu::cold]] std::optional<reply> start_tls(const uri& server, const secure_layer& secure,
                                                 clock::time_point deadline, int stop_fd) {
        const auto refused = [](const std::string& why) {
            return reply::not_sent(errc::tls_failed, concat({"TLS: ", why}));
        };
        std::string why;
        try {
            session_ = secure.start(server);
        } catch (const error& e) {
            return refused(e.what());
        }
        receive_buffer buffer;
        std::string_view bytes;
        for (;;) {
            std::string to_peer;
            const auto progress = session_->handshake(bytes, to_peer, why);
            std::size_t sent = 0;
            const io outcome = socket_.send(to_peer, deadline, sent);
            if (progress == secure_session::progress::failed) return refused(why);
            if (outcome != io::done) return reply::not_sent(errc::unreachable, "TLS: the connection broke");
            if (progress == secure_session::progress::done) return std::nullopt;
            switch (socket_.receive(buffer, bytes, deadline, stop_fd)) {
                case io::done:
                    break;
                case io::stopped:
                    return reply::not_sent(errc::cancelled, "stopped");
                case io::timed_out:
                    return reply::not_sent(errc::no_reply,
                                           "TLS: no handshake in time; does it speak TLS on this port?");
                default:
                    return reply::not_sent(
                        errc::unreachable,
                        "TLS: the server closed the connection; does it speak TLS on this port?");
            }
        }
    }

    bool encrypted() const noexcept { return session_ != nullptr; }

    /// `answered`: the server said something before. Returns: the end of a receive that brought nothing, for
    /// messages.
    [[gnu::cold]] const char* why_no_reply(io how, bool answered) const noexcept {
        if (how == io::timed_out) return "no reply in time";
        if (how == io::stopped) return "stopped";
        const bool closed = how == io::closed;
        // So ends a port for TLS a plain conversation.
        if (!answered && !encrypted() && !socket_.is_local())
            return closed ? "the server closed the connection; if the port is for TLS, the scheme is rediss"
                          : "the connection broke; if the port is for TLS, the scheme is rediss";
        return closed ? "the server closed the connection" : "the connection broke";
    }

    /// Effects: sends `plain`; `sent` counts bytes of the socket.
    /// Returns: done, or why not; closed when the session is over.
    io send(std::string_view plain, clock::time_point deadline, std::size_t& sent) {
        if (!session_) return socket_.send(plain, deadline, sent);
        sealed_.clear();
        return session_->seal(plain, sealed_) ? socket_.send(sealed_, deadline, sent) : io::closed;
    }

    /// Effects: as stream_socket::receive(). The bytes are for open().
    io receive(receive_buffer& into, std::string_view& got, clock::time_point deadline,
               int stop_fd) noexcept {
        return socket_.receive(into, got, deadline, stop_fd);
    }

    /// Effects: takes what was received.
    /// Returns: what it says, until the next call; none when the session ended and nothing was said before.
    std::optional<std::string_view> open(std::string_view received, clock::time_point deadline) {
        if (!session_) return received;
        opened_.clear();
        std::string to_peer;
        over_ = !session_->open(received, opened_, to_peer);
        std::size_t sent = 0;
        if (socket_.send(to_peer, deadline, sent) != io::done) over_ = true;
        if (over_ && opened_.empty()) return std::nullopt;
        return opened_;
    }

    /// Returns: whether the session ended; what it said before is still good.
    bool over() const noexcept { return over_; }

    /// Preconditions: encrypted().
    /// Returns: what broke the session, fit for a message; empty while nothing did, and after an orderly end.
    const std::string& failure() const noexcept { return session_->failure(); }

    /// Effects: reads what a server said before it hung up. Returns: whether failure() says why.
    [[gnu::cold]] bool read_failure() {
        receive_buffer buffer;
        std::string_view bytes;
        std::string plain;
        std::string to_peer;
        while (session_ && socket_.receive(buffer, bytes, clock::now(), -1) == io::done &&
               session_->open(bytes, plain, to_peer) && plain.empty()) {
            continue;
        }
        return session_ && !session_->failure().empty();
    }

    /// Effects: as read_failure(), without TLS. Returns: whether the server said that it takes no more
    /// clients: behind a unix socket it may do so before the first byte is sent.
    [[gnu::cold]] bool read_no_room() noexcept {
        receive_buffer buffer;
        std::string_view bytes;
        return !session_ && socket_.receive(buffer, bytes, clock::time_point{}, -1) == io::done &&
               bytes.starts_with('-') && says_too_many_clients(bytes.substr(1));
    }

    /// Returns: the socket, to wait for, to look at or to end.
    stream_socket& socket() noexcept { return socket_; }
    const stream_socket& socket() const noexcept { return socket_; }

  private:
    stream_socket socket_;
    std::unique_ptr<secure_session> session_;
    std::string sealed_;  // kept for its capacity, as opened_
    std::string opened_;
    bool over_ = false;
};

}  // namespace distlock::detail
