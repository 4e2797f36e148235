// Asks Sentinels who the master is, all at once.
//
//   class sentinel_inquiry {
//     sentinel_inquiry(const sentinel_uri&, std::shared_ptr<const secure_layer>);
//     sentinel_election ask(std::optional<believed_master> last, time_point deadline, int stop_fd,
//                           duration for_others);
//     std::vector<sentinel_stream> learn(const sentinel_election&, const node_address& master);
//   };
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <poll.h>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/resolve.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/hiredis/switch_watch.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/sentinel_answer.hpp>
#include <distlock/net/sentinel_directory.hpp>
#include <distlock/net/sentinel_election.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// Not thread-safe: one caller at a time. Each Sentinel is asked on a thread of its own that ends with the
/// call, on a socket that does: to connect takes as long as it takes, and one that is dead must not keep the
/// others from being asked.
template <class Lazy>
class sentinel_inquiry {
  public:
    sentinel_inquiry(const sentinel_uri& where, std::shared_ptr<const secure_layer> secure)
        : like_(where.sentinels.front()),
          name_(where.master_name),
          secure_(std::move(secure)),
          directory_(addresses(where.sentinels)) {}
    sentinel_inquiry(const sentinel_inquiry&) = delete;
    sentinel_inquiry& operator=(const sentinel_inquiry&) = delete;

    /// Returns: what was answered when that decides, and `for_others` later, or else before `deadline` and
    /// until `stop_fd` can be read (none: -1).
    /// Throws: std::system_error, std::bad_alloc.
    sentinel_election ask(std::optional<believed_master> last, clock::time_point deadline, int stop_fd,
                          clock::duration for_others) {
        find_all();
        poll_state state{
            sentinel_election(sentinels_.size(), std::move(last), deadline, like_.command_timeout)};
        std::stop_source enough;
        {
            std::vector<std::jthread> threads;
            threads.reserve(sentinels_.size());
            const stop_at_end end{enough};  // before they are joined
            for (std::size_t i = 0; i < sentinels_.size(); ++i) {
                const auto ask_it = [this, i, deadline, &state, stop = enough.get_token()]() noexcept {
                    state.add(answer_of(i, deadline, stop));
                };
                try {
                    const blocked_signals here;
                    threads.emplace_back(ask_it);
                } catch (const std::system_error&) {
                    ask_it();  // one after the other, then
                }
            }
            state.wait(stop_fd, for_others);
        }
        return state.take();
    }

    /// Preconditions: ask() returned `heard`.
    /// Effects: asks those others next time that the directory learns of. Returns: the sockets to the
    /// Sentinels that named `master`.
    std::vector<sentinel_stream> learn(const sentinel_election& heard, const node_address& master) {
        directory_.learn(heard.answers(), master);
        std::vector<sentinel_stream> lines;
        for (const sentinel_answer& one : heard.answers()) {
            sentinel& who = *sentinels_[one.place];
            if (who.open && one.master == master)
                lines.push_back({{who.where.host, who.where.port}, std::move(who.open)});
            who.open.reset();
        }
        return lines;
    }

  private:
    struct sentinel {
        explicit sentinel(uri at) : where(std::move(at)), names(where.host, where.port) {}
        const uri where;
        resolver names;
        std::unique_ptr<stream> open;  // the socket on which it named a master
    };

    struct stop_at_end {
        ~stop_at_end() { source.request_stop(); }
        std::stop_source& source;
    };

    // What the threads that ask tell the one that waits.
    class poll_state {
      public:
        explicit poll_state(sentinel_election begun) : election_(std::move(begun)) {}

        void add(sentinel_answer answer) noexcept {
            const annotated_lock guard(lock_);
            election_.add(std::move(answer), clock::now());
            heard_.set();
        }
        void wait(int stop_fd, clock::duration for_others) {
            for (std::optional<clock::time_point> decided;;) {
                clock::time_point until;
                {
                    const annotated_lock guard(lock_);
                    if (election_.complete()) return;
                    if (!decided && election_.decided()) decided = clock::now();
                    until = election_.until();
                    if (decided) until = std::min(until, *decided + for_others);
                }
                const auto left = time_source().slice(until);
                if (left == clock::duration::zero()) return;
                std::array<pollfd, 2> polled{{{heard_.fd(), POLLIN, 0}, {stop_fd, POLLIN, 0}}};
                wait_for(polled.data(), stop_fd >= 0 ? 2 : 1, left);
                if (polled[1].revents != 0) return;
                heard_.reset();
            }
        }
        /// Preconditions: no thread asks any more.
        sentinel_election take() {
            const annotated_lock guard(lock_);
            return std::move(election_);
        }

