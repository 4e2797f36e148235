// The services of a connection, compiled once where a program asks for that.
#pragma once

#include <memory>
#include <vector>

#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/net/service_registry.hpp>

namespace distlock {

struct service_registry::registry {
    struct entry {
        const void* kind;
        std::shared_ptr<void> what;
    };
    const detail::own_process process;
    detail::annotated_mutex lock;  // in a child it may be locked by a thread that is not there
    std::vector<entry> entries DISTLOCK_GUARDED_BY(lock);
};

DISTLOCK_INLINE service_registry::service_registry() : registry_(new registry) {}

DISTLOCK_INLINE service_registry::~service_registry() {
    registry* const mine = registry_.load();
    if (!mine->process.in_forked_child()) delete mine;
}

[[gnu::cold]] DISTLOCK_INLINE service_registry::registry& service_registry::present() {
    registry* known = registry_.load();
    while (known->process.in_forked_child()) {
        auto* const made = new registry;
        if (registry_.compare_exchange_strong(known, made)) return *made;
        delete made;
    }
    return *known;
}

[[gnu::cold]] DISTLOCK_INLINE std::shared_ptr<void> service_registry::find(
    const void* kind, detail::function_ref<std::shared_ptr<void>()> make) {
    registry& here = present();
    const detail::annotated_lock guard(here.lock);
    for (const registry::entry& one : here.entries) {
        if (one.kind == kind) return one.what;
    }
    std::shared_ptr<void> made = make();
    here.entries.push_back({kind, made});
    return made;
}

}  // namespace distlock
