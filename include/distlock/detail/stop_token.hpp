// std::stop_token, or one sentence that says how to get it.
#pragma once

#include <stop_token>
#include <version>

#include <distlock/detail/language.hpp>

#if __cplusplus >= 202002L && !defined(__cpp_lib_jthread)
#error "distlock needs std::stop_token: with libc++ before 20, compile and link with -fexperimental-library"
#endif

namespace distlock::detail {

/// Returns: a token whose stop was requested: of a lock that is not held.
inline std::stop_token stopped_token() {
    std::stop_source source;
    source.request_stop();
    return source.get_token();
}

/// `stop`: null where nobody can request it.
inline bool stop_requested(const std::stop_token* stop) noexcept {
    return stop != nullptr && stop->stop_requested();
}

}  // namespace distlock::detail