      private:
        wake_event heard_;
        annotated_mutex lock_;
        sentinel_election election_ DISTLOCK_GUARDED_BY(lock_);
    };

    static std::vector<node_address> addresses(const std::vector<uri>& of) {
        std::vector<node_address> all;
        for (const uri& one : of) all.push_back({one.host, one.port});
        return all;
    }

    // Effects: one for each in the directory, in its order. Those that were known keep what
    // looks their names up.
    void find_all() {
        std::vector<std::unique_ptr<sentinel>> all;
        for (const node_address& at : directory_.all()) {
            const auto known = std::find_if(sentinels_.begin(), sentinels_.end(), [&](const auto& one) {
                return one && one->where.host == at.host && one->where.port == at.port;
            });
            if (known != sentinels_.end()) {
                all.push_back(std::move(*known));
                continue;
            }
            all.push_back(std::make_unique<sentinel>(with_place(like_, at.host, at.port)));
        }
        for (const auto& one : all) one->open.reset();
        sentinels_ = std::move(all);
    }

    sentinel_answer answer_of(std::size_t place, clock::time_point deadline,
                              const std::stop_token& stop) noexcept {
        sentinel_answer said;
        try {
            sentinel& one = *sentinels_[place];
            said = ask_one(one, deadline, stop);
            // Its socket was ended by us.
            if (said.what == sentinel_answer::kind::silent && stop.stop_requested())
                said = {.cause = errc::no_reply, .detail = "no reply in time"};
            if (!said.detail.empty())
                said.detail =
                    one.where.host + ":" + std::to_string(one.where.port) + ": " + printable(said.detail);
        } catch (...) {
            // Without memory or descriptors it is as silent as one that does not answer.
        }
        said.place = place;
        return said;
    }

    sentinel_answer ask_one(sentinel& one, clock::time_point deadline, const std::stop_token& stop) {
        std::optional<wake_on_stop> wake;
        try {
            wake.emplace(stop);
        } catch (const std::system_error& e) {
            return {.cause = errc::unreachable, .detail = e.what()};
        }
        const auto connect_by = std::min(deadline, clock::now() + like_.connect_timeout);
        auto opened = handshake::open(one.where, one.names, secure_.get(), connect_by, wake->fd());
        if (!opened.made) {
            const errc cause = opened.failure.cause();
            const bool refused = cause == errc::authentication_failed || cause == errc::permission_denied ||
                                 cause == errc::tls_failed;
            return {.what = refused ? sentinel_answer::kind::refused : sentinel_answer::kind::silent,
                    .cause = cause,
                    .detail = opened.failure.text()};
        }
        opened.made->end_with(stop);
        opened.made->expect_a_list();  // of Sentinels: they forget none
        std::array<reply, sentinel_questions> replies;
        std::vector<command> questions;
        for (std::size_t n = 0; n < sentinel_questions; ++n) questions.push_back(sentinel_question(n, name_));
        stream::extent done;
        const auto answer_by = std::min(deadline, clock::now() + like_.command_timeout);
        const reply failure = opened.made->run_all(questions, replies, answer_by, nullptr, done);
        for (std::size_t n = done.answered; n < replies.size(); ++n) replies[n] = failure;
        auto said = read_sentinel_answer(replies);
        if (said.what == sentinel_answer::kind::names_master) {
            opened.made->end_with({});
            one.open = std::move(opened.made);
        }
        return said;
    }

    const uri like_;  // the Sentinels differ in host and port only
    const std::string name_;
    const std::shared_ptr<const secure_layer> secure_;
    sentinel_directory directory_;
    std::vector<std::unique_ptr<sentinel>> sentinels_;
};

}  // namespace distlock::detail
