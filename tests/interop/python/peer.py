"""redis-py's Lock and python-redis-lock, steered by lines: see ../README.md."""
import math
import sys
import time

import redis
import redis_lock

kind, port = sys.argv[1], int(sys.argv[2])
server = redis.Redis(host="127.0.0.1", port=port, socket_timeout=None)


def new_lock(name, lease_ms):
    if kind == "redispy":
        return server.lock(name, timeout=lease_ms / 1000, sleep=0.02, thread_local=False)
    return redis_lock.Lock(server, name, expire=max(1, lease_ms // 1000))


def acquire(lock, lease, wait_ms):
    if kind == "redispy":
        return lock.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 or None)
    if wait_ms == 0:
        return lock.acquire(blocking=False)
    # It refuses to wait for longer than its own lease.
    end = time.monotonic() + wait_ms / 1000
    while True:
        left = math.ceil(end - time.monotonic())
        if lock.acquire(timeout=max(1, min(left, lease // 1000))):
            return True
        if time.monotonic() >= end:
            return False


NOT_MINE = (redis.exceptions.LockError, redis_lock.NotAcquired)


def release(lock):
    try:
        lock.release()
        return "released"
    except NOT_MINE:
        return "not mine"


def renew(lock, lease_ms):
    try:
        if kind == "redispy":
            lock.reacquire()
        else:
            lock.extend(expire=max(1, lease_ms // 1000))
        return "renewed"
    except NOT_MINE + (redis_lock.NotExpirable,):
        return "not mine"


def crowd(name, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lock = new_lock(name, 5000)
        if not acquire(lock, 5000, 5000):
            continue
        began = time.monotonic_ns()
        time.sleep(0.001)
        ended = time.monotonic_ns()
        if release(lock) == "released":
            print(began, ended)
    return "done"


def answer(words):
    global held, lease
    if words[0] == "acquire":
        lease = int(words[2])
        held = new_lock(words[1], lease)
        return "got 0" if acquire(held, lease, int(words[3])) else "busy"
    if words[0] == "release":
        return release(held)
    if words[0] == "renew":
        return renew(held, lease)
    if words[0] == "crowd":
        return crowd(words[1], float(words[2]))
    return "error unknown request"


held, lease = None, 0
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(answer(line.split()), flush=True)
    except Exception as problem:  # the test shows it
        print("error", type(problem).__name__, problem, flush=True)
