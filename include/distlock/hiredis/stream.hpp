// One conversation with a server: commands and their replies over a stream. How it is opened: handshake.hpp.
#pragma once

#include <algorithm>
#include <array>
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
#include <distlock/detail/concat.hpp>
#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/hiredis/byte_stream.hpp>
#include <distlock/hiredis/posted_replies.hpp>
#include <distlock/hiredis/reply_reader.hpp>
#include <distlock/hiredis/request.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/server_standing.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// Not thread-safe: one caller at a time. After any failure it is broken for good: what follows on the stream
/// would be the answer to an earlier question.
class stream {
  public:
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;
    /// Effects: closes the socket. A broken one is aborted, so that what was sent is not applied later. So is
    /// what was posted with a receipt and not answered: its sender is told, and repeats it. A socket that
    /// carries what was posted without one is closed in good order: nobody would repeat that. A child after
    /// fork() aborts nothing: it would do so for its parent.
    [[gnu::cold]] ~stream() {
        if (on_end_.here()) on_end_.get().reset();  // it uses the socket
        const bool drops = (broken_ || left_) && !posted_.in_forked_child();
        if (drops && posted_.unconfirmed() == 0) bytes_.socket().abort();
    }

    /// Effects: from when `ended` is requested on the stream is over, whoever uses it.
    [[gnu::cold]] void end_with(const std::stop_token& ended) {
        on_end_.get().emplace(ended, shutter{bytes_.socket()});
    }

    /// Effects: ends the waits of the thread that uses it: the stream is over. From any thread.
    void shut_down() noexcept { bytes_.socket().shut_down(); }

    /// Effects: sends `cmd` and waits for its reply until `deadline`, or until its stop request.
    reply run(const command& cmd, clock::time_point deadline) {
        return until_stopped(cmd.stop(), [&] { return run(cmd, deadline, -1); });
    }
    /// The same, until `deadline`, or until `stop_fd` can be read (none: -1).
    reply run(const command& cmd, clock::time_point deadline, int stop_fd) {
        if (auto failure = send(cmd, deadline)) return *std::move(failure);
        return next_answer(deadline, stop_fd, posted_.count() > 0);
    }

    /// Effects: as run() until `deadline`, or a stop request; but giving up does not end the conversation:
    /// the answer is dropped when it comes.
    [[gnu::cold]] reply run_or_leave(const command& cmd, clock::time_point deadline) {
        if (cmd.stop_requested()) return reply::not_sent(errc::cancelled, "stopped");
        const auto nobody = std::make_shared<receipt>();
        posted_.make_room();
        if (auto failure = send(cmd, deadline)) return *std::move(failure);
        // An event that a stop request sets would need a descriptor: here the system may have none.
        constexpr std::chrono::milliseconds slice{5};
        const bool after_posted = posted_.count() > 0;
        for (;;) {
            const auto until = cmd.stop() != nullptr ? std::min(deadline, clock::now() + slice) : deadline;
            reply answer = next_answer(until, -1, after_posted);
            if (answer.answered() || ended_ != io::timed_out) return answer;
            const bool stopped = cmd.stop_requested();
            if (!stopped && clock::now() < deadline) continue;
            posted_.expect(nobody);
            left_ = true;
            broken_ = false;
            if (!stopped) return answer;
            ended_ = io::stopped;
            return lost(errc::cancelled, "stopped");
        }
    }

    /// Effects: an answer may be as long as a list of servers from now on.
    void expect_a_list() noexcept { reader_.allow(reply_reader::list_of_servers); }

    /// Returns: whether what was posted was not answered yet, and can be.
    bool waits_for_answers() const noexcept { return !broken_ && posted_.count() > 0; }

    /// How far a pipeline came.
    struct extent {
        std::size_t answered = 0;  ///< so many commands have their reply
        std::size_t begun = 0;     ///< of so many something was sent
    };

    /// Effects: sends all of `commands`, then reads their replies into `replies`, until `deadline` or a stop
    /// request; says in `done` for how many there is one.
    /// Preconditions: as many replies as commands, and at least one.
    /// Returns: nil when there is one for each; else what became of the other commands.
    reply run_all(std::span<const command> commands, std::span<reply> replies, clock::time_point deadline,
                  const std::stop_token* stop, extent& done) {
        return until_stopped(stop, [&] { return run_whole(commands, replies, deadline, done); });
    }

