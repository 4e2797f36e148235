// The background I/O of a connection of any type, whose time is that of any clock.
#pragma once

#include <memory>

#include <distlock/base/time_source.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/net/any_connection.hpp>

template <class Conn, class Clock>
struct io_over : distlock::engine::background_io {
    explicit io_over(Conn& connection)
        : background_io(std::make_unique<distlock::any_connection_of<Conn>>(connection),
                        distlock::time_source::of<Clock>()) {}
};
