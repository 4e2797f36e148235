// One conversation with a server: a socket, its parser, its TLS session, and the handshake that opens it.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/hiredis/reply_reader.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// Not thread-safe: one caller at a time. After any failure it is broken for good: what follows on the stream
/// would be the answer to an earlier question.
class channel {
  public:
    struct opened {
        std::unique_ptr<channel> made;  ///< ready for commands, or null
        reply failure;                  ///< of null: not_sent, with the reason
    };

    /// Effects: connects, starts TLS where `secure` is given, authenticates, selects the database; all before
    /// `deadline` and until `stop_fd` can be read (none: -1).
    static opened open(const uri& server, resolver& names, const secure_layer* secure,
                       clock::time_point deadline, int stop_fd) {
        std::string failure;
        auto socket = stream_socket::connect(server, names, deadline, stop_fd, failure);
        if (!socket) return {nullptr, reply::not_sent(errc::unreachable, "connect: " + failure)};
        std::unique_ptr<channel> made(new channel(std::move(socket)));
        if (secure != nullptr) {
            if (auto refused = made->start_tls(server, *secure, deadline, stop_fd))
                return {nullptr, *std::move(refused)};
            // A TLS 1.3 server judges our certificate when the handshake is over for us: until it has
            // answered once, it may still refuse.
            if (server.password.empty()) {
                const reply answer = made->run({"PING"}, deadline, stop_fd);
                if (!answer.answered()) return {nullptr, handshake_failure(answer, "PING")};
            }
        }
        if (!server.password.empty()) {
            const command auth = server.user.empty() ? command{"AUTH", server.password}
                                                     : command{"AUTH", server.user, server.password};
            // Servers echo the arguments of what they refuse: nothing of the answer's text may be shown.
            const reply answer = made->run(auth, deadline, stop_fd);
            if (answer.is(reply_kind::error)) {
                const auto e = classify_error(answer.text());
                const errc cause = e.transient ? e.cause : errc::authentication_failed;
                return {nullptr, reply::not_sent(cause, "AUTH was refused")};
            }
            if (!answer.is_status("OK")) return {nullptr, handshake_failure(answer, "AUTH")};
            if (auto surplus = made->not_alone("AUTH")) return {nullptr, *std::move(surplus)};
        }
        if (server.database != 0) {
            const reply answer = made->run({"SELECT", std::to_string(server.database)}, deadline, stop_fd);
            if (!answer.is_status("OK")) return {nullptr, handshake_failure(answer, "SELECT")};
            if (auto surplus = made->not_alone("SELECT")) return {nullptr, *std::move(surplus)};
        }
        if (made->broken_)
            return {nullptr, reply::not_sent(errc::protocol_error, "more replies than questions")};
        made->socket_.expect_timeout(server.command_timeout);
        return {std::move(made), {}};
    }

    channel(const channel&) = delete;
    channel& operator=(const channel&) = delete;
    /// Effects: closes the socket. A broken one is aborted, so that what was sent is not applied later; but
    /// not when it carries what was posted, which is to be applied.
    ~channel() {
        if (broken_ && unanswered_ == 0) socket_.abort();
    }

    /// Effects: sends `cmd` and waits for its reply until `deadline`, or until `stop_fd` can be read (none:
    /// -1).
    reply run(const command& cmd, clock::time_point deadline, int stop_fd) {
        if (auto failure = send(cmd, deadline)) return *std::move(failure);
        const bool after_posted = unanswered_ > 0;
        std::array<char, 16384> buffer;
        std::string_view bytes;
        for (;;) {
            while (auto answer = reader_.next()) {
                if (unanswered_ > 0) {
                    --unanswered_;  // of a posted command: nobody waits for it
                    continue;
                }
                const bool too_many = reader_.has_leftover();
                // The surplus may have come before it, and this be the answer to what was posted.
                if (too_many && after_posted) return lost(errc::protocol_error, "more replies than commands");
                broken_ = too_many || session_over_;
                return *std::move(answer);
            }
            if (auto failure = hear(buffer, bytes, deadline, stop_fd)) return *std::move(failure);
        }
    }

    /// How far a pipeline came.
    struct extent {
        std::size_t answered = 0;  ///< so many commands have their reply
        std::size_t begun = 0;     ///< of so many something was sent
    };

