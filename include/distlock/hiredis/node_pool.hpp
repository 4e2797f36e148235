// The sockets to one server: those for commands and pipelines, posted replies, and the one for subscriptions.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/channel.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/resolve.hpp>
#include <distlock/hiredis/secure.hpp>
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
    /// `superseded`: when that is requested every socket ends, whoever uses it. `needed`: what the server has to be.
    /// Effects and Throws: as hiredis_connection.
    [[gnu::cold]] node_pool(uri where, std::shared_ptr<const secure_layer> secure,
                            std::stop_token superseded = {}, handshake::role needed = handshake::role::any)
        : where_(std::move(where)),
          shown_(redacted(where_)),
          secure_(std::move(secure)),
          superseded_(std::move(superseded)),
          needed_(needed) {
        check_uri(where_);
        const bool encrypted = where_.scheme == uri_scheme::tls;
        if (encrypted && !secure_) throw_error(errc::tls_unavailable, {shown_});
        if (!encrypted && secure_) throw_error(errc::invalid_uri, {shown_, " with TLS; write rediss://"});
        idle_.reserve(where_.max_idle);
    }

    node_pool(const node_pool&) = delete;
    node_pool& operator=(const node_pool&) = delete;

    /// `asking`: behind ASKING, on the same socket and in the same round trip.
    reply execute(const command& cmd, bool asking = false) {
        return on_a_channel(purpose::command, cmd.deadline(), cmd.stop(), [&](channel& c, bool lent) {
            const auto by = answer_by(cmd.deadline());
            if (asking && !c.post(command({argument("ASKING")}), by, std::make_shared<receipt>()))
                return reply::not_sent(errc::unreachable, "the connection broke");
            return run(c, cmd, by, lent);
        });
    }

    /// As execute(); the answer may be as long as the map of a Cluster.
    reply ask_for_map(const command& cmd) {
        return on_a_channel(purpose::command, cmd.deadline(), cmd.stop(), [&](channel& c, bool lent) {
            c.expect_a_map();
            return run(c, cmd, answer_by(cmd.deadline()), lent);
        });
    }

    [[gnu::cold]] void pipeline(std::span<const command> commands, std::span<reply> replies) {
        if (commands.empty()) return;
        const auto last =
            std::max_element(commands.begin(), commands.end(), [](const auto& a, const auto& b) {
                return a.deadline() < b.deadline();
            })->deadline();
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
        on_a_channel(purpose::post, cmd.deadline(), cmd.stop(), [&](channel& c, bool) {
            posted = c.post(cmd, answer_by(cmd.deadline()), std::move(wanted));
            return reply::nil();
        });
        return posted;
    }

    [[gnu::cold]] void collect() {
        if (current_process() != process_) return;
        const annotated_lock guard(idle_lock_);
        read_posted();
    }

    [[gnu::cold]] std::shared_ptr<subscription> subscribe(std::string_view name) {
        if (current_process() != process_) throw_error(errc::wrong_process, {shown_});
        const annotated_lock guard(idle_lock_);
        auto& one = subscriber_.get();
        if (!one) {
            one = std::make_unique<subscriber>(home_, where_.connect_timeout, where_.command_timeout, home_);
        }
        return one->subscribe(name);
    }

    /// Effects: closes the idle sockets that the server has ended. Returns: whether there was one.
    [[gnu::cold]] bool lost_idle() {
        const annotated_lock guard(idle_lock_);
        const auto over = [](const pooled& one) { return one.on->look() == channel::state::over; };
        bool lost = std::erase_if(idle_, over) > 0;
        if (reserve_ == reserve::here && over(kept_reserve_)) {
            forget_reserve();
            lost = true;
        }
        return lost;
    }

    /// Returns: a new socket that nobody else uses; none where it cannot be had before `deadline`, or `stop_fd` can be read.
    std::unique_ptr<channel> connect(clock::time_point deadline, int stop_fd) {
        return open_channel(deadline, stop_fd).made;
    }

    std::string_view identity() const noexcept { return shown_; }

    std::chrono::milliseconds command_timeout() const noexcept { return where_.command_timeout; }

  private:
    // What the subscriber needs of it.
    struct home final : upkeep, channel_source {
        explicit home(node_pool& of) noexcept : pool(of) {}
        void keep_up() override { pool.collect(); }
        std::unique_ptr<channel> connect(clock::time_point deadline, int stop_fd) override {
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
    static reply run(channel& c, const command& cmd, clock::time_point by, bool lent) {
        return lent ? c.run_or_leave(cmd, by) : c.run(cmd, by);
    }
    enum class purpose {
        command,
        unit,  // of several commands, for a caller who waits
        post,
        pipeline,
    };

    // Lifts the reservation of a socket that ends while it is lent.
    struct lift {
        void operator()(node_pool* of) const noexcept {
            const annotated_lock guard(of->idle_lock_);
            of->reserve_is(reserve::missing);
        }
    };
    // A socket, and what was the number of the last event (see events_) when something happened to it.
    struct pooled {
        std::unique_ptr<node_pool, lift> reserved;  // lent: it is the one for pipelines
        std::unique_ptr<channel> on;                // ends first
        std::uint64_t opened = 0;                   // before it was
        std::uint64_t taken = 0;
        std::uint64_t heard = 0;  // the server answered on it
        clock::time_point idle_since{};
    };
    enum class reserve { missing, here, lent_to_command, lent_to_pipeline };

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
            if (const auto by = answered_by(commands, i); by != i) replies[i] = reply(replies[by]);
        }
    }

    [[gnu::noinline]] void run_all(purpose why, clock::time_point deadline, const std::stop_token* stop,
                                   std::span<const command> commands, std::span<reply> replies) {
        channel::extent done;
        const reply failure = on_a_channel(why, deadline, stop, [&](channel& c, bool) {
            done = {};
            return c.run_all(commands, replies, answer_by(deadline, commands), stop, done);
        });
        if (failure.answered()) return;
        const errc unsent = failure.is(reply_kind::not_sent) ? failure.cause() : errc::unreachable;
        for (std::size_t i = done.answered; i < replies.size(); ++i) {
            replies[i] = i < done.begun ? reply::no_answer(failure.cause(), failure.text())
                                        : reply::not_sent(unsent, failure.text());
        }
    }

    using use_of_channel = function_ref<reply(channel&, bool lent)>;
    reply on_a_channel(purpose why, clock::time_point deadline, const std::stop_token* stop,
                       use_of_channel use) {
        if (current_process() != process_) return reply::not_sent(errc::wrong_process, shown_);
        for (bool spare = why == purpose::pipeline;;) {
            pooled mine = take(why, deadline, spare);
            const bool kept = mine.on != nullptr;
            if (!kept) {
                if (auto failure = open(mine, spare ? some_of(deadline) : deadline, stop)) {
                    if (stop != nullptr && stop->stop_requested())
                        return named(reply::not_sent(errc::cancelled, "stopped"));
                    if (std::exchange(spare, false)) continue;
                    return may_use_the_reserve(why) ? on_the_reserve(use, *std::move(failure))
                                                    : *std::move(failure);
                }
            }
            reply answer = use(*mine.on, false);
            // A socket that was kept may have ended unnoticed, or been turned away since it was posted on; nothing was sent on it
            // then, or executed.
            const bool stopped = !answer.answered() && answer.cause() == errc::cancelled;
            const bool away = mine.on->turned_away() && mine.heard == mine.opened;
            const bool again =
                kept && !stopped && (away || (mine.on->broken() && answer.is(reply_kind::not_sent)));
            const bool turned_away = !kept && !stopped && (away || answer.is(reply_kind::not_sent));
            give_back(std::move(mine));
            if (again || (turned_away && std::exchange(spare, false))) continue;
            if (!answer.answered()) answer = named(answer);
            if (turned_away && may_use_the_reserve(why)) return on_the_reserve(use, std::move(answer));
            return answer;
        }
    }

    static bool may_use_the_reserve(purpose why) noexcept {
        return why == purpose::command || why == purpose::post;
    }

    // Effects: executes what no other socket could be had for on the one for pipelines, if nobody uses that, and in such a way
    // that giving up does not end it: the locks that are held may be lost with it.
    // Returns: the answer; without one, `otherwise`.
    [[gnu::cold]] reply on_the_reserve(use_of_channel use, reply otherwise) {
        pooled mine = borrow_reserve();
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
        std::optional<wake_on_stop> wake;
        if (stop != nullptr || superseded_.stop_possible()) {
            try {
                wake.emplace(stop != nullptr ? *stop : std::stop_token(), superseded_);
            } catch (const std::system_error& e) {
                return named(reply::not_sent(errc::unreachable, e.what()));
            }
        }
        auto opened = open_channel(deadline, wake ? wake->fd() : -1);
        if (superseded_.stop_requested())
            return named(reply::not_sent(errc::unreachable, "another server is the master"));
        if (!opened.made) return named(opened.failure);
        fresh.on = std::move(opened.made);
        return std::nullopt;
    }

    [[gnu::cold]] handshake::opened open_channel(clock::time_point deadline, int stop_fd) {
        auto opened = handshake::open(where_, names_, secure_.get(), connect_by(deadline), stop_fd, needed_);
        if (opened.made) opened.made->end_with(superseded_);
        return opened;
    }

    // Returns: a socket that is kept and can be used; none, when a new one is to be opened. `spare`: for a pipeline a new one is
    // better than the last idle one, and than one on which the server may be silent; then, whether there is such a one.
    [[gnu::noinline]] pooled take(purpose why, clock::time_point deadline, bool& spare) {
        std::vector<pooled> owing;
        pooled found = next_kept(why, deadline, spare);
        while (found.on) {
            const auto state = found.on->look();
            if (state == channel::state::ready) break;
            if (state == channel::state::owing) {
                owing.push_back(std::move(found));
            } else if (found.on->demoted()) {
                give_back(std::move(found));
            }
            found = next_kept(why, deadline, spare);
        }
        for (auto& later : owing) give_back(std::move(later));
        return found;
    }

    pooled next_kept(purpose why, clock::time_point deadline, bool& spare) {
        annotated_lock guard(idle_lock_);
        pooled found;
        if (why == purpose::pipeline) pipelined_ = true;
        // The server executes posted commands before the first pipeline.
        const bool last_idle =
            reserve_ == reserve::missing && idle_.size() == 1 && !idle_.back().on->waits_for_answers();
        spare = spare && (last_idle || reserve_may_be_silent());
        if (spare) {
            // Nothing is taken.
        } else if (why == purpose::pipeline && reserve_ == reserve::here) {
            found = lend_reserve(reserve::lent_to_pipeline);
        } else if (!idle_.empty()) {
            found = std::move(idle_.back());
            idle_.pop_back();
        } else if (why == purpose::post && reserve_ == reserve::here && pipelines_waiting_ == 0) {
            // Nobody waits for an answer on it, so it is back at once. A new one would cost round trips.
            found = lend_reserve(reserve::lent_to_command);
        } else if (why == purpose::pipeline && reserve_ == reserve::lent_to_command) {
            // It is back soon, and there may be no other.
            const auto until = connect_by(deadline);
            // It is called with the mutex.
            const auto back = [&]() DISTLOCK_UNCHECKED { return reserve_ != reserve::lent_to_command; };
            ++pipelines_waiting_;
            wait_until(reserve_back_.get(), guard.native(), until, back);
            --pipelines_waiting_;
            if (reserve_ == reserve::here) found = lend_reserve(reserve::lent_to_pipeline);
        }
        found.taken = ++events_;
        if (!found.on) found.opened = found.heard = found.taken;
        return found;
    }

    // Returns: the socket for pipelines; none, when it is not there or cannot be used.
    [[gnu::cold]] pooled borrow_reserve() {
        pooled found;
        {
            const annotated_lock guard(idle_lock_);
            if (reserve_ != reserve::here || pipelines_waiting_ > 0) return found;
            found = lend_reserve(reserve::lent_to_command);
            found.taken = ++events_;
        }
        const auto state = found.on->look();
        if (state == channel::state::ready) return found;
        if (state == channel::state::owing || found.on->demoted()) give_back(std::move(found));
        return {};
    }

    [[gnu::noinline]] void give_back(pooled mine) {
        const annotated_lock guard(idle_lock_);
        channel& c = *mine.on;
        // Old news are none: what is connected since may lead to the new master.
        if (c.demoted() && mine.opened >= role_changed_) forget_all_idle();
        if (c.fell_silent()) forget_silent_since(mine.taken);
        if (c.broken()) return;
        if (c.heard()) mine.heard = ++events_;
        if (mine.opened < role_changed_) return;
        // The server may have turned a socket away that was only posted on.
        const bool better =
            mine.heard > mine.opened &&
            (reserve_ == reserve::missing ? pipelined_
                                          : reserve_may_be_silent() && mine.heard > silent_since_);
        if (mine.reserved || better) {
            static_cast<void>(mine.reserved.release());
            keep_reserve(std::move(mine));
        } else if (idle_.size() < where_.max_idle) {
            mine.idle_since = clock::now();
            idle_.push_back(std::move(mine));
            if (surplus(idle_.back().idle_since)) try_read_posted();
        }
    }

    void reserve_is(reserve now) noexcept DISTLOCK_REQUIRES(idle_lock_) {
        reserve_ = now;
        if (pipelines_waiting_ > 0) reserve_back_.get().notify_all();
    }
    [[gnu::noinline]] pooled lend_reserve(reserve to) noexcept DISTLOCK_REQUIRES(idle_lock_) {
        reserve_ = to;
        pooled lent = std::move(kept_reserve_);
        lent.reserved.reset(this);
        return lent;
    }
    [[gnu::noinline]] void keep_reserve(pooled mine) noexcept DISTLOCK_REQUIRES(idle_lock_) {
        kept_reserve_ = std::move(mine);
        reserve_is(reserve::here);
    }
    [[gnu::cold]] void forget_reserve() noexcept DISTLOCK_REQUIRES(idle_lock_) {
        kept_reserve_ = {};
        reserve_is(reserve::missing);
    }

    // Effects: the server is a replica, so all others that were opened by now may lead to one.
    [[gnu::cold]] void forget_all_idle() noexcept DISTLOCK_REQUIRES(idle_lock_) {
        role_changed_ = ++events_;
        idle_.clear();
        if (reserve_ == reserve::here) forget_reserve();
        if (subscriber_.get()) subscriber_.get()->reconnect();
    }

    // Returns: whether there is a socket that nobody needed for a while, beside two: the one that was not used for longest.
    bool surplus(clock::time_point now) const noexcept DISTLOCK_REQUIRES(idle_lock_) {
        return idle_.size() > 2 && now - idle_.front().idle_since >= std::chrono::seconds{1};
    }

    // Effects: reads what was answered to posted commands; closes surplus sockets, but for those that an answer is to come on.
    [[gnu::cold]] void read_posted() DISTLOCK_REQUIRES(idle_lock_) {
        bool demoted = false;
        const auto read = [&](pooled& one) DISTLOCK_REQUIRES(idle_lock_) {
            one.on->collect();
            if (one.on->demoted() && one.opened >= role_changed_) demoted = true;
        };
        for (pooled& one : idle_) read(one);
        if (reserve_ == reserve::here) read(kept_reserve_);
        std::erase_if(idle_, [](const pooled& one) { return one.on->broken(); });
        if (reserve_ == reserve::here && kept_reserve_.on->broken()) forget_reserve();
        if (demoted) forget_all_idle();
        const auto now = clock::now();
        while (surplus(now) && !idle_.front().on->waits_for_answers()) idle_.erase(idle_.begin());
    }
    void try_read_posted() noexcept DISTLOCK_REQUIRES(idle_lock_) {
        try {
            read_posted();
        } catch (...) {
            // Without memory they are read later.
        }
    }

    // Effects: on the others the server may be as silent as on one that was taken then. The one for pipelines is kept all the
    // same: there may be no other to be had.
    [[gnu::cold]] void forget_silent_since(std::uint64_t taken) noexcept DISTLOCK_REQUIRES(idle_lock_) {
        std::erase_if(idle_, [&](const pooled& one) { return one.heard < taken; });
        silent_since_ = std::max(silent_since_, taken);
    }
    bool reserve_may_be_silent() const noexcept DISTLOCK_REQUIRES(idle_lock_) {
        return reserve_ == reserve::here && kept_reserve_.heard < silent_since_;
    }

    const uri where_;
    const std::string shown_;  // the URI, fit for messages
    const std::shared_ptr<const secure_layer> secure_;
    const std::stop_token superseded_;
    const handshake::role needed_;
    const process_id process_ = current_process();
    resolver names_{where_.host, where_.port};
    annotated_mutex idle_lock_;
    std::vector<pooled> idle_ DISTLOCK_GUARDED_BY(idle_lock_);
    pooled kept_reserve_ DISTLOCK_GUARDED_BY(idle_lock_);  // for pipelines, as long as it is not lent
    reserve reserve_ DISTLOCK_GUARDED_BY(idle_lock_) = reserve::missing;
    bool pipelined_ DISTLOCK_GUARDED_BY(idle_lock_) = false;  // there is to be one
    int pipelines_waiting_ DISTLOCK_GUARDED_BY(idle_lock_) = 0;
    leaked_in_child<std::condition_variable> reserve_back_;
    // Counts when sockets are taken, are heard from, and are no longer trusted.
    std::uint64_t events_ DISTLOCK_GUARDED_BY(idle_lock_) = 0;
    // The last event after which a socket was silent.
    std::uint64_t silent_since_ DISTLOCK_GUARDED_BY(idle_lock_) = 0;
    // Those that were opened before this event are not kept.
    std::uint64_t role_changed_ DISTLOCK_GUARDED_BY(idle_lock_) = 0;
    home home_{*this};
    // None before the first subscribe().
    leaked_in_child<std::unique_ptr<subscriber>> subscriber_ DISTLOCK_GUARDED_BY(idle_lock_);
};

}  // namespace distlock::detail
