// Whether replicas have a write: WAIT right behind it, and what its answer means.
//
//   class replica_wait {
//     replica_wait(int replicas, milliseconds longest);
//     command behind(const command& write) const;
//     acknowledgement read(const reply&) const;
//   };
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock {

/// What became of a write at the replicas.
struct acknowledgement {
    enum class kind {
        enough,
        too_few,  ///< when the time was up
        unknown,  ///< not answered, or not now: worth another write
        refused,  ///< asking again will not help
    };

    kind what = kind::unknown;
    errc cause = errc::no_reply;  ///< of unknown and refused; of too_few not_replicated
    std::int64_t replicas = 0;    ///< of too_few: how many have it
};

/// WAIT counts the replicas that have what was last written on its own socket. After a command that wrote
/// nothing there it is answered at once, and means nothing (measured on Redis 7.2, 8 and Valkey 8; before,
/// any command counts): so it goes right behind a command that writes if it succeeds.
/// https://redis.io/docs/latest/commands/wait/
class replica_wait {
  public:
    /// Preconditions: replicas > 0. `longest`: how long the server waits: at least 1 ms, since 0 would mean
    /// for ever, and at most an hour. Servers look at their clock ten times a second, so the answer may come
    /// 100 ms later.
    replica_wait(int replicas, std::chrono::milliseconds longest) noexcept
        : replicas_(replicas), takes_(std::clamp<std::chrono::milliseconds>(longest, least, most)) {
        count_size_ = write(count_, replicas);
        longest_size_ = write(longest_, takes_.count());
    }

    /// Returns: what is sent right behind `write`: a view into this, and of the same routing key,
    /// deadline and stop token.
    command behind(const command& write) const {
        command made({"WAIT", text(count_, count_size_), text(longest_, longest_size_)}, write.routing_key());
        made.bind_to_previous(takes_).until(write.deadline());
        if (write.stop() != nullptr) made.until(*write.stop());
        return made;
    }

    acknowledgement read(const reply& answer) const {
        using kind = acknowledgement::kind;
        switch (answer.kind()) {
            case reply_kind::integer:
                if (answer.number() >= replicas_) return {kind::enough, {}, answer.number()};
                if (answer.number() >= 0) return {kind::too_few, errc::not_replicated, answer.number()};
                return {kind::unknown, errc::protocol_error};
            case reply_kind::error: {
                const auto said = classify_error(answer.said());
                return {said.transient ? kind::unknown : kind::refused, said.cause};
            }
            case reply_kind::not_sent:
            case reply_kind::no_answer:
                return {kind::unknown, answer.cause()};
            default:
                return {kind::unknown, errc::protocol_error};
        }
    }

  private:
    using digits = std::array<char, std::numeric_limits<std::int64_t>::digits10 + 2>;

    static std::size_t write(digits& to, std::int64_t number) noexcept {
        return static_cast<std::size_t>(std::to_chars(to.data(), to.data() + to.size(), number).ptr -
                                        to.data());
    }
    static std::string_view text(const digits& of, std::size_t size) noexcept { return {of.data(), size}; }

    static constexpr std::chrono::milliseconds least{1};
    static constexpr std::chrono::milliseconds most = std::chrono::hours{1};

    int replicas_;
    std::chrono::milliseconds takes_;
    digits count_{};
    digits longest_{};
    std::size_t count_size_;
    std::size_t longest_size_;
};

/// Returns: of the commands of one pipeline, the place of the one whose answer serves for command i: a later
/// WAIT for as many replicas says all that an earlier one would, in one round trip to them; else i itself.
inline std::size_t answered_by(std::span<const command> commands, std::size_t i) noexcept {
    if (!commands[i].bound_to_previous()) return i;
    const auto words = commands[i].argv();
    for (std::size_t k = commands.size() - 1; k > i; --k) {
        const auto later = commands[k].argv();
        if (commands[k].bound_to_previous() &&
            std::equal(later.begin(), later.end(), words.begin(), words.end()))
            return k;
    }
    return i;
}

}  // namespace distlock
