// distlock::tls: what a rediss:// connection needs to know whom to trust.
//
//   struct tls_options { ca_file, ca_directory, certificate_file, key_file, server_name,
//                        insecure_skip_verification };
//   std::shared_ptr<const secure_layer> tls(tls_options = {});
//
//   distlock::hiredis_connection redis{"rediss://cache.internal:6380",
//                                      distlock::tls({.ca_file = "/etc/ssl/redis-ca.pem"})};
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/net/uri_syntax.hpp>

namespace distlock {

/// An aggregate for designated initialisers. Files are PEM and read once, by tls(), but for those of folders.
struct tls_options {
    /// The certificates of the authorities that are trusted, and of no others. With neither this nor
    /// ca_directory: those the system trusts.
    std::string ca_file{};
    /// The same as a folder of certificates named by hash, as `openssl rehash` makes it. OpenSSL looks
    /// there at each handshake.
    std::string ca_directory{};

    /// What this client shows when the server asks who it is: its certificate, intermediates behind it, and
    /// the key, not encrypted. Both or none.
    std::string certificate_file{};
    std::string key_file{};

    /// The name or address the server's certificate must be for. Empty: the host of the URI. For servers
    /// reached through a tunnel or by an address that their certificate does not hold.
    std::string server_name{};

    /// Any server that answers is trusted: no protection against anybody on the way. For experiments.
    bool insecure_skip_verification = false;
};

/// TLS 1.2 or newer, by OpenSSL. The server must prove by its certificate that it is the host that was asked
/// for (chain, dates, and name or address), before the first byte of a command or password is sent. There is
/// no way back to plain text. Files that change on disk are seen by what calls tls() after that.
///
/// Returns: what the connections take; thread-safe, for any number of connections.
/// Throws: error(errc::invalid_option), naming the option and the file, when one cannot be used;
/// error(errc::tls_failed) when OpenSSL itself cannot.
[[nodiscard("pass it to a connection")]] inline std::shared_ptr<const secure_layer> tls(
    tls_options options = {});

namespace detail {

struct openssl_free {
    void operator()(SSL_CTX* c) const noexcept { ::SSL_CTX_free(c); }
    void operator()(SSL* s) const noexcept { ::SSL_free(s); }
    void operator()(BIO* b) const noexcept { ::BIO_free(b); }
};
template <class T>
using openssl_ptr = std::unique_ptr<T, openssl_free>;

/// OpenSSL says what went wrong in a queue that each thread has, and decides by it whether a call failed:
/// what others left there must go before, and what we leave must go after.
class openssl_errors {
  public:
    openssl_errors() noexcept { ::ERR_clear_error(); }
    openssl_errors(const openssl_errors&) = delete;
    openssl_errors& operator=(const openssl_errors&) = delete;
    ~openssl_errors() { ::ERR_clear_error(); }

    /// Returns: the first error since, the root of the others; fit for a message.
    static std::string first() {
        const unsigned long code = ::ERR_peek_error();
        if (code == 0) return "no reason given";
        if (ERR_SYSTEM_ERROR(code))
            return printable(std::generic_category().message(ERR_GET_REASON(code)), 100);
        if (const char* const reason = ::ERR_reason_error_string(code)) return printable(reason, 100);
        return "OpenSSL error " + std::to_string(code);
    }
};

/// The host a certificate is checked against.
struct tls_peer_name {
    std::string text;
    std::array<unsigned char, 16> address{};
    std::size_t address_size = 0;  ///< 0: a name

    /// Returns: whether `host` can be verified. A name that OpenSSL would take for "any name" (nothing), "any
    /// name below" (a leading dot), or for another one (a zero byte) cannot.
    bool parse(std::string_view host) {
        text = host.substr(0, host.find('%'));  // the zone of an IPv6 address is our own affair
        if (::inet_pton(AF_INET, text.c_str(), address.data()) == 1) {
            address_size = 4;
        } else if (::inet_pton(AF_INET6, text.c_str(), address.data()) == 1) {
            address_size = 16;
        } else {
            text = host;
            if (text.ends_with('.')) text.pop_back();  // "absolute", in DNS; certificates do not say it
        }
        return !text.empty() && text.size() <= 253 && text.front() != '.' &&
               std::all_of(text.begin(), text.end(), [this](char c) {
                   return is_ascii_alnum(c) || c == '-' || c == '.' || c == '_' ||
                          (c == ':' && address_size != 0);
               });
    }
};

/// A client session on two memory BIOs. Nothing here ever touches a socket: ending it, in this process or in
/// a child after fork(), tells the peer nothing.
class openssl_session final : public secure_session {
  public:
    /// Preconditions: `name` parsed.
    /// Throws: error(errc::tls_failed).
    openssl_session(SSL_CTX& context, tls_peer_name name, bool verify)
        : name_(std::move(name)), ssl_(::SSL_new(&context)) {
        const openssl_errors errors;
        openssl_ptr<BIO> in(::BIO_new(::BIO_s_mem()));
        openssl_ptr<BIO> out(::BIO_new(::BIO_s_mem()));
        if (!ssl_ || !in || !out) throw error(errc::tls_failed, errors.first());
        in_ = in.release();
        out_ = out.release();
        ::SSL_set_bio(ssl_.get(), in_, out_);
        ::SSL_set_connect_state(ssl_.get());
        // RFC 6066, 3: an address is no server name. SSL_set_tlsext_host_name() is a macro with a cast of C.
        const bool named =
            name_.address_size != 0 || ::SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME,
                                                  TLSEXT_NAMETYPE_host_name, name_.text.data()) == 1;
        if (!named || (verify && !demand_name())) throw error(errc::tls_failed, errors.first());
    }

