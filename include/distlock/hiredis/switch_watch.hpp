// Sockets on which Sentinels say by themselves that another server is the master.
//
//   class switch_watch {
//     explicit switch_watch(std::string master_name);
//     void listen_on(std::vector<std::unique_ptr<channel>> to_sentinels);
//     bool heard();                                           // since the last call
//   };
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/channel.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// What it hears is a reason to ask, and nothing more. The Sentinel that leads a fail-over says it last, a second after the others.
/// A socket that ends is not replaced before the Sentinels are asked again. Thread-safe; waits for nothing.
class switch_watch {
  public:
    explicit switch_watch(std::string master_name) : begin_(std::move(master_name) + " ") {}

    void listen_on(std::vector<std::unique_ptr<channel>> to_sentinels) {
        const annotated_lock guard(lock_);
        on_ = std::move(to_sentinels);
        std::erase_if(on_, [](const auto& one) { return !one->say({"SUBSCRIBE", event}, clock::now()); });
    }

    bool heard() {
        const annotated_lock guard(lock_);
        bool changed = false;
        std::erase_if(on_, [&](const auto& one) {
            while (const auto said = one->listen(clock::time_point{}, -1)) {
                if (!said->answered()) return true;
                if (is_about_ours(*said)) changed = true;
            }
            return false;
        });
        return changed;
    }

  private:
    static constexpr std::string_view event = "+switch-master";

    // ["message", "+switch-master", "name 10.0.0.1 6379 10.0.0.2 6379"]
    bool is_about_ours(const reply& said) const noexcept {
        const auto& parts = said.elements();
        return parts.size() == 3 && parts[0].is_string("message") && parts[1].is_string(event) &&
               std::string_view(parts[2].text()).starts_with(begin_);
    }

    const std::string begin_;
    annotated_mutex lock_;
    std::vector<std::unique_ptr<channel>> on_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock::detail
