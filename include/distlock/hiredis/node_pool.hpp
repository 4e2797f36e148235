// The sockets to one server: what is sent on which of them, when a new one is opened, and the
// one for subscriptions.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/kept_sockets.hpp>
#include <distlock/hiredis/resolve.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/hiredis/subscriber.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// What hiredis_connection does, but for what lives as long as it. Thread-safe.
class node_pool {
  public:
    /// `superseded`: when that is requested every socket ends, whoever uses it. `needed`: what
    /// the server has to be.
    /// Effects and Throws: as hiredis_connection.
    [[gnu::cold]] node_pool(uri where, std::shared_ptr<const secure_layer> secure,
                            std::stop_token superseded = {}, handshake::role needed = handshake::role::any)
        : where_(std::move(where)),
          shown_(redacted(where_)),
          secure_(std::move(secure)),
          superseded_(std::move(superseded)),
          needed_(needed) {
        check_uri(where_);
        check_tls(where_.scheme, secure_ != nullptr, shown_, "rediss://");
    }

    node_pool(const node_pool&) = delete;
    node_pool& operator=(const node_pool&) = delete;

    /// `asking`: behind ASKING, on the same socket and in the same round trip.
    reply execute(const command& cmd, bool asking = false) {
        return on_a_stream(purpose::command, cmd.deadline(), cmd.stop(), [&](stream& c, bool lent) {
            const auto by = answer_by(cmd.deadline());
            if (asking && !c.post(command({argument("ASKING")}), by, std::make_shared<receipt>()))
                return reply::not_sent(errc::unreachable, "the connection broke");
            return run(c, cmd, by, lent);
        });
    }

    /// As execute(); the answer may be as long as the map of a Cluster.
    reply ask_for_map(const command& cmd) {
        return on_a_stream(purpose::command, cmd.deadline(), cmd.stop(), [&](stream& c, bool lent) {
            c.expect_a_list();
            return run(c, cmd, answer_by(cmd.deadline()), lent);
        });
    }

    [[gnu::cold]] void pipeline(std::span<const command> commands, std::span<reply> replies) {
        if (commands.empty()) return;
        const auto last = last_deadline(commands);
        const auto bound = [](const command& one) { return one.bound_to_previous(); };
        if (std::none_of(commands.begin(), commands.end(), bound))
            return run_all(purpose::pipeline, last, nullptr, commands, replies);
        pipeline_with_waits(last, commands, replies);
    }

    /// `asking`: as of execute().
    acknowledged_reply execute_acknowledged(const command& write, const command& wait, bool asking = false) {
        const command all[] = {command({argument("ASKING")}), write, wait};
        reply replies[3];
        const std::size_t from = asking ? 0 : 1;
        run_all(purpose::unit, write.deadline(), write.stop(), std::span(all).subspan(from),
                std::span(replies).subspan(from));
        return {std::move(replies[1]), std::move(replies[2])};
    }

    bool post(const command& cmd, std::shared_ptr<receipt> wanted) {
        bool posted = false;
        on_a_stream(purpose::post, cmd.deadline(), cmd.stop(), [&](stream& c, bool) {
            try {
                // Not moved: the first socket may turn out to be over.
                posted = c.post(cmd, answer_by(cmd.deadline()), wanted);
            } catch (const std::bad_alloc&) {
                if (c.broken()) throw;
                posted = false;  // nothing was sent, and the socket is as it was
            }
            return reply::nil();
        });
        return posted;
    }

    [[gnu::cold]] void collect() {
        if (process_.in_forked_child()) return;
        if (sockets_.read_posted()) subscribe_anew();
    }

    [[gnu::cold]] std::shared_ptr<subscription> subscribe(std::string_view name) {
        if (process_.in_forked_child()) throw_error(errc::wrong_process, {shown_});
        const annotated_lock guard(subscriber_lock_);
        auto& one = subscriber_.get();
        if (!one) {
            one = std::make_unique<subscriber>(home_, where_.connect_timeout, where_.command_timeout, home_);
        }
        return one->subscribe(name);
    }

    /// Effects: closes the idle sockets that the server has ended. Returns: whether there was one.
    [[gnu::cold]] bool close_ended() { return sockets_.close_ended(); }

    /// Returns: a new socket that nobody else uses; none where it cannot be had before `deadline`, or
    /// `stop_fd` can be read.
    std::unique_ptr<stream> connect(clock::time_point deadline, int stop_fd) {
        return open_stream(connect_by(deadline), stop_fd).made;
    }

    std::string_view identity() const noexcept { return shown_; }

    std::chrono::milliseconds command_timeout() const noexcept { return where_.command_timeout; }
    std::chrono::milliseconds connect_timeout() const noexcept { return where_.connect_timeout; }

