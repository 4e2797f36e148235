// Sockets on which Sentinels say by themselves that another server is the master.
//
//   struct sentinel_stream { node_address at; std::unique_ptr<stream> on; };
//   class switch_watch {
//     explicit switch_watch(std::string master_name);
//     void listen_on(std::vector<sentinel_stream> more);
//     enum class news { none, some_missed, all_missed, changed };
//     news hear();                                            // since the last call
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/net/connect_schedule.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// A socket to a Sentinel, and where that one is.
struct sentinel_stream {
    node_address at;
    std::unique_ptr<stream> on;
};

/// A message is a reason to ask, and nothing more. The Sentinel that leads a fail-over says it last, a second
/// after the others. Thread-safe; waits for nothing.
template <class Lazy>
class switch_watch {
  public:
    explicit switch_watch(std::string master_name) : begin_(std::move(master_name) + " ") {}

    /// Effects: hears those Sentinels, too. One that is heard already goes on with the socket it has: what it
    /// said between an answer and a new SUBSCRIBE would be lost.
    void listen_on(std::vector<sentinel_stream> more) {
        const annotated_lock guard(lock_);
        for (sentinel_stream& one : more) {
            const bool known = std::any_of(streams_.begin(), streams_.end(),
                                           [&](const sentinel_stream& other) { return other.at == one.at; });
            if (known || !one.on->send_only({"SUBSCRIBE", event}, clock::now())) continue;
            streams_.push_back(std::move(one));
        }
        most_ = std::max(most_, streams_.size());
    }

    enum class news {
        none,
        some_missed,  ///< fewer are heard than were: those that are left may be cut off from the others
        all_missed,   ///< none is heard
        changed,      ///< a Sentinel said it, or may have when there was no memory to hear it
    };
    /// Returns: what came since the last call; that Sentinels are missed only now and then.
    news hear() {
        const annotated_lock guard(lock_);
        bool changed = false;
        const auto over = [&](const sentinel_stream& one) noexcept {
            try {
                for (int heard = 0; heard < most_at_once; ++heard) {
                    const auto said = one.on->listen(clock::time_point{}, -1);
                    if (!said) return false;
                    if (!said->answered()) return true;
                    if (is_about_ours(*said)) changed = true;
                }
                return changed = true;  // one that never stops is not heard any more
            } catch (const std::exception&) {
                return changed = true;
            }
        };
        std::erase_if(streams_, over);
        if (changed) return news::changed;
        if (streams_.size() >= most_) return news::none;
        const auto now = clock::now();
        if (!missed_.due(now)) return news::none;
        missed_.begin(now);
        return streams_.empty() ? news::all_missed : news::some_missed;
    }

  private:
    static constexpr std::string_view event = "+switch-master";
    static constexpr int most_at_once = 256;

    // ["message", "+switch-master", "name 10.0.0.1 6379 10.0.0.2 6379"]
    bool is_about_ours(const reply& said) const noexcept {
        const auto& parts = said.elements();
        return parts.size() == 3 && parts[0].is_string("message") && parts[1].is_string(event) &&
               std::string_view(parts[2].text()).starts_with(begin_);
    }

    const std::string begin_;
    annotated_mutex lock_;
    std::vector<sentinel_stream> streams_ DISTLOCK_GUARDED_BY(lock_);
    std::size_t most_ DISTLOCK_GUARDED_BY(lock_) = 0;  // that were heard at a time
    // One that restarts is back in a moment, one that was taken away never.
    connect_schedule missed_ DISTLOCK_GUARDED_BY(lock_){std::chrono::seconds{1}, std::chrono::seconds{30},
                                                        std::chrono::minutes{1}};
};

}  // namespace distlock::detail
