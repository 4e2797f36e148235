// Bytes on their way through a fault proxy in one direction, and how they are passed on.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <string>
#include <sys/socket.h>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/system_io.hpp>

namespace distlock::testing::impl {

/// How all bytes of a direction are to be passed on just now.
struct pace {
    clock::duration delay{};
    bool held = false;
    std::size_t slice = 0;  // bytes at a time; 0: all
    clock::duration pause{};
};

class paced_bytes {
  public:
    using time_point = clock::time_point;

    bool empty() const { return later_.empty() && ready_.empty(); }
    void clear() {
        later_.clear();
        ready_.clear();
    }

    /// Effects: they are passed on so much later, behind all others.
    void add(std::string bytes, clock::duration later) {
        if (bytes.empty()) return;
        if (later == later.zero() && later_.empty()) {
            ready_ += bytes;
        } else {
            later_.emplace_back(detail::saturating_add(clock::now(), later), std::move(bytes));
        }
    }

    /// Effects: ends all delays and pauses.
    void hurry() {
        for (auto& [when, bytes] : later_) ready_ += bytes;
        later_.clear();
        next_ = {};
    }

    /// Returns: whether something can be passed on now; else `next` says when at the latest to ask again.
    bool due(time_point now, const pace& how, time_point& next) {
        if (how.held) return false;
        while (!later_.empty() && later_.front().first <= now) {
            ready_ += later_.front().second;
            later_.pop_front();
        }
        if (!ready_.empty() && (how.slice == 0 || next_ <= now)) return true;
        if (!ready_.empty()) next = std::min(next, next_);
        if (!later_.empty()) next = std::min(next, later_.front().first);
        return false;
    }

    /// Effects: sends what is due. Returns: false when the peer is gone.
    bool send_to(int fd, const pace& how) {
        time_point ignored = time_point::max();
        while (due(clock::now(), how, ignored)) {
            const std::size_t size = how.slice != 0 ? std::min(how.slice, ready_.size()) : ready_.size();
            const auto n = ::send(fd, ready_.data(), size, detail::send_flags);
            if (n < 0) return errno == EAGAIN || errno == EINTR;
            ready_.erase(0, static_cast<std::size_t>(n));
            next_ = detail::saturating_add(clock::now(), how.pause);
        }
        return true;
    }

  private:
    std::deque<std::pair<time_point, std::string>> later_;  // and when
    std::string ready_;
    time_point next_{};  // not before: of the next slice
};

}  // namespace distlock::testing::impl
