// A place in a connection for what must live as long as the connection, whatever it is.
//
//   class service_registry {
//     template <class T, class Key = T, class Make> std::shared_ptr<T> get(Make make);
//         // the T that lives here; made when there is none
//   };
#pragma once

#include <atomic>
#include <memory>

#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/separate.hpp>

namespace distlock {

/// A member of a connection, its last one: what lives here may use the connection until it ends. Thread-safe.
class service_registry {
  public:
    service_registry();
    service_registry(const service_registry&) = delete;
    service_registry& operator=(const service_registry&) = delete;
    ~service_registry();

    /// Returns: the one T of this connection under that key, made by `make()`, which returns a
    /// std::shared_ptr<T>, when there is none yet. In a child after fork() there is none: what its parent
    /// had is the parent's.
    template <class T, class Key = T, class Make>
    std::shared_ptr<T> get(Make make) {
        return std::static_pointer_cast<T>(
            find(&kind_of<Key>, [&]() -> std::shared_ptr<void> { return make(); }));
    }

  private:
    struct registry;
    template <class T>
    static constexpr char kind_of{};

    registry& present();
    std::shared_ptr<void> find(const void* kind, detail::function_ref<std::shared_ptr<void>()> make);

    std::atomic<registry*> registry_;
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/net/service_registry_impl.hpp>
#endif
