// A place in a connection for what must live as long as the connection, whatever it is.
//
//   class companion {
//     template <class T, class Make> std::shared_ptr<T> get(Make make);   // the T that lives here; made when there is none
//   };
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace distlock {

/// A member of a connection, its last one: what lives here may use the connection until it ends. Thread-safe.
class companion {
  public:
    /// Returns: the one T of this connection, made by `make()`, which returns a std::shared_ptr<T>, when there is none yet.
    template <class T, class Make>
    std::shared_ptr<T> get(Make make) {
        const std::lock_guard guard(lock_);
        for (const tenant& one : tenants_) {
            if (one.kind == &kind_of<T>) return std::static_pointer_cast<T>(one.what);
        }
        tenants_.reserve(tenants_.size() + 1);
        std::shared_ptr<T> made = make();
        tenants_.push_back({&kind_of<T>, made});
        return made;
    }

  private:
    struct tenant {
        const void* kind;
        std::shared_ptr<void> what;
    };
    template <class T>
    static constexpr char kind_of{};

    std::mutex lock_;
    std::vector<tenant> tenants_;
};

}  // namespace distlock