    progress handshake(std::string_view from_peer, std::string& to_peer, std::string& why) override {
        const openssl_errors errors;
        if (!started_ && !from_peer.empty()) {
            started_ = true;
            // Every OpenSSL has another name for what it makes of plain text, so look first.
            constexpr char alert = 21, record_of_handshake = 22;
            if (from_peer.front() != alert && from_peer.front() != record_of_handshake)
                return refuse(why, "the server does not speak TLS on this port");
        }
        if (idle_bytes_ += from_peer.size(); idle_bytes_ > most_idle_bytes)
            return refuse(why, "the server's handshake does not end");
        if (over_ || !put(from_peer)) return refuse(why, "the session is over");
        const int result = ::SSL_do_handshake(ssl_.get());
        const int what = ::SSL_get_error(ssl_.get(), result);
        take(to_peer);  // when it failed, the alert that says so
        if (result == 1) {
            idle_bytes_ = 0;
            return progress::done;
        }
        if (what == SSL_ERROR_WANT_READ) return progress::wants_more;
        return refuse(why, what == SSL_ERROR_ZERO_RETURN ? "the server ended the session" : reason(errors));
    }

    bool seal(std::string_view plain, std::string& to_peer) override {
        const openssl_errors errors;
        if (over_) return false;
        std::size_t written = 0;
        if (!plain.empty() && (::SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &written) != 1 ||
                               written != plain.size())) {
            over_ = true;
            return false;
        }
        take(to_peer);
        return true;
    }

    bool open(std::string_view from_peer, std::string& plain, std::string& to_peer) override {
        const openssl_errors errors;
        if (over_ || !put(from_peer)) return false;
        idle_bytes_ += from_peer.size();
        std::array<char, 4096> chunk;
        std::size_t got = 0;
        // Tickets, key updates and refused renegotiations are dealt with in here, without showing.
        while (::SSL_read_ex(ssl_.get(), chunk.data(), chunk.size(), &got) == 1) {
            plain.append(chunk.data(), got);
            idle_bytes_ = 0;
        }
        const int what = ::SSL_get_error(ssl_.get(), 0);
        if (what != SSL_ERROR_WANT_READ && what != SSL_ERROR_ZERO_RETURN) failure_ = reason(errors);
        if (idle_bytes_ > most_idle_bytes) failure_ = "the server goes on without answering";
        over_ = what != SSL_ERROR_WANT_READ || !failure_.empty();
        take(to_peer);
        return !over_;
    }

    /// Returns: what broke the session, fit for a message; empty while nothing did, and after an orderly end.
    const std::string& failure() const noexcept override { return failure_; }

  private:
    // What a peer may send without getting anywhere: a long chain of certificates fits four times.
    static constexpr std::size_t most_idle_bytes = 256 * 1024;

    bool demand_name() noexcept {
        X509_VERIFY_PARAM* const rules = ::SSL_get0_param(ssl_.get());
        if (name_.address_size != 0)
            return ::X509_VERIFY_PARAM_set1_ip(rules, name_.address.data(), name_.address_size) == 1;
        ::X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        return ::X509_VERIFY_PARAM_set1_host(rules, name_.text.data(), name_.text.size()) == 1;
    }

    progress refuse(std::string& why, std::string_view because) {
        over_ = true;
        why = failure_ = because;
        return progress::failed;
    }

    std::string reason(const openssl_errors& errors) const {
        const long verdict = ::SSL_get_verify_result(ssl_.get());
        if (verdict == X509_V_OK || (::SSL_get_verify_mode(ssl_.get()) & SSL_VERIFY_PEER) == 0)
            return errors.first();
        const std::string found = printable(::X509_verify_cert_error_string(verdict), 100);
        if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH)
            return "the server's certificate is not for " + name_.text + " (" + found + ")";
        return "the server's certificate cannot be trusted (" + found + ")";
    }

    bool put(std::string_view bytes) noexcept {
        std::size_t written = 0;
        if (bytes.empty() ||
            (::BIO_write_ex(in_, bytes.data(), bytes.size(), &written) == 1 && written == bytes.size()))
            return true;
        over_ = true;
        return false;
    }

    void take(std::string& to_peer) {
        const std::size_t size = ::BIO_ctrl_pending(out_);
        if (size == 0) return;
        const std::size_t before = to_peer.size();
        to_peer.resize(before + size);
        std::size_t got = 0;
        ::BIO_read_ex(out_, to_peer.data() + before, size, &got);
        to_peer.resize(before + got);
    }

    tls_peer_name name_;
    const openssl_ptr<SSL> ssl_;  // owns the two BIOs
    BIO* in_ = nullptr;           // from the peer
    BIO* out_ = nullptr;          // to the peer
    std::size_t idle_bytes_ = 0;  // taken in since the last progress
    std::string failure_;
    bool started_ = false;
    bool over_ = false;
};