    /// Effects: sends `cmd`; its reply is noted in `wanted`, if there is one, when it is read.
    /// Returns: whether it was handed to the system.
    bool post(const command& cmd, clock::time_point deadline, std::shared_ptr<receipt> wanted) {
        posted_.make_room();  // what was sent is expected, memory or not
        if (send(cmd, deadline)) return false;
        posted_.expect(std::move(wanted));
        posted_at_ = clock::now();
        broken_ = false;
        return true;
    }

    /// Effects: sends `cmd`, whose answer is one of those that listen() gives.
    /// Returns: whether it was handed to the system.
    bool send_only(const command& cmd, clock::time_point deadline) {
        if (send(cmd, deadline)) return false;
        broken_ = false;
        return true;
    }

    /// Effects: waits for whatever the server says next, until `deadline` or until `stop_fd` can be read.
    /// Returns: that; none when it said nothing; reply::no_answer when it never will.
    std::optional<reply> listen(clock::time_point deadline, int stop_fd) {
        receive_buffer buffer;
        std::string_view bytes;
        for (;;) {
            if (auto said = reader_.next()) return said;
            if (bytes_.over()) return session_lost();
            if (reader_.failure() == errc{}) {
                ended_ = bytes_.receive(buffer, bytes, deadline, stop_fd);
                if (ended_ == io::timed_out || ended_ == io::stopped) return std::nullopt;
            }
            auto failure = take_received(bytes, deadline);
            if (!failure) continue;
            broken_ = true;
            return failure;
        }
    }

    /// Returns: what poll() can wait for before listen().
    int fd() const noexcept { return bytes_.socket().fd(); }

    enum class state { ready, owing, over };

    /// Effects: reads replies to posted commands that have come.
    /// Returns: ready for the next command; owing so many replies that it should not be sent more; or over.
    state drain_posted() {
        if (broken_) return state::over;
        broken_ = true;  // should an exception lose what was read
        const state found = read_posted();
        broken_ = false;
        return found;
    }
    /// Effects: the same, whatever was posted a moment ago.
    void collect() {
        posted_at_ = {};
        if (posted_.count() > 0 && drain_posted() == state::over && !demoted()) broken_ = true;
    }

    /// Returns: whether an exchange failed, or an exception left it half-way.
    bool broken() const noexcept { return broken_; }
    /// Returns: whether it broke, or was left, since the server neither answered nor took all in, in time.
    bool fell_silent() const noexcept { return (broken_ || left_) && ended_ == io::timed_out; }
    /// Returns: whether the server ended it during an exchange.
    bool server_ended() const noexcept { return broken_ && (ended_ == io::closed || ended_ == io::failed); }
    /// Returns: whether the server answered something since the last call. A post alone is no answer.
    bool take_heard() noexcept { return std::exchange(heard_, false); }
    /// Returns: whether the server ever answered a command on it.
    bool answered() const noexcept { return server_.answered(); }
    /// Returns: whether the server said that it is no master, or no longer: see says_role_changed.
    bool demoted() const noexcept { return server_.demoted(); }
    /// Returns: whether the server said that it has no room for this connection; it ends it.
    bool turned_away() const noexcept { return server_.full(); }

  private:
    friend class handshake;
    struct shutter {
        void operator()() const noexcept { socket.shut_down(); }
        stream_socket& socket;
    };

    static constexpr std::size_t max_unanswered = 256;  // more unread replies stop the server's writing
    static constexpr int max_late_reads = 1024 * 1024 / std::tuple_size_v<receive_buffer>;

    explicit stream(stream_socket socket) : bytes_(std::move(socket)) {}

    reply until_stopped(const std::stop_token* stop, function_ref<reply()> run) {
        if (stop == nullptr) return run();
        if (stop->stop_requested()) return reply::not_sent(errc::cancelled, "stopped");
        // The socket's own end ends every wait for it: that needs no descriptor, and no system call more.
        bool stopped = false;
        reply answer;
        {
            const std::stop_callback on_stop(*stop, [&]() noexcept {
                stopped = true;
                bytes_.socket().shut_down();
            });
            answer = run();
        }
        if (!stopped) return answer;
        broken_ = true;
        if (ended_ != io::timed_out) ended_ = io::stopped;
        if (answer.answered()) return answer;
        return answer.is(reply_kind::not_sent) ? reply::not_sent(errc::cancelled, "stopped")
                                               : lost(errc::cancelled, "stopped");
    }

