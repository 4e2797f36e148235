// distlock::hiredis_connection: the connection for those who have none yet.
//
//   class hiredis_connection {
//     explicit hiredis_connection(where);                    // "redis://user:password@host:6379/0" or a uri
//     hiredis_connection(where, shared_ptr<const secure_layer>);   // rediss://, see <distlock/hiredis_tls.hpp>
//     reply execute(const command&);
//     void pipeline(std::span<const command>, std::span<reply>);
//     bool post(const command&, std::shared_ptr<receipt> = nullptr);
//     void collect();
//     reply wait(const command&, clock::time_point deadline, std::stop_token);
//     reply wait(const command&, clock::time_point deadline, std::stop_token, std::shared_ptr<receipt>& late);
//     std::shared_ptr<subscription> subscribe(std::string_view channel);
//     companion& host() noexcept;
//     std::chrono::milliseconds command_timeout() const noexcept;
//     std::string_view identity() const noexcept;
//   };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/process.hpp>
#include <distlock/hiredis/channel.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/resolve.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/subscriber.hpp>
#include <distlock/net/companion.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/blocking_time.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// A connection to one server, for any number of threads. Sockets are opened when they are needed and kept,
/// the last used first, so that what one thread posts and then executes travels on one socket, in order. No
/// call outlasts its deadline: the command's own, and at most the URI's connect time-out and command
/// time-out. A socket on which anything went wrong is aborted, never used again; what had been sent on it and
/// not delivered is dropped. After fork() the child can only destroy it.
class hiredis_connection {
  public:
    /// Effects: none on the network: the first command connects.
    /// Throws: error(errc::invalid_uri), also for a secure_layer without rediss://;
    /// error(errc::tls_unavailable) for rediss:// without a secure_layer.
    explicit hiredis_connection(std::string_view where) : hiredis_connection(parse_uri(where)) {}
    explicit hiredis_connection(uri where) : hiredis_connection(std::move(where), nullptr) {}
    hiredis_connection(std::string_view where, std::shared_ptr<const secure_layer> secure)
        : hiredis_connection(parse_uri(where), std::move(secure)) {}
    hiredis_connection(uri where, std::shared_ptr<const secure_layer> secure)
        : where_(std::move(where)), shown_(redacted(where_)), secure_(std::move(secure)) {
        check_uri(where_);
        const bool encrypted = where_.scheme == uri_scheme::tls;
        if (encrypted && !secure_) throw error(errc::tls_unavailable, shown_);
        if (!encrypted && secure_) throw error(errc::invalid_uri, shown_ + " with TLS; write rediss://");
        idle_.reserve(where_.max_idle);
    }

    hiredis_connection(const hiredis_connection&) = delete;
    hiredis_connection& operator=(const hiredis_connection&) = delete;
    ~hiredis_connection() = default;

    /// Effects: executes one command and waits for its reply.
    /// Returns: the reply; not_sent or no_answer, with a reason that names the server and holds no secret,
    /// when there is none.
    /// Round trips: one; on a new socket two more at most, for AUTH (or PING, over TLS) and SELECT.
    reply execute(const command& cmd) {
        return on_a_channel(cmd.deadline(),
                            [&](detail::channel& c) { return c.run(cmd, answer_by(cmd.deadline()), -1); });
    }