class openssl_layer final : public secure_layer {
  public:
    explicit openssl_layer(tls_options options)
        : options_(std::move(options)), context_(::SSL_CTX_new(::TLS_client_method())) {
        const openssl_errors errors;
        if (!context_ || SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION) != 1)
            throw error(errc::tls_failed, "OpenSSL: " + errors.first());
        ::SSL_CTX_set_options(context_.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
        ::SSL_CTX_set_verify(
            context_.get(), options_.insecure_skip_verification ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
        // Without this, OpenSSL asks for a key's password on the terminal.
        ::SSL_CTX_set_default_passwd_cb(context_.get(), [](char*, int, int, void*) { return -1; });
        if (!options_.server_name.empty() && !tls_peer_name().parse(options_.server_name))
            throw error(errc::invalid_option, "tls_options::server_name is no host name and no address");
        load_trust(errors);
        load_identity(errors);
    }

    std::unique_ptr<secure_session> start(const uri& server) const override {
        tls_peer_name name;
        if (!name.parse(options_.server_name.empty() ? server.host : options_.server_name))
            throw error(errc::tls_failed, "the host is no name or address that a certificate could be for");
        return std::make_unique<openssl_session>(*context_, std::move(name),
                                                 !options_.insecure_skip_verification);
    }

  private:
    [[noreturn]] static void refuse(const char* option, const std::string& file, const std::string& why) {
        throw error(errc::invalid_option,
                    std::string("tls_options::") + option + " " + printable(file) + ": " + why);
    }

    void load_trust(const openssl_errors& errors) const {
        if (options_.ca_file.empty() && options_.ca_directory.empty()) {
            if (::SSL_CTX_set_default_verify_paths(context_.get()) != 1)
                throw error(errc::tls_failed, "the system's trusted certificates: " + errors.first());
            return;
        }
        if (const auto& file = options_.ca_file; !file.empty()) {
            if (::SSL_CTX_load_verify_file(context_.get(), file.c_str()) != 1)
                refuse("ca_file", file, errors.first());
        }
        if (const auto& folder = options_.ca_directory; !folder.empty()) {
            // OpenSSL would look only when a server shows its certificate, and find nothing without a word.
            std::error_code failed;
            bool named = false;
            std::filesystem::directory_iterator found(folder, failed);
            for (; !failed && !named && found != std::filesystem::directory_iterator();
                 found.increment(failed))
                named = hash_named(found->path().filename().string());
            if (failed) refuse("ca_directory", folder, failed.message());
            if (!named) {
                refuse("ca_directory", folder,
                       "no certificate is named by its hash; run openssl rehash on it");
            }
            if (::SSL_CTX_load_verify_dir(context_.get(), folder.c_str()) != 1)
                refuse("ca_directory", folder, errors.first());
        }
    }

    static bool hash_named(std::string_view name) {  // "5ed36f99.0"
        return name.size() >= 10 && name[8] == '.' &&
               std::all_of(name.begin(), name.begin() + 8,
                           [](unsigned char c) { return std::isxdigit(c) != 0; });
    }

    void load_identity(const openssl_errors& errors) const {
        const auto& certificate = options_.certificate_file;
        const auto& key = options_.key_file;
        if (certificate.empty() && key.empty()) return;
        if (certificate.empty()) refuse("key_file", key, "there is no certificate_file to it");
        if (key.empty()) refuse("certificate_file", certificate, "there is no key_file to it");
        if (::SSL_CTX_use_certificate_chain_file(context_.get(), certificate.c_str()) != 1)
            refuse("certificate_file", certificate, errors.first());
        if (::SSL_CTX_use_PrivateKey_file(context_.get(), key.c_str(), SSL_FILETYPE_PEM) != 1)
            refuse("key_file", key, errors.first());
        if (::SSL_CTX_check_private_key(context_.get()) != 1) refuse("key_file", key, errors.first());
    }

    const tls_options options_;
    const openssl_ptr<SSL_CTX> context_;
};

}  // namespace detail

inline std::shared_ptr<const secure_layer> tls(tls_options options) {
    return std::make_shared<const detail::openssl_layer>(std::move(options));
}

}  // namespace distlock