    reply run_whole(std::span<const command> commands, std::span<reply> replies, clock::time_point deadline,
                    extent& done) {
        plain_.clear();
        for (const command& one : commands) append_request(plain_, one);
        std::size_t sent = 0;
        const io outcome = hand_over(deadline, sent);
        if (outcome == io::done) {
            done.begun = commands.size();
            auto failure = read_all(replies, deadline, done.answered);
            return failure ? *std::move(failure) : reply::nil();
        }
        if (sent == 0) return sending_failed(outcome, sent);
        // Under TLS only the session knows: all may be whole.
        const auto count = bytes_.encrypted() ? sent_requests{commands.size(), commands.size()}
                                              : count_sent(commands, sent, plain_);
        done.begun = count.begun;
        // Nothing more is waited for, but what has come is worth having.
        auto failure = read_all(replies.first(count.whole), clock::time_point{}, done.answered);
        broken_ = true;
        if (failure && failure->cause() != errc::no_reply) return *std::move(failure);
        return sending_failed(outcome, sent);
    }

    // Returns: what failed, if anything did.
    [[gnu::noinline]] std::optional<reply> send(const command& cmd, clock::time_point deadline) {
        plain_.clear();
        append_request(plain_, cmd);
        std::size_t sent = 0;
        const io outcome = hand_over(deadline, sent);
        return outcome == io::done ? std::nullopt : std::optional(sending_failed(outcome, sent));
    }

    state read_posted() {
        if (posted_.count() == 0) return bytes_.socket().peek() == io::timed_out ? state::ready : state::over;
        // A command that was posted a moment ago has no answer yet.
        const auto now = clock::now();
        if (now - posted_at_ < std::chrono::milliseconds{1} && posted_.count() < max_unanswered)
            return state::ready;
        receive_buffer buffer;
        std::string_view bytes;
        for (;;) {
            const io came = bytes_.receive(buffer, bytes, clock::time_point{}, -1);
            if (came == io::timed_out) break;
            if (came != io::done || !take_in(bytes, now)) return state::over;
            while (auto answer = reader_.next()) {
                if (posted_.count() == 0) return state::over;
                settle(*std::move(answer));
            }
            if (reader_.failure() != errc{} || bytes_.over()) return state::over;
        }
        const bool too_many = posted_.count() == 0 && reader_.has_leftover();
        if (too_many || demoted() || turned_away()) return state::over;
        return posted_.count() < max_unanswered ? state::ready : state::owing;
    }

    // Effects: reads on to the reply of what was sent last; `after_posted`: when others were still to come.
    reply next_answer(clock::time_point deadline, int stop_fd, bool after_posted) {
        receive_buffer buffer;
        std::string_view bytes;
        for (;;) {
            while (auto answer = reader_.next()) {
                if (posted_.count() > 0) {
                    settle(*std::move(answer));
                    continue;
                }
                note(*answer);
                const bool too_many = reader_.has_leftover();
                // The surplus may have come before it, and this be the answer to what was posted.
                if (too_many && after_posted) return lost(errc::protocol_error, "more replies than commands");
                broken_ = too_many || bytes_.over() || turned_away();
                return *std::move(answer);
            }
            if (auto failure = hear(buffer, bytes, deadline, stop_fd)) return *std::move(failure);
        }
    }

    // Effects: sends what is in plain_; `sent` counts bytes, under TLS those of the session.
    // Returns: done, or why not; closed when the TLS session is.
    [[gnu::noinline]] io hand_over(clock::time_point deadline, std::size_t& sent) {
        broken_ = true;  // until the exchange is complete
        return ended_ = bytes_.send(plain_, deadline, sent);
    }