  private:
    using purpose = kept_sockets::purpose;
    using pooled = kept_sockets::pooled;

    // What the subscriber needs of it.
    struct home final : upkeep, stream_source {
        explicit home(node_pool& of) noexcept : pool(of) {}
        void keep_up() override { pool.collect(); }
        std::unique_ptr<stream> connect(clock::time_point deadline, int stop_fd) override {
            return pool.connect(deadline, stop_fd);
        }
        node_pool& pool;
    };

    clock::time_point answer_by(clock::time_point deadline) const noexcept {
        return std::min(deadline, clock::now() + where_.command_timeout);
    }
    // A server that waits for its replicas is not silent.
    clock::time_point answer_by(clock::time_point deadline,
                                std::span<const command> commands) const noexcept {
        auto longest = where_.command_timeout;
        for (const command& one : commands) longest += one.takes();
        return std::min(deadline, clock::now() + longest);
    }
    static reply run(stream& c, const command& cmd, clock::time_point by, bool lent) {
        return lent ? c.run_or_leave(cmd, by) : c.run(cmd, by);
    }

    // One wait for replicas serves all writes before it.
    [[gnu::cold]] void pipeline_with_waits(clock::time_point last, std::span<const command> commands,
                                           std::span<reply> replies) {
        std::vector<std::size_t> places;
        std::vector<command> some;
        for (std::size_t i = 0; i < commands.size(); ++i) {
            if (answered_by(commands, i) != i) continue;
            places.push_back(i);
            some.push_back(commands[i]);
        }
        std::vector<reply> answers(some.size());
        run_all(purpose::pipeline, last, nullptr, some, answers);
        for (std::size_t k = 0; k < places.size(); ++k) replies[places[k]] = std::move(answers[k]);
        for (std::size_t i = 0; i < commands.size(); ++i) {
            if (const auto by = answered_by(commands, i); by != i) replies[i] = replies[by];
        }
    }

    [[gnu::noinline]] void run_all(purpose why, clock::time_point deadline, const std::stop_token* stop,
                                   std::span<const command> commands, std::span<reply> replies) {
        stream::extent done;
        const reply failure = on_a_stream(why, deadline, stop, [&](stream& c, bool) {
            done = {};
            reply answer = c.run_all(commands, replies, answer_by(deadline, commands), stop, done);
            if (!answer.answered() && c.turned_away()) done.begun = 0;  // it has executed nothing
            return answer;
        });
        if (failure.answered()) return;
        const errc unsent = failure.is(reply_kind::not_sent) ? failure.cause() : errc::unreachable;
        for (std::size_t i = done.answered; i < replies.size(); ++i) {
            replies[i] = i < done.begun ? reply::no_answer(failure.cause(), failure.text())
                                        : reply::not_sent(unsent, failure.text());
        }
    }

    using use_of_stream = function_ref<reply(stream&, bool lent)>;
    reply on_a_stream(purpose why, clock::time_point deadline, const std::stop_token* stop,
                      use_of_stream use) {
        if (process_.in_forked_child()) return reply::not_sent(errc::wrong_process, shown_);
        const auto had_by = connect_by(deadline);  // whatever it takes to have a socket
        for (bool may_be_spare = why != purpose::post;; may_be_spare = false) {
            pooled mine = take(why, had_by, may_be_spare);
            const bool kept = mine.on != nullptr;
            const bool spare = mine.spare;
            if (!kept) {
                const auto open_by = spare ? std::min(some_of(deadline), had_by) : had_by;
                if (auto failure = open(mine, open_by, stop)) {
                    if (stop_requested(stop)) return named(reply::not_sent(errc::cancelled, "stopped"));
                    if (spare) continue;
                    if (!may_use_the_reserve(why) || superseded_.stop_requested()) return *std::move(failure);
                    return on_the_reserve(use, *std::move(failure));
                }
            }
            reply answer = use(*mine.on, false);
            // A socket that was kept may have ended unnoticed, or been turned away since it was posted on;
            // nothing was sent on it then, or executed.
            const bool stopped = !answer.answered() && answer.cause() == errc::cancelled;
            const bool away = mine.on->turned_away() && mine.is_new();
            // The refusal may have been taken for the answer to ASKING.
            if (away && !stopped && !answer.answered()) answer = reply::not_sent(errc::unavailable, no_room);
            const bool in_vain = !stopped && (away || answer.is(reply_kind::not_sent));
            const bool over = away || mine.on->broken();
            give_back(std::move(mine));
            if (in_vain && (kept ? over : spare)) continue;
            if (!answer.answered()) answer = named(answer);
            if (in_vain && !kept && may_use_the_reserve(why)) return on_the_reserve(use, std::move(answer));
            return answer;
        }
    }

