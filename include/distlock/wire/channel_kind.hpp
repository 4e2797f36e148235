// How messages reach those that listen.
#pragma once

namespace distlock {

/// PUBLISH, or SPUBLISH, which a Cluster sends to the channel's own shard alone (Redis 7).
enum class channel_kind { ordinary, sharded };

}  // namespace distlock