    /// Effects: sends all of `commands`, then reads their replies into `replies`, until `deadline`; says in
    /// `done` for how many there is one.
    /// Preconditions: as many replies as commands, and at least one.
    /// Returns: nil when there is one for each; else what became of the other commands.
    reply run_all(std::span<const command> commands, std::span<reply> replies, clock::time_point deadline,
                  extent& done) {
        plain_.clear();
        for (const command& one : commands) encode(one);
        std::size_t sent = 0;
        const io outcome = hand_over(deadline, sent);
        if (outcome == io::done) {
            done.begun = commands.size();
            auto failure = read_all(replies, deadline, done.answered);
            return failure ? *std::move(failure) : reply::nil();
        }
        if (sent == 0) return sending_failed(outcome, sent);
        const std::size_t whole = count_sent(commands, sent, done);
        // Nothing more is waited for, but what has come is worth having.
        auto failure = read_all(replies.first(whole), clock::time_point{}, done.answered);
        broken_ = true;
        if (failure && failure->cause() != errc::no_reply) return *std::move(failure);
        return sending_failed(outcome, sent);
    }

    /// Effects: sends `cmd`; its reply is skipped later.
    /// Returns: whether it was handed to the system.
    bool post(const command& cmd, clock::time_point deadline) {
        if (send(cmd, deadline)) return false;
        ++unanswered_;
        broken_ = false;
        return true;
    }

    enum class state { ready, owing, over };

    /// Effects: reads replies to posted commands that have come.
    /// Returns: ready for the next command; owing so many replies that it should not be sent more; or over.
    state look() {
        if (broken_) return state::over;
        if (unanswered_ == 0) return socket_.peek() == io::timed_out ? state::ready : state::over;
        std::array<char, 16384> buffer;
        std::string_view bytes;
        const auto now = clock::now();
        for (;;) {
            const io came = socket_.receive(buffer, bytes, clock::time_point{}, -1);
            if (came == io::timed_out) break;
            if (came != io::done || !take_in(bytes, now)) return state::over;
            while (reader_.next()) {
                if (unanswered_-- == 0) return state::over;
            }
            if (reader_.failure() != errc{} || session_over_) return state::over;
        }
        if (unanswered_ == 0 && reader_.has_leftover()) return state::over;
        return unanswered_ < max_unanswered ? state::ready : state::owing;
    }

    /// Returns: whether an exchange failed, or an exception left it half-way.
    bool broken() const noexcept { return broken_; }

  private:
    static constexpr std::size_t max_unanswered =
        256;                                   // unread replies that pile up stop the server's writing
    static constexpr int max_late_reads = 64;  // a megabyte

    explicit channel(stream_socket socket) : socket_(std::move(socket)) {}

    static reply handshake_failure(const reply& answer, const char* step) {
        if (!answer.answered()) return reply::not_sent(answer.cause(), step + (": " + answer.text()));
        if (!answer.is(reply_kind::error)) return reply::not_sent(errc::protocol_error, step);
        // Without the server's text: what it refuses it repeats, and this may be the answer to an AUTH.
        return reply::not_sent(classify_error(answer.text()).cause, step + std::string(" was refused"));
    }

    // Returns: what is wrong when more than one reply to a step came, or the server hung up after it.
    std::optional<reply> not_alone(const char* step) const {
        const io next = socket_.peek();
        if (broken_ || next == io::done)
            return reply::not_sent(errc::protocol_error, step + std::string(" was answered twice"));
        if (next == io::timed_out) return std::nullopt;
        return reply::not_sent(errc::unreachable, step + std::string(": the server closed the connection"));
    }

    // Returns: what failed, if anything did.
    std::optional<reply> send(const command& cmd, clock::time_point deadline) {
        plain_.clear();
        encode(cmd);
        std::size_t sent = 0;
        const io outcome = hand_over(deadline, sent);
        if (outcome == io::done) return std::nullopt;
        return sending_failed(outcome, sent);
    }

    // Effects: sends what is in plain_; `sent` counts bytes, under TLS those of the session.
    // Returns: done, or why not; closed when the TLS session is.
    io hand_over(clock::time_point deadline, std::size_t& sent) {
        broken_ = true;  // until the exchange is complete
        if (!session_) return socket_.send(plain_, deadline, sent);
        sealed_.clear();
        return session_->seal(plain_, sealed_) ? socket_.send(sealed_, deadline, sent) : io::closed;
    }

    reply sending_failed(io outcome, std::size_t sent) {
        if (outcome == io::closed) return reply::not_sent(errc::unreachable, "the TLS session is over");
        if (outcome == io::failed && heard_why()) {
            if (sent > 0) return session_lost();
            return reply::not_sent(errc::tls_failed, "TLS: " + session_->failure());
        }
        if (sent == 0) return reply::not_sent(errc::unreachable, "the connection broke");
        return lost(errc::no_reply,
                    outcome == io::timed_out ? "sending took too long" : "the connection broke");
    }

    // Effects: counts in `done` the commands that `sent` bytes reach into; under TLS, where only the session
    // knows, all. Returns: how many can be answered: those that went out whole.
    std::size_t count_sent(std::span<const command> commands, std::size_t sent, extent& done) {
        if (session_) return done.begun = commands.size();
        std::size_t whole = 0;
        plain_.clear();
        for (; done.begun < commands.size() && plain_.size() < sent; ++done.begun) {
            encode(commands[done.begun]);
            if (plain_.size() <= sent) ++whole;
        }
        return whole;
    }

