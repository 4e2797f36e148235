// A place in a connection for what must live as long as the connection, whatever it is.
//
//   class service_registry {
//     template <class T, class Key = T, class Make> std::shared_ptr<T> get(Make make);   // the T that lives here; made when there is none
//   };
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <distlock/detail/system.hpp>

namespace distlock {

/// A member of a connection, its last one: what lives here may use the connection until it ends. Thread-safe.
class service_registry {
  public:
    service_registry() : registry_(new registry) {}
    service_registry(const service_registry&) = delete;
    service_registry& operator=(const service_registry&) = delete;
    ~service_registry() {
        registry* const mine = registry_.load();
        if (mine->process == detail::current_process()) delete mine;
    }

    /// Returns: the one T of this connection under that key, made by `make()`, which returns a std::shared_ptr<T>, when there is none yet.
    /// In a child after fork() there is none: what its parent had is the parent's.
    template <class T, class Key = T, class Make>
    [[gnu::cold]] std::shared_ptr<T> get(Make make) {
        registry& here = present();
        const std::lock_guard guard(here.lock);
        for (const entry& one : here.entries) {
            if (one.kind == &kind_of<Key>) return std::static_pointer_cast<T>(one.what);
        }
        here.entries.reserve(here.entries.size() + 1);
        std::shared_ptr<T> made = make();
        here.entries.push_back({&kind_of<Key>, made});
        return made;
    }

  private:
    struct entry {
        const void* kind;
        std::shared_ptr<void> what;
    };
    struct registry {
        const detail::process_id process = detail::current_process();
        std::mutex lock;  // in a child it may be locked by a thread that is not there
        std::vector<entry> entries;
    };
    template <class T>
    static constexpr char kind_of{};

    [[gnu::cold]] registry& present() {
        registry* known = registry_.load();
        while (known->process != detail::current_process()) {
            auto* const made = new registry;
            if (registry_.compare_exchange_strong(known, made)) return *made;
            delete made;
        }
        return *known;
    }

    std::atomic<registry*> registry_;
};

}  // namespace distlock
