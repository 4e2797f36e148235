// Locks shared with other clients, in any language: the second template argument of distlock::mutex.
//
//   plain                  redis_cpp, redis-plus-plus, redsync (Go), redis-py's Lock, node-redlock,
//                          Medallion (.NET)
//   prefixed<"prefix">     the same with something before the name
//   redigo                 garyburd/redigo with the RedisLock written on it (Go): "lock->"
//   redis_semaphore        redis-semaphore's Mutex (Node): "mutex:"
//   pottery                pottery's Redlock on one server (Python): "redlock:"
//   python_redis_lock      python-redis-lock (Python): "lock:", and a list that wakes
//   go_zero                go-zero's RedisLock (Go)
//   getset                 SETNX and GETSET of a time stamp (Jedis and others). Weak: a client of theirs
//                          that overran its lease deletes, at its unlock, the lock that we hold by then
//   redisson               Redisson's RLock and RFencedLock (Java), 3.2 and later, 2.7 to 2.15; not its
//                          RReadWriteLock
//
// And for inspect<> and force_release<>, the dialects of `mutex`, `shared_mutex` and `counting_semaphore`:
// handoff, shared_handoff, permits.
#pragma once

#include <distlock/wire/getset.hpp>
#include <distlock/wire/go_zero.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/prefixed.hpp>
#include <distlock/wire/python_redis_lock.hpp>
#include <distlock/wire/redisson.hpp>
#include <distlock/wire/shared_handoff.hpp>
