// Objects in memory that processes share.
#pragma once

#include <cerrno>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <system_error>

/// An object in memory that is shared with every child made after it.
template <class T>
class interprocess_object {
  public:
    interprocess_object() {
        void* const memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category());
        object_ = new (memory) T;
    }
    interprocess_object(const interprocess_object&) = delete;
    interprocess_object& operator=(const interprocess_object&) = delete;
    ~interprocess_object() {
        object_->~T();
        ::munmap(object_, sizeof(T));
    }
    T* operator->() noexcept { return object_; }
    const T* operator->() const noexcept { return object_; }
    T& operator*() noexcept { return *object_; }

  private:
    T* object_;
};

class interprocess_mutex {
  public:
    interprocess_mutex() {
        pthread_mutexattr_t attributes;
        ::pthread_mutexattr_init(&attributes);
        ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        ::pthread_mutex_init(&mutex_, &attributes);
        ::pthread_mutexattr_destroy(&attributes);
    }
    interprocess_mutex(const interprocess_mutex&) = delete;
    interprocess_mutex& operator=(const interprocess_mutex&) = delete;
    ~interprocess_mutex() { ::pthread_mutex_destroy(&mutex_); }
    void lock() { ::pthread_mutex_lock(&mutex_); }
    /// Effects: tries for some 20 ms. Returns: whether it is locked now; a process that was stopped
    /// or killed may keep it.
    bool try_lock_a_while() {
        for (int i = 0; i < 20; ++i) {
            if (::pthread_mutex_trylock(&mutex_) == 0) return true;
            ::poll(nullptr, 0, 1);
        }
        return false;
    }
    void unlock() { ::pthread_mutex_unlock(&mutex_); }

  private:
    pthread_mutex_t mutex_;
};
