// The form of a function that has an error code in place of exceptions.
#pragma once

#include <new>
#include <system_error>

namespace distlock::detail {

/// Returns: what `ask` does; where it throws, an empty value, with the reason in `ec`, which is clear else.
template <class Ask>
auto without_throwing(std::error_code& ec, Ask ask) noexcept -> decltype(ask()) {
    ec.clear();
    try {
        return ask();
    } catch (const std::system_error& e) {
        ec = e.code();
    } catch (const std::bad_alloc&) {
        ec = std::make_error_code(std::errc::not_enough_memory);
    } catch (...) {  // of what the caller gave: a clock of its own
        ec = std::make_error_code(std::errc::invalid_argument);
    }
    return {};
}

}  // namespace distlock::detail
