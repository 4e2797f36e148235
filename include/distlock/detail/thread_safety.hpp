// Lock contracts that clang checks (-Wthread-safety): which mutex guards a member, and which a
// function wants held.
//
//   class annotated_mutex;                       // std::mutex
//   class annotated_lock {                       // std::unique_lock<std::mutex>
//     explicit annotated_lock(annotated_mutex&);
//     void unlock();  void lock();
//     std::unique_lock<std::mutex>& native();    // for a condition variable's wait
//   };
#pragma once

#include <mutex>

#if defined(__clang__)
#define DISTLOCK_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define DISTLOCK_THREAD_SAFETY(attribute)
#endif
// NOLINTBEGIN(cppcoreguidelines-macro-usage): attributes can have no other names
#define DISTLOCK_GUARDED_BY(...) DISTLOCK_THREAD_SAFETY(guarded_by(__VA_ARGS__))
#define DISTLOCK_REQUIRES(...) DISTLOCK_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define DISTLOCK_EXCLUDES(...) DISTLOCK_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
#define DISTLOCK_ACQUIRE(...) DISTLOCK_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define DISTLOCK_RELEASE(...) DISTLOCK_THREAD_SAFETY(release_capability(__VA_ARGS__))
// A function whose locking the analysis cannot follow; a comment beside it says why it is right.
#define DISTLOCK_UNCHECKED DISTLOCK_THREAD_SAFETY(no_thread_safety_analysis)
// NOLINTEND(cppcoreguidelines-macro-usage)

namespace distlock::detail {

class DISTLOCK_THREAD_SAFETY(capability("mutex")) annotated_mutex {
  public:
    annotated_mutex() = default;
    annotated_mutex(const annotated_mutex&) = delete;
    annotated_mutex& operator=(const annotated_mutex&) = delete;

    void lock() DISTLOCK_ACQUIRE() { mutex_.lock(); }
    void unlock() DISTLOCK_RELEASE() { mutex_.unlock(); }

  private:
    friend class annotated_lock;
    std::mutex mutex_;
};

class DISTLOCK_THREAD_SAFETY(scoped_lockable) annotated_lock {
  public:
    // There are so many that they are not inlined.
    [[gnu::noinline]] explicit annotated_lock(annotated_mutex& mutex) DISTLOCK_ACQUIRE(mutex)
        : lock_(mutex.mutex_) {}
    annotated_lock(const annotated_lock&) = delete;
    annotated_lock& operator=(const annotated_lock&) = delete;
    [[gnu::noinline]] ~annotated_lock() DISTLOCK_RELEASE() {}

    void lock() DISTLOCK_ACQUIRE() { lock_.lock(); }
    void unlock() DISTLOCK_RELEASE() { lock_.unlock(); }

    std::unique_lock<std::mutex>& native() noexcept { return lock_; }

  private:
    std::unique_lock<std::mutex> lock_;
};

}  // namespace distlock::detail