    // Effects: reads replies to posted commands and then `replies`, and counts the latter in `answered`.
    // Returns: why there are not all, if so.
    std::optional<reply> read_all(std::span<reply> replies, clock::time_point deadline,
                                  std::size_t& answered) {
        const std::size_t certain = unanswered_ > 0 ? 0 : 1;
        std::array<char, 16384> buffer;
        std::string_view bytes;
        for (int late = 0;;) {
            while (answered < replies.size()) {
                auto next = reader_.next();
                if (!next) break;
                if (unanswered_ > 0) {
                    --unanswered_;
                } else {
                    replies[answered++] = *std::move(next);
                }
            }
            if (answered == replies.size()) break;
            if (session_over_) return session_lost();
            // What came in time is read, but a server that goes on sending must not hold us.
            if (clock::now() >= deadline && ++late > max_late_reads)
                return lost(errc::no_reply, "no reply in time");
            if (auto failure = hear(buffer, bytes, deadline, -1)) return failure;
        }
        const bool too_many = reader_.has_leftover();
        broken_ = too_many || session_over_;
        if (!too_many || answered <= certain) return std::nullopt;
        // The surplus may have come anywhere: all behind it answer the question before theirs.
        answered = certain;
        return lost(errc::protocol_error, "more replies than commands");
    }

    // Effects: waits for bytes and gives them to the reader.
    // Returns: why there are none, if so.
    std::optional<reply> hear(std::array<char, 16384>& buffer, std::string_view& bytes,
                              clock::time_point deadline, int stop_fd) {
        if (reader_.failure() != errc{}) return lost(reader_.failure(), "the reply cannot be read");
        switch (socket_.receive(buffer, bytes, deadline, stop_fd)) {
            case io::done:
                break;
            case io::closed:
                return lost(errc::no_reply, "the server closed the connection");
            case io::timed_out:
                return lost(errc::no_reply, "no reply in time");
            case io::stopped:
                return lost(errc::cancelled, "stopped");
            case io::failed:
                return lost(errc::no_reply, "the connection broke");
        }
        if (!take_in(bytes, deadline)) return session_lost();
        return std::nullopt;
    }

    // RESP: an array of length-prefixed strings, so that any byte may stand in any argument.
    void encode(const command& cmd) {
        header('*', cmd.argv().size());
        for (const std::string_view argument : cmd.argv()) {
            header('$', argument.size());
            plain_.append(argument).append("\r\n");
        }
    }
    void header(char mark, std::size_t count) {
        std::array<char, 24> digits;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), count).ptr;
        plain_ += mark;
        plain_.append(digits.data(), end).append("\r\n");
    }

    bool take_in(std::string_view bytes, clock::time_point deadline) {
        if (!session_) {
            reader_.feed(bytes);
            return true;
        }
        std::string plain;
        std::string to_peer;
        session_over_ = !session_->open(bytes, plain, to_peer);
        reader_.feed(plain);
        std::size_t sent = 0;
        if (socket_.send(to_peer, deadline, sent) != io::done) session_over_ = true;
        return !session_over_ || !plain.empty();
    }

    // Effects: reads what a server said before it hung up. Returns: whether that was why.
    bool heard_why() {
        std::array<char, 16384> buffer;
        std::string_view bytes;
        std::string plain;
        std::string to_peer;
        while (session_ && socket_.receive(buffer, bytes, clock::now(), -1) == io::done &&
               session_->open(bytes, plain, to_peer) && plain.empty()) {
            continue;
        }
        return session_ && !session_->failure().empty();
    }

    reply session_lost() const {
        if (session_->failure().empty()) return reply::no_answer(errc::no_reply, "the TLS session ended");
        return reply::no_answer(errc::tls_failed, "TLS: " + session_->failure());
    }

    std::optional<reply> start_tls(const uri& server, const secure_layer& secure, clock::time_point deadline,
                                   int stop_fd) {
        const auto refused = [](const std::string& why) {
            return reply::not_sent(errc::tls_failed, "TLS: " + why);
        };
        std::string why;
        try {
            session_ = secure.start(server);
        } catch (const error& e) {
            return refused(e.what());
        }
        std::array<char, 16384> buffer;
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

    static reply lost(errc cause, const char* why) { return reply::no_answer(cause, why); }

    stream_socket socket_;
    std::unique_ptr<secure_session> session_;
    reply_reader reader_;
    std::string plain_;  // kept for its capacity
    std::string sealed_;
    std::size_t unanswered_ = 0;
    bool session_over_ = false;  // of TLS; what came before the end is still good
    bool broken_ = false;
};

}  // namespace distlock::detail