    [[gnu::cold]] reply sending_failed(io outcome, std::size_t sent) {
        if (outcome == io::closed) return reply::not_sent(errc::unreachable, "the TLS session is over");
        if (outcome == io::failed && bytes_.read_failure())
            return sent > 0 ? session_lost()
                            : reply::not_sent(errc::tls_failed, concat({"TLS: ", bytes_.failure()}));
        if (outcome == io::failed && sent == 0 && bytes_.read_no_room()) {
            server_.on_no_room();
            return reply::not_sent(errc::unavailable, no_room);
        }
        if (sent == 0) return reply::not_sent(errc::unreachable, "the connection broke");
        return lost(errc::no_reply,
                    outcome == io::timed_out ? "sending took too long" : "the connection broke");
    }

    // Effects: reads replies to posted commands and then `replies`, and counts the latter in `answered`.
    // Returns: why there are not all, if so.
    std::optional<reply> read_all(std::span<reply> replies, clock::time_point deadline,
                                  std::size_t& answered) {
        const std::size_t certain = posted_.count() > 0 ? 0 : 1;
        receive_buffer buffer;
        std::string_view bytes;
        for (int late = 0;;) {
            while (answered < replies.size()) {
                auto next = reader_.next();
                if (!next) break;
                if (posted_.count() > 0) {
                    settle(*std::move(next));
                } else {
                    note(*next);
                    replies[answered++] = *std::move(next);
                }
            }
            if (answered == replies.size()) break;
            if (bytes_.over()) return session_lost();
            // Replies that came in time are read, but a server that goes on sending must not hold us.
            if (clock::now() >= deadline && ++late > max_late_reads)
                return lost(errc::no_reply, "no reply in time");
            if (auto failure = hear(buffer, bytes, deadline, -1)) return failure;
        }
        const bool too_many = reader_.has_leftover();
        broken_ = too_many || bytes_.over() || turned_away();
        if (!too_many || answered <= certain) return std::nullopt;
        // The surplus may have come anywhere: all behind it answer the question before theirs.
        answered = certain;
        return lost(errc::protocol_error, "more replies than commands");
    }

    // Effects: waits for bytes and gives them to the reader.
    // Returns: why there are none, if so.
    [[gnu::noinline]] std::optional<reply> hear(receive_buffer& buffer, std::string_view& bytes,
                                                clock::time_point deadline, int stop_fd) {
        if (reader_.failure() == errc{}) ended_ = bytes_.receive(buffer, bytes, deadline, stop_fd);
        return take_received(bytes, deadline);
    }
    // Returns: why nothing was received, if so.
    std::optional<reply> take_received(std::string_view bytes, clock::time_point deadline) {
        if (reader_.failure() != errc{}) return lost(reader_.failure(), "the reply cannot be read");
        if (ended_ != io::done)
            return lost(ended_ == io::stopped ? errc::cancelled : errc::no_reply,
                        bytes_.why_no_reply(ended_, answered()));
        heard_ = true;
        return take_in(bytes, deadline) ? std::nullopt : std::optional(session_lost());
    }

    void settle(reply answer) noexcept {
        note(answer);
        posted_.settle(std::move(answer));
        if (posted_.count() == 0) left_ = false;
    }
    [[gnu::noinline]] void note(const reply& answer) noexcept { server_.on_reply(answer); }

    // Effects: gives the reader what was received. Returns: false when that was the end of the TLS session.
    bool take_in(std::string_view received, clock::time_point deadline) {
        const auto said = bytes_.open(received, deadline);
        if (said) reader_.feed(*said);
        return said.has_value();
    }

    [[gnu::cold]] reply session_lost() const {
        if (bytes_.failure().empty()) return reply::no_answer(errc::no_reply, "the TLS session ended");
        return reply::no_answer(errc::tls_failed, concat({"TLS: ", bytes_.failure()}));
    }

    [[gnu::cold]] static reply lost(errc cause, const char* why) { return reply::no_answer(cause, why); }
    byte_stream bytes_;
    reply_reader reader_;
    std::string plain_;  // kept for its capacity
    posted_replies posted_;
    clock::time_point posted_at_{};
    io ended_ = io::done;  // how the last attempt to send or to hear something went
    bool broken_ = false;
    bool left_ = false;  // somebody gave up waiting for an answer that may still come
    bool heard_ = false;
    server_standing server_;
    leaked_in_child<std::optional<std::stop_callback<shutter>>> on_end_;
};

}  // namespace distlock::detail
