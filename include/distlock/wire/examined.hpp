// The answers of a server that is examined, and the verdict on each permission. Plain data.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <distlock/detail/separate.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_facts.hpp>

namespace distlock {

struct diagnose_options {
    /// What the names of the locks begin with, such as "orders:". The user's permissions are tried on
    /// keys that begin so, and have random digits behind; of a Cluster, the node that has the slot of
    /// such a key is asked.
    std::string prefix{};
    /// The lease of the locks. A lag, or an age of the server, is reported by how it compares with it.
    std::chrono::milliseconds lease = std::chrono::seconds{30};
    /// lock_options::replicas of the locks.
    int replicas = 0;
};

namespace detail {

struct examined {
    struct abilities {
        bool subscribe = false;
        bool shard = false;
        bool follow = false;
    };
    enum class role { unknown, master, replica, sentinel };
    enum class verdict { unasked, permitted, refused, unsupported, unanswered };
    struct tried {
        verdict what = verdict::unasked;
        std::string said = {};    ///< fit for a message
        bool about_name = false;  ///< not the command is refused, but its key or channel
    };

    DISTLOCK_INLINE role standing() const noexcept;
    /// Returns: whether that one of asked_for::needs is a need of this connection, with these options.
    DISTLOCK_INLINE bool applies(std::size_t need) const noexcept;

    diagnose_options options;
    abilities can;
    std::vector<reply> facts = {};  ///< to asked_for::facts
    wall_time before{};             ///< our clock around them
    wall_time after{};
    std::string user = {};            ///< empty: not known
    std::vector<tried> needs = {};    ///< of asked_for::needs
    std::optional<reply> write = {};  ///< the answer to a write that changes nothing
    std::optional<bool> subscribed = {};
    std::string why_not = {};
};

}  // namespace detail
}  // namespace distlock