    /// Effects: executes all of `commands` in one pipeline on one socket, and waits for the replies until the
    /// last of the commands' deadlines, and no longer than the command time-out. They are read when all is sent:
    /// the server holds what the system's buffers do not. What goes wrong ends the pipeline, but what was
    /// answered before stays answered; the others are not_sent, if no byte of the command was, or no_answer. So
    /// is a reply that may belong to another command, since there were more replies than commands.
    /// Preconditions: as many replies as commands.
    /// Throws: std::bad_alloc; no reply counts then.
    /// Round trips: one; on a new socket more, as execute().
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        if (commands.empty()) return;
        const auto last =
            std::max_element(commands.begin(), commands.end(), [](const auto& a, const auto& b) {
                return a.deadline() < b.deadline();
            })->deadline();
        detail::channel::extent done;
        const reply failure = on_a_channel(
            last, [&](detail::channel& c) { return c.run_all(commands, replies, answer_by(last), done); });
        if (failure.answered()) return;
        const errc unsent = failure.is(reply_kind::not_sent) ? failure.cause() : errc::unreachable;
        for (std::size_t i = done.answered; i < replies.size(); ++i) {
            replies[i] = i < done.begun ? reply::no_answer(failure.cause(), failure.text())
                                        : reply::not_sent(unsent, failure.text());
        }
    }

    /// Effects: sends one command and does not wait for its reply, which is noted in `wanted` when it is read, if there is
    /// one.
    /// Returns: whether it was handed to the system.
    bool post(const command& cmd, std::shared_ptr<receipt> wanted = nullptr) {
        bool posted = false;
        on_a_channel(cmd.deadline(), [&](detail::channel& c) {
            posted = c.post(cmd, answer_by(cmd.deadline()), std::move(wanted));
            return reply::nil();
        });
        return posted;
    }

    /// Effects: reads the replies to posted commands that have come, and waits for nothing.
    void collect() {
        if (detail::current_process() != process_) return;
        const std::lock_guard guard(idle_lock_);
        for (auto& one : idle_) one->collect();
        std::erase_if(idle_, [](const auto& one) { return one->broken(); });
        for (auto& one : engaged_) one.on->collect();
        forget_engaged();
    }

    /// Effects: executes one command that may block on the server, until it answers, `deadline` passes or
    /// `stop` is requested. The wait is then ended on the server, by CLIENT UNBLOCK on another socket, and what it gave by
    /// then is returned all the same; where that is not permitted, the command is sent with time-outs of a tenth of a
    /// second, again and again. A server that does not answer that either is given 50 ms. Every three seconds the server is
    /// asked on another socket whether it still knows of the wait (CLIENT LIST), if that is permitted.
    /// Preconditions: the last argument of a command that begins with B is its time-out.
    /// Round trips: one; one more for the first wait on a socket, and two when the wait is ended.
    reply wait(const command& cmd, clock::time_point deadline, std::stop_token stop) {
        return wait_and_hear(cmd, deadline, stop, nullptr);
    }
    /// Effects: as above; but where the server was asked to end the wait, and did not answer in time, `late` becomes a receipt
    /// for what it gave: of sixteen such waits at a time, for two seconds, or a command time-out where that is longer.
    reply wait(const command& cmd, clock::time_point deadline, std::stop_token stop,
               std::shared_ptr<receipt>& late) {
        return wait_and_hear(cmd, deadline, stop, &late);
    }

    /// Effects: from now on hears what is published on `channel`, and to its shard: on one more socket, which is there, with
    /// a thread, as long as there are subscriptions. Waits for nothing.
    /// Throws: error(errc::wrong_process), std::system_error when there is no thread to be had, std::bad_alloc.
    std::shared_ptr<subscription> subscribe(std::string_view channel) {
        if (detail::current_process() != process_) throw error(errc::wrong_process, shown_);
        const auto open = [this](clock::time_point by, int stop_fd) {
            return detail::handshake::open(where_, names_, secure_.get(), by, stop_fd).made;
        };
        using subscriber = detail::subscriber<decltype(open)>;
        const auto make = [&] {
            return std::make_shared<subscriber>(open, where_.connect_timeout, where_.command_timeout);
        };
        return companion_.get<subscriber>(make)->subscribe(channel);
    }

    /// Returns: a place for what uses this connection until it ends.
    companion& host() noexcept { return companion_; }

    /// Returns: the URI without its password: equal texts lead to the same locks.
    std::string_view identity() const noexcept { return shown_; }

    /// Returns: how long execute() waits for a reply at most.
    std::chrono::milliseconds command_timeout() const noexcept { return where_.command_timeout; }

  private:
    clock::time_point answer_by(clock::time_point deadline) const noexcept {
        return std::min(deadline, clock::now() + where_.command_timeout);
    }
    reply wait_and_hear(const command& cmd, clock::time_point deadline, const std::stop_token& stop,
                        std::shared_ptr<receipt>* late) {
        if (stop.stop_requested()) return reply::not_sent(errc::cancelled, shown_);
        const detail::stop_waker waker(stop);
        if (stop.stop_possible() && waker.fd() < 0) {
            return reply::not_sent(errc::unreachable, shown_ + ": no descriptor to be stopped by");
        }
        reply answer = on_a_channel(
            deadline,
            [&](detail::channel& c) {
                if (auto failure = introduce(c, deadline)) return *std::move(failure);
                if (*c.id() == 0 && cmd.argv()[0].starts_with('B'))
                    return wait_in_turns(c, cmd, deadline, stop);
                reply given = c.wait(
                    cmd, deadline, waker.fd(), [&](clock::time_point by) { return unblock(*c.id(), by); },
                    [&](clock::time_point by) { return blocked(*c.id(), by); });
                if (late != nullptr && c.may_hear()) {
                    auto wanted = std::make_shared<receipt>();
                    c.hear_later(wanted);
                    *late = std::move(wanted);
                }
                return given;
            },
            waker.fd());
        if (!answer.is(reply_kind::not_sent) || !stop.stop_requested()) return answer;
        return reply::not_sent(errc::cancelled, answer.text());
    }

    // Effects: learns by which number the server knows the channel, and whether we may end its waits by it.
    // Returns: what failed.
    std::optional<reply> introduce(detail::channel& c, clock::time_point deadline) {
        if (c.id()) return std::nullopt;
        const std::array<command, 2> questions{command{"CLIENT", "ID"}, command{"CLIENT", "UNBLOCK", "0"}};
        std::array<reply, 2> answers;
        detail::channel::extent done;
        const reply failure = c.run_all(questions, answers, answer_by(deadline), done);
        if (!failure.answered()) return reply::not_sent(failure.cause(), failure.text());
        const bool known = answers[0].is(reply_kind::integer) && answers[1].is(reply_kind::integer);
        c.id(known ? answers[0].number() : 0);
        return std::nullopt;
    }

    // Effects: tells the server that nobody waits any more.
    detail::channel::ending unblock(std::int64_t id, clock::time_point by) {
        using ending = detail::channel::ending;
        if (id == 0) return ending::refused;
        const std::string who = std::to_string(id);
        const reply answer = execute(command{"CLIENT", "UNBLOCK", who}.until(by));
        if (answer.is(reply_kind::integer)) return ending::heard;
        return answer.is(reply_kind::no_answer) ? ending::unknown : ending::refused;
    }

    // Returns: whether the server has somebody of that number who waits; also when it does not say.
    bool blocked(std::int64_t id, clock::time_point by) {
        if (id == 0) return true;
        const std::string who = std::to_string(id);
        const reply answer = execute(command{"CLIENT", "LIST", "ID", who}.until(by));
        if (!answer.is(reply_kind::string)) return true;
        const std::string& line = answer.text();
        const auto flags = line.find(" flags=");
        return flags != std::string::npos &&
               line.substr(flags, line.find(' ', flags + 1) - flags).find('b') != std::string::npos;
    }

    reply wait_in_turns(detail::channel& c, const command& cmd, clock::time_point deadline,
                        const std::stop_token& stop) {
        constexpr std::chrono::milliseconds shortest{1};
        constexpr std::chrono::milliseconds longest{100};
        for (;;) {
            const auto now = clock::now();
            const auto turn = std::clamp<clock::duration>(deadline - now, shortest, longest);
            const blocking_time seconds(turn);
            reply answer = c.run(cmd.with_last(seconds.view()), now + turn + where_.command_timeout, -1);
            if (!answer.is(reply_kind::nil)) return answer;
            if (stop.stop_requested()) return reply::no_answer(errc::cancelled, "stopped");
            if (clock::now() >= deadline) return reply::no_answer(errc::no_reply, "no reply in time");
        }
    }

    template <class Use>
    reply on_a_channel(clock::time_point deadline, Use use, int stop_fd = -1) {
        if (detail::current_process() != process_) return reply::not_sent(errc::wrong_process, shown_);
        for (;;) {
            auto mine = take_idle();
            const bool kept = mine != nullptr;
            if (!kept) {
                const auto connected_by = std::min(deadline, clock::now() + where_.connect_timeout);
                auto opened = detail::handshake::open(where_, names_, secure_.get(), connected_by, stop_fd);
                if (!opened.made) return named(opened.failure);
                mine = std::move(opened.made);
            }
            reply answer = use(*mine);
            // A socket that was kept may have ended unnoticed; nothing was sent on it then.
            if (kept && mine->broken() && answer.is(reply_kind::not_sent)) continue;
            if (!mine->broken()) keep(std::move(mine));
            if (answer.answered()) return answer;
            return named(answer);
        }
    }

    reply named(const reply& failure) const {
        auto text = shown_ + ": " + failure.text();
        return failure.is(reply_kind::not_sent) ? reply::not_sent(failure.cause(), std::move(text))
                                                : reply::no_answer(failure.cause(), std::move(text));
    }

    std::unique_ptr<detail::channel> take_idle() {
        std::vector<std::unique_ptr<detail::channel>> owing;
        auto found = last_idle();
        for (; found; found = last_idle()) {
            const auto state = found->look();
            if (state == detail::channel::state::ready) break;
            if (state == detail::channel::state::owing) owing.push_back(std::move(found));
        }
        for (auto& later : owing) keep(std::move(later));
        return found;
    }

    std::unique_ptr<detail::channel> last_idle() {
        const std::lock_guard guard(idle_lock_);
        if (!engaged_.empty()) forget_engaged();
        if (idle_.empty()) return nullptr;
        auto last = std::move(idle_.back());
        idle_.pop_back();
        return last;
    }

    void keep(std::unique_ptr<detail::channel> mine) {
        const std::lock_guard guard(idle_lock_);
        if (mine->engaged()) {
            constexpr std::size_t most = 16;
            constexpr clock::duration long_enough = std::chrono::seconds{2};
            forget_engaged();
            const auto until = clock::now() + std::max<clock::duration>(long_enough, where_.command_timeout);
            if (engaged_.size() < most) engaged_.push_back({std::move(mine), until});
            return;
        }
        if (idle_.size() < where_.max_idle) idle_.push_back(std::move(mine));
    }

    // Who had its answer is not used again: the word that was to end its wait may still be on its way.
    void forget_engaged() noexcept {
        const auto now = clock::now();
        std::erase_if(engaged_,
                      [&](const auto& one) { return !one.on->waits_for_answers() || now >= one.until; });
    }

    // With the answer to a wait that was given up.
    struct engagement {
        std::unique_ptr<detail::channel> on;
        clock::time_point until;
    };

    const uri where_;
    const std::string shown_;  // the URI, fit for messages
    const std::shared_ptr<const secure_layer> secure_;
    const pid_t process_ = detail::current_process();
    detail::resolver names_{where_.host, where_.port};
    std::mutex idle_lock_;
    std::vector<std::unique_ptr<detail::channel>> idle_;
    std::vector<engagement> engaged_;
    companion companion_;  // last: what lives there uses the others until it ends
};

static_assert(check_connection<hiredis_connection>());
static_assert(pipelining_connection<hiredis_connection> && hosting_connection<hiredis_connection> &&
              attentive_connection<hiredis_connection> && subscribing_connection<hiredis_connection>);

}  // namespace distlock
