// The meaning of replies that are none of the dialect's answers, compiled once where a program asks for that.
#pragma once

#include <distlock/base/error.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock {

DISTLOCK_INLINE acquire_outcome acquire_outcome::failure(const reply& r) {
    switch (r.kind()) {
        case reply_kind::not_sent: {
            // read_only: a master that the Sentinels still name says that it is one no longer.
            const bool waitable = r.cause() == errc::unreachable || r.cause() == errc::no_reply ||
                                  r.cause() == errc::unavailable || r.cause() == errc::read_only;
            return {.what = waitable ? kind::later : kind::refused, .cause = r.cause(), .certain = true};
        }
        case reply_kind::no_answer:
            return {kind::unknown, r.cause(), {}};
        case reply_kind::error: {
            const auto e = classify_error(r.said());
            // A script that has written before may have taken the lock.
            if (e.transient) return {e.certain ? kind::later : kind::unknown, e.cause, {}};
            return {.what = kind::refused, .cause = e.cause, .certain = e.certain};
        }
        default:
            return {kind::unknown, errc::protocol_error, {}};
    }
}

DISTLOCK_INLINE release_verdict release_verdict::failure(const reply& r) {
    switch (r.kind()) {
        case reply_kind::not_sent:
            if (r.cause() == errc::wrong_process) return {release_outcome::wrong_process};
            // A server that is a replica said so when it was asked last.
            if (r.cause() == errc::read_only) return {release_outcome::refused, true, false};
            return {release_outcome::unreachable, true, false};
        case reply_kind::error:
            return {release_outcome::refused, classify_error(r.said()).transient, false};
        default:
            return {release_outcome::unreachable, true, true};
    }
}

[[gnu::cold]] DISTLOCK_INLINE void release_verdict::note_refusal(const reply& r) {
    if (!r.is(reply_kind::error)) return;
    again = true;
    minimal = refused_for_its_size(r.said());
    const auto said = classify_error(r.said());
    transient = minimal && said.transient && said.certain;
    // A script that was ended in its middle may have handed the lock over, as it may have taken one.
    const auto request = acquire_outcome::failure(r);
    in_doubt = request.what == acquire_outcome::kind::unknown || request.broke_off();
}

}  // namespace distlock
