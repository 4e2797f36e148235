// A place in a connection for what must live as long as the connection, whatever it is.
//
//   class companion {
//     template <class T, class Make> std::shared_ptr<T> get(Make make);   // the T that lives here; made when there is none
//   };
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <vector>

#include <distlock/detail/process.hpp>

namespace distlock {

/// A member of a connection, its last one: what lives here may use the connection until it ends. Thread-safe.
class companion {
  public:
    companion() : rooms_(new rooms) {}
    companion(const companion&) = delete;
    companion& operator=(const companion&) = delete;
    ~companion() {
        rooms* const mine = rooms_.load();
        if (mine->process == detail::current_process()) delete mine;
    }

    /// Returns: the one T of this connection, made by `make()`, which returns a std::shared_ptr<T>, when there is none yet.
    /// In a child after fork() there is none: what its parent had is the parent's.
    template <class T, class Make>
    std::shared_ptr<T> get(Make make) {
        rooms& here = present();
        const std::lock_guard guard(here.lock);
        for (const tenant& one : here.tenants) {
            if (one.kind == &kind_of<T>) return std::static_pointer_cast<T>(one.what);
        }
        here.tenants.reserve(here.tenants.size() + 1);
        std::shared_ptr<T> made = make();
        here.tenants.push_back({&kind_of<T>, made});
        return made;
    }

  private:
    struct tenant {
        const void* kind;
        std::shared_ptr<void> what;
    };
    struct rooms {
        const pid_t process = detail::current_process();
        std::mutex lock;  // in a child it may be locked by a thread that is not there
        std::vector<tenant> tenants;
    };
    template <class T>
    static constexpr char kind_of{};

    rooms& present() {
        rooms* known = rooms_.load();
        while (known->process != detail::current_process()) {
            auto made = std::make_unique<rooms>();
            if (rooms_.compare_exchange_strong(known, made.get())) known = made.release();
        }
        return *known;
    }

    std::atomic<rooms*> rooms_;
};

}  // namespace distlock
