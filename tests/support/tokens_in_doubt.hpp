// As many tokens in doubt as a connection looks for, as after a thousand requests that were stopped.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>

#include <distlock/base/token.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/background_release.hpp>
#include <distlock/engine/release.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/plain.hpp>

/// Effects: so many are repeated for an hour, from in an hour on.
inline void fill_with_doubt(distlock::engine::background_io& io,
                            std::size_t how_many = distlock::engine::background_io::most_in_doubt) {
    using namespace distlock::engine;
    const auto dialect =
        std::make_shared<const distlock::any_dialect_of<distlock::plain>>(distlock::plain("doubtful", {}));
    const auto begin = io.time().now() + std::chrono::hours{1};
    const release how(certainty::in_doubt, begin + std::chrono::hours{1});
    for (std::size_t i = 0; i < how_many; ++i) {
        background_release::repeat(std::make_shared<background_release>(io, dialect),
                                   distlock::token::generate(), how, begin,
                                   std::max(how_many, background_io::most_in_doubt));
    }
}
