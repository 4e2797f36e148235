// What an attempt to take a lock learns where the server did not answer, or refused: the same in
// each dialect of ours.
#pragma once

#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

/// Effects: checks the outcome of each such reply; `read` is the dialect's.
template <class Read>
void check_failures(Read read) {
    using distlock::errc;
    using distlock::reply;
    using kind = distlock::acquire_outcome::kind;
    struct row {
        reply r;
        kind what;
        errc cause;
    };
    const std::vector<row> rows{
        {reply::not_sent(errc::unreachable, ""), kind::later, errc::unreachable},
        {reply::not_sent(errc::no_reply, ""), kind::later, errc::no_reply},
        {reply::not_sent(errc::unavailable, ""), kind::later, errc::unavailable},
        {reply::not_sent(errc::read_only, ""), kind::later, errc::read_only},
        {reply::not_sent(errc::wrong_process, ""), kind::refused, errc::wrong_process},
        {reply::not_sent(errc::authentication_failed, ""), kind::refused, errc::authentication_failed},
        {reply::not_sent(errc::tls_failed, ""), kind::refused, errc::tls_failed},
        {reply::not_sent(errc::tls_unavailable, ""), kind::refused, errc::tls_unavailable},
        {reply::no_answer(errc::no_reply, ""), kind::unknown, errc::no_reply},
        {reply::no_answer(errc::protocol_error, ""), kind::unknown, errc::protocol_error},
        {reply::no_answer(errc::reply_too_large, ""), kind::unknown, errc::reply_too_large},
        {reply::no_answer(errc::unreachable, ""), kind::unknown, errc::unreachable},
        {reply::no_answer(errc::tls_failed, ""), kind::unknown, errc::tls_failed},
        {reply::error("LOADING x"), kind::later, errc::unavailable},
        {reply::error("READONLY x"), kind::later, errc::read_only},
        {reply::error("NOSCRIPT x"), kind::later, errc::unavailable},
        {reply::error("OOM x"), kind::refused, errc::out_of_memory},
        {reply::error("WRONGTYPE x"), kind::refused, errc::wrong_type},
        {reply::error("NOPERM x"), kind::refused, errc::permission_denied},
        {reply::error("UNBLOCKED x"), kind::later, errc::unavailable},
        {reply::error("NOAUTH x"), kind::refused, errc::authentication_failed},
        {reply::error("MOVED 1 h:1"), kind::refused, errc::wrong_node},
        {reply::error("ERR x"), kind::refused, errc::server_error},
        {reply::error("OK"), kind::refused, errc::server_error},
        {reply::error(""), kind::refused, errc::server_error},
    };
    for (const row& row : rows) {
        INFO(static_cast<int>(row.r.kind()) << " " << row.r.text() << " " << static_cast<int>(row.cause));
        const distlock::acquire_outcome got = read(row.r);
        CHECK(got.what == row.what);
        CHECK(got.cause == row.cause);
        CHECK_FALSE(got.ttl);
    }
}
