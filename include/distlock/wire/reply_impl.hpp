// How replies are made, copied and ended, compiled once where a program asks for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

struct reply::spare {
    std::vector<reply> elements;
    ~spare() { over = true; }

    static thread_local spare last;
    static thread_local bool over;
};
inline thread_local reply::spare reply::spare::last;
inline thread_local bool reply::spare::over = false;

DISTLOCK_INLINE reply::reply(const reply&) = default;
DISTLOCK_INLINE reply::reply(reply&&) noexcept = default;
DISTLOCK_INLINE reply& reply::operator=(const reply&) = default;
DISTLOCK_INLINE reply& reply::operator=(reply&&) noexcept = default;
DISTLOCK_INLINE reply::~reply() {
    // First of all: a thread that ends while its library is unloaded must not touch `last`, and register a
    // destructor.
    if (elements_.capacity() == 0) return;
    if (!spare::over && elements_.capacity() > spare::last.elements.capacity())
        spare::last.elements.swap(elements_);
}

DISTLOCK_INLINE reply reply::array_of(std::size_t count) {
    reply r(reply_kind::array);
    if (!spare::over && spare::last.elements.capacity() >= count) r.elements_.swap(spare::last.elements);
    r.elements_.resize(count);
    return r;
}

[[gnu::cold]] DISTLOCK_INLINE void reply::become_error(std::string_view text, std::string_view shown) {
    become(reply_kind::error, shown);
    if (text != shown) said_ = std::make_shared<const std::string>(text);
}

[[gnu::cold]] DISTLOCK_INLINE void reply::said_at(std::string_view host, std::uint16_t port) {
    if (kind_ != reply_kind::error) return;
    if (!said_) said_ = std::make_shared<const std::string>(text_);
    text_.append(detail::concat({" (at ", host, ":", port, ")"}));
}

[[gnu::cold]] DISTLOCK_INLINE reply reply::not_sent(errc cause, std::string_view detail) {
    reply r(reply_kind::not_sent, std::string(detail));
    r.cause_ = cause == errc{} ? errc::unreachable : cause;
    return r;
}

[[gnu::cold]] DISTLOCK_INLINE reply reply::no_answer(errc cause, std::string_view detail) {
    reply r(reply_kind::no_answer, std::string(detail));
    r.cause_ = cause == errc{} ? errc::no_reply : cause;
    return r;
}

}  // namespace distlock
