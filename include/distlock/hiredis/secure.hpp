// The interface of a TLS session, without a socket: bytes in, bytes out. Implemented by hiredis/tls.hpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <distlock/net/uri.hpp>

namespace distlock {

/// One encrypted session over one socket. It moves bytes between buffers; whoever owns the socket carries
/// them, so deadlines and signals are treated in one place.
class secure_session {
  public:
    enum class progress { done, wants_more, failed };

    virtual ~secure_session() = default;

    /// Effects: takes what came from the peer, appends what must be sent to `to_peer`.
    /// Returns: done once the peer is authenticated; failed with `why` set, fit for a message.
    virtual progress handshake(std::string_view from_peer, std::string& to_peer, std::string& why) = 0;

    /// Effects: appends the encrypted form of `plain` to `to_peer`.
    /// Returns: false when the session is broken.
    virtual bool seal(std::string_view plain, std::string& to_peer) = 0;

    /// Effects: appends what `from_peer` decrypts to, and what must be sent back.
    /// Returns: false when the session is over.
    virtual bool open(std::string_view from_peer, std::string& plain, std::string& to_peer) = 0;

    /// Returns: what broke the session, fit for a message; empty while nothing did, and after an orderly end.
    virtual const std::string& failure() const noexcept = 0;
};

/// Starts sessions. Thread-safe.
class secure_layer {
  public:
    virtual ~secure_layer() = default;

    /// Returns: a session that trusts nobody but the host of `server`.
    /// Throws: error(errc::tls_failed).
    virtual std::unique_ptr<secure_session> start(const uri& server) const = 0;
};

namespace detail {

/// `shown`: the URI as it may be shown; `encrypted`: what to write instead of its scheme, for TLS.
/// Throws: error; errc::tls_unavailable for a URI with TLS without a layer, errc::invalid_uri for a layer and
/// a URI without.
[[gnu::cold]] inline void check_tls(uri_scheme scheme, bool secure, std::string_view shown,
                                    std::string_view encrypted) {
    const bool wanted = scheme == uri_scheme::tls;
    if (wanted && !secure) throw_error(errc::tls_unavailable, {shown});
    if (!wanted && secure) throw_error(errc::invalid_uri, {shown, " with TLS; write ", encrypted});
}

}  // namespace detail

}  // namespace distlock
