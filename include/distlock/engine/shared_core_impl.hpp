// The engine of shared_mutex, compiled once where a program asks for that.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/engine/shared_core.hpp>
#include <distlock/engine/shared_object.hpp>
#include <distlock/engine/shared_object_enter.hpp>
#include <distlock/engine/shared_object_exchange.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/shared_handoff.hpp>

namespace distlock::engine {

template <class Lazy>
std::unique_ptr<shared_core> make_shared_core(std::shared_ptr<background_io> io, const std::string& name,
                                              const lock_options& options,
                                              std::shared_ptr<lease_observer> observer) {
    check_options(*io, name, options);
    const auto channel = channel_of(*io, name);
    auto writers =
        std::make_shared<const any_dialect_of<exclusive_handoff>>(name, options, channel.name, channel.kind);
    auto readers =
        std::make_shared<const any_dialect_of<shared_handoff>>(name, options, channel.name, channel.kind);
    auto core = make_lock_core(io, std::move(writers), options, observer);
    return std::make_unique<shared_object<Lazy>>(std::move(io), std::move(core), std::move(readers), options,
                                                 std::move(observer));
}
#ifdef DISTLOCK_SEPARATE_COMPILATION
template std::unique_ptr<shared_core> make_shared_core<void>(std::shared_ptr<background_io>,
                                                             const std::string&, const lock_options&,
                                                             std::shared_ptr<lease_observer>);
#endif

}  // namespace distlock::engine