    static bool may_use_the_reserve(purpose why) noexcept {
        return why == purpose::command || why == purpose::post;
    }

    // Effects: executes what no other socket could be had for on the one for pipelines, if nobody uses that,
    // and in such a way that giving up does not end it: the locks that are held may be lost with it.
    // Returns: the answer; without one, `otherwise`.
    [[gnu::cold]] reply on_the_reserve(use_of_stream use, reply otherwise) {
        pooled mine = take_reserve();
        if (!mine.on) return otherwise;
        reply answer = use(*mine.on, true);
        give_back(std::move(mine));
        return answer.answered() ? answer : named(answer);
    }

    [[gnu::noinline, gnu::cold]] reply named(const reply& failure) const {
        const auto text = concat({shown_, ": ", failure.text()});
        return failure.is(reply_kind::not_sent) ? reply::not_sent(failure.cause(), text)
                                                : reply::no_answer(failure.cause(), text);
    }

    clock::time_point connect_by(clock::time_point deadline) const {
        return std::min(deadline, clock::now() + where_.connect_timeout);
    }
    // Returns: when there is time left for another way.
    static clock::time_point some_of(clock::time_point deadline) {
        const auto now = clock::now();
        return now + (deadline - now) / 4;
    }

    // `stop`: until it is requested; null: it will not be. Returns: what failed.
    [[gnu::cold]] std::optional<reply> open(pooled& fresh, clock::time_point deadline,
                                            const std::stop_token* stop) {
        if (const auto refused = sockets_.refuse_new()) return named(*refused);
        std::optional<wake_on_stop> wake;
        if (stop != nullptr || superseded_.stop_possible()) {
            try {
                wake.emplace(stop != nullptr ? *stop : std::stop_token(), superseded_);
            } catch (const std::system_error& e) {
                return named(reply::not_sent(errc::unreachable, e.what()));
            }
        }
        auto opened = open_stream(deadline, wake ? wake->fd() : -1);
        if (superseded_.stop_requested())
            return named(reply::not_sent(errc::unreachable, "another server is the master"));
        if (opened.in_vain) {
            sockets_.opened_in_vain(opened.failure);
        } else if (opened.made ? needed_ != handshake::role::any : !stop_requested(stop)) {
            sockets_.end_pause();
        }
        if (!opened.made) return named(opened.failure);
        fresh.on = std::move(opened.made);
        return std::nullopt;
    }

    [[gnu::cold]] handshake::opened open_stream(clock::time_point by, int stop_fd) {
        auto opened = handshake::open(where_, names_, secure_.get(), by, stop_fd, needed_);
        if (opened.made) opened.made->end_with(superseded_);
        return opened;
    }

    // Returns: a socket that is kept and can be used; none, when a new one is to be opened.
    // `until` and `may_be_spare`: as of lend().
    [[gnu::noinline]] pooled take(purpose why, clock::time_point until, bool may_be_spare) {
        std::vector<pooled> owing;
        pooled found = sockets_.lend(why, until, may_be_spare);
        while (found.on) {
            const auto state = found.on->drain_posted();
            if (state == stream::state::ready) break;
            if (state == stream::state::owing) {
                owing.push_back(std::move(found));
            } else if (found.on->demoted()) {
                give_back(std::move(found));
            } else {
                sockets_.discard(std::move(found));
            }
            found = sockets_.lend(why, until, false);
        }
        for (auto& later : owing) give_back(std::move(later));
        return found;
    }

    // Returns: the socket for pipelines; none, when it is not there or cannot be used.
    [[gnu::cold]] pooled take_reserve() {
        pooled found = sockets_.lend_reserve();
        if (!found.on) return {};
        const auto state = found.on->drain_posted();
        if (state == stream::state::ready) return found;
        if (state == stream::state::owing || found.on->demoted()) give_back(std::move(found));
        return {};
    }

    void give_back(pooled mine) {
        if (sockets_.take_back(std::move(mine))) subscribe_anew();
    }

    // Effects: the server is a replica: the subscriber is to find the master.
    [[gnu::cold]] void subscribe_anew() {
        const annotated_lock guard(subscriber_lock_);
        if (subscriber_.get()) subscriber_.get()->reconnect();
    }

    const uri where_;
    const std::string shown_;  // the URI, fit for messages
    const std::shared_ptr<const secure_layer> secure_;
    const std::stop_token superseded_;
    const handshake::role needed_;
    const own_process process_;
    resolver names_{where_.host, where_.port};
    kept_sockets sockets_{where_.max_idle};
    home home_{*this};
    annotated_mutex subscriber_lock_;
    // None before the first subscribe().
    leaked_in_child<std::unique_ptr<subscriber>> subscriber_ DISTLOCK_GUARDED_BY(subscriber_lock_);
};

}  // namespace distlock::detail
