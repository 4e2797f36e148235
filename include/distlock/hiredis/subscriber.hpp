// The socket of a connection on which it hears what is published, and the thread that listens there.
//
//   template <class Open> class subscriber {
//     subscriber(Open, std::chrono::milliseconds connect_timeout, std::chrono::milliseconds answer_time);
//     std::shared_ptr<subscription> subscribe(std::string_view channel);
//   };
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/quiet_thread.hpp>
#include <distlock/hiredis/channel.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// Asks for messages by SUBSCRIBE and by SSUBSCRIBE, which servers since 7.0 keep apart; one that knows no SSUBSCRIBE says so, and
/// is not believed to be broken. `Open` makes sockets: std::unique_ptr<channel>(clock::time_point by, int stop_fd). A socket that is silent for three seconds is asked whether it lives.
template <class Open>
class subscriber {
  public:
    subscriber(Open open, std::chrono::milliseconds connect_timeout, std::chrono::milliseconds answer_time)
        : open_(std::move(open)), connect_timeout_(connect_timeout), answer_time_(answer_time) {}
    subscriber(const subscriber&) = delete;
    subscriber& operator=(const subscriber&) = delete;
    ~subscriber() {
        over_ = true;
        ring(ended_);
        ring(wake_);
        if (thread_.joinable()) thread_.join();
    }

    /// Throws: std::system_error, std::bad_alloc.
    std::shared_ptr<subscription> subscribe(std::string_view name) {
        const std::lock_guard guard(lock_);
        for (const interest& one : interests_) {
            if (auto known = one.whose.lock(); known && known->channel() == name) return known;
        }
        auto made = std::make_shared<subscription>(std::string(name));
        interests_.push_back({made, made->channel()});
        try {
            if (!serving_) start();
        } catch (...) {
            interests_.pop_back();
            throw;
        }
        ring(wake_);
        return made;
    }

  private:
    struct interest {
        std::weak_ptr<subscription> whose;
        std::string channel;
        bool said = false;  // on the present socket
    };
    struct request {
        bool begins;
        std::string channel;
    };

    // Before the server is asked whether it lives; and without a subscription, before the socket is closed.
    static constexpr std::chrono::seconds silence{3};
    static constexpr std::chrono::seconds idleness{10};

    // Preconditions: lock_ is held, and the last thread has ended or is about to.
    void start() {
        if (thread_.joinable()) thread_.join();
        for (file_descriptor* one : {&wake_, &ended_}) {
            if (*one) continue;
            *one = file_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
            if (!*one) throw std::system_error(errno, std::generic_category(), "eventfd");
        }
        thread_ = quiet_thread([this] { serve(); });
        serving_ = true;
    }

    static void ring(const file_descriptor& event) noexcept {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(event.get(), &one, sizeof one);
    }
    void woken() noexcept {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    }

    void serve() noexcept {
        constexpr std::chrono::milliseconds first_pause{10};
        constexpr std::chrono::milliseconds longest_pause{500};
        constexpr std::chrono::seconds long_enough{1};  // to be no server that hangs up on everybody
        auto pause = first_pause;
        for (;;) {
            woken();
            if (over_) return;
            try {
                const auto socket = open_(clock::now() + connect_timeout_, ended_.get());
                if (socket != nullptr) {
                    const auto began = clock::now();
                    if (talk(*socket)) return;
                    if (clock::now() - began >= long_enough) pause = first_pause;
                }
            } catch (...) {
                // Memory, or descriptors: perhaps there is some by and by.
            }
            if (over_) return;
            pollfd woken_by{wake_.get(), POLLIN, 0};
            ::poll(&woken_by, 1, static_cast<int>(pause.count()));
            pause = std::min(pause * 2, longest_pause);
            if (done()) return;
        }
    }

    // Effects: hears what the server says, until the socket breaks or nobody wants to know any more.
    // Returns: whether the thread is done.
    bool talk(channel& socket) {
        {
            const std::lock_guard guard(lock_);
            for (interest& one : interests_) one.said = false;
        }
        auto heard = clock::now();
        auto wanted = heard;
        bool asked = false;
        while (!over_) {
            for (const request& one : requests()) {
                const auto by = clock::now() + answer_time_;
                const char* const global = one.begins ? "SUBSCRIBE" : "UNSUBSCRIBE";
                const char* const shard = one.begins ? "SSUBSCRIBE" : "SUNSUBSCRIBE";
                if (!socket.say({global, one.channel}, by) || !socket.say({shard, one.channel}, by))
                    return false;
            }
            auto said = socket.listen(heard + (asked ? silence + answer_time_ : silence), wake_.get());
            woken();
            const auto now = clock::now();
            if (said) {
                if (!said->answered()) return false;
                heard = now;
                asked = false;
                tell(*said);
            } else if (now >= heard + silence) {
                if (asked && now >= heard + silence + answer_time_) return false;
                if (!asked && !socket.say({"PING", ""}, now + answer_time_)) return false;
                asked = true;
            }
            if (any()) wanted = now;
            if (now - wanted > idleness && done()) return true;
        }
        return true;
    }

    // Returns: what the server has not been told yet.
    std::vector<request> requests() {
        const std::lock_guard guard(lock_);
        std::vector<request> all;
        for (auto one = interests_.begin(); one != interests_.end();) {
            const bool gone = one->whose.expired();
            if (gone || !one->said) all.push_back({!gone, one->channel});
            one->said = true;
            one = gone ? interests_.erase(one) : one + 1;
        }
        // A channel that was given up and is wanted again.
        std::stable_partition(all.begin(), all.end(), [](const request& one) { return !one.begins; });
        return all;
    }

    // ["message", channel, text], ["subscribe", channel, count], and the like of shards; and what is of no interest.
    void tell(const reply& said) {
        const auto& parts = said.elements();
        if (parts.size() != 3) return;
        const std::string& what = parts[0].text();
        if (what != "message" && what != "smessage" && what != "subscribe" && what != "ssubscribe") return;
        const std::lock_guard guard(lock_);
        for (const interest& one : interests_) {
            if (one.channel != parts[1].text()) continue;
            if (const auto whose = one.whose.lock()) whose->ring();
        }
    }

    bool any() {
        const std::lock_guard guard(lock_);
        return std::any_of(interests_.begin(), interests_.end(),
                           [](const interest& one) { return !one.whose.expired(); });
    }

    // Returns: whether the thread is not needed; it ends then.
    bool done() {
        const std::lock_guard guard(lock_);
        for (const interest& one : interests_) {
            if (!one.whose.expired()) return false;
        }
        serving_ = false;
        return true;
    }

    Open open_;
    const std::chrono::milliseconds connect_timeout_;
    const std::chrono::milliseconds answer_time_;
    std::mutex lock_;
    std::vector<interest> interests_;
    file_descriptor wake_;   // there is something to say to the server
    file_descriptor ended_;  // for good
    std::thread thread_;
    bool serving_ = false;
    std::atomic<bool> over_{false};
};

}  // namespace distlock::detail
