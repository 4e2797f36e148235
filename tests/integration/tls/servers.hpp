// The servers of the TLS tests: one in memory, one on a socket that follows a script, and a real one.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/hiredis/tls.hpp>
#include <distlock/testing/redis_server.hpp>

#include "integration/tls/certificates.hpp"
#include "support/catch.hpp"

namespace servers {

/// A missing server, or one without TLS, is a failure, but where the environment says to do without.
inline bool tls_is_wanted() {
    const char* const without = std::getenv("DISTLOCK_TEST_WITHOUT_TLS");
    return without == nullptr || std::string_view(without) != "1";
}

inline std::shared_ptr<const distlock::secure_layer> trusting_ca() {
    return distlock::tls({.ca_file = certificates::set::get().ca.certificate_file});
}

/// The other end of a session, without a socket.
class in_memory {
  public:
    explicit in_memory(const certificates::identity& shown, int oldest = TLS1_2_VERSION,
                       int newest = TLS1_3_VERSION)
        : context_(::SSL_CTX_new(::TLS_server_method())) {
        SSL_CTX* const c = context_.get();
        certificates::must(SSL_CTX_set_min_proto_version(c, oldest) == 1 &&
                           SSL_CTX_set_max_proto_version(c, newest) == 1 &&
                           ::SSL_CTX_set_cipher_list(c, "DEFAULT:@SECLEVEL=0") == 1 &&
                           ::SSL_CTX_use_certificate(c, shown.certificate.get()) == 1 &&
                           ::SSL_CTX_use_PrivateKey(c, shown.key.get()) == 1);
        ssl_.reset(::SSL_new(c));
        in_ = ::BIO_new(::BIO_s_mem());
        out_ = ::BIO_new(::BIO_s_mem());
        ::SSL_set_bio(ssl_.get(), in_, out_);
        ::SSL_set_accept_state(ssl_.get());
    }

    SSL* ssl() noexcept { return ssl_.get(); }

    /// Effects: takes in `bytes`; what they decrypt to is appended to `received`. Returns: what it sends.
    std::string step(std::string_view bytes) {
        if (!bytes.empty()) ::BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
        std::array<char, 4096> chunk;
        std::size_t got = 0;
        while (::SSL_read_ex(ssl_.get(), chunk.data(), chunk.size(), &got) == 1)
            received.append(chunk.data(), got);
        ::ERR_clear_error();
        return sent();
    }
    std::string say(std::string_view plain) {
        std::size_t written = 0;
        ::SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &written);
        return sent();
    }
    /// Returns: what the last calls on ssl() want to send.
    std::string sent() {
        std::string bytes(::BIO_ctrl_pending(out_), '\0');
        if (!bytes.empty()) ::BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
        return bytes;
    }

    std::string received;

  private:
    distlock::detail::openssl_ptr<SSL_CTX> context_;
    distlock::detail::openssl_ptr<SSL> ssl_;
    BIO* in_ = nullptr;
    BIO* out_ = nullptr;
};

/// A port of 127.0.0.1 on which a script talks with whoever connects, one after the other.
class scripted {
  public:
    /// What a script has in hand: a connection, on which every wait ends when the server does.
    class peer {
      public:
        peer(int fd, std::stop_token stop, std::string& seen, std::mutex& guard)
            : fd_(fd), stop_(std::move(stop)), seen_(seen), guard_(guard) {}

        /// Returns: what came within `pause`, or before the end; empty otherwise.
        std::string receive(std::chrono::milliseconds pause = std::chrono::hours{1}) {
            const auto until = std::chrono::steady_clock::now() + pause;
            while (!stop_.stop_requested() && std::chrono::steady_clock::now() < until) {
                pollfd polled{fd_, POLLIN, 0};
                if (::poll(&polled, 1, 2) <= 0) continue;
                std::array<char, 16384> chunk;
                const auto n = ::recv(fd_, chunk.data(), chunk.size(), MSG_DONTWAIT);
                if (n <= 0) {
                    open_ = false;
                    return {};
                }
                const std::lock_guard lock(guard_);
                return seen_.append(chunk.data(), static_cast<std::size_t>(n)),
                       std::string(chunk.data(), static_cast<std::size_t>(n));
            }
            return {};
        }
        /// Returns: false when the client is gone.
        bool send(std::string_view bytes) {
            while (!bytes.empty() && !stop_.stop_requested()) {
                const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n > 0) {
                    bytes.remove_prefix(static_cast<std::size_t>(n));
                } else if (errno == EAGAIN) {
                    pollfd polled{fd_, POLLOUT, 0};
                    ::poll(&polled, 1, 2);
                } else {
                    open_ = false;
                    return false;
                }
            }
            return !stop_.stop_requested();
        }
        bool open() const { return open_ && !stop_.stop_requested(); }

      private:
        int fd_;
        std::stop_token stop_;
        std::string& seen_;
        std::mutex& guard_;
        bool open_ = true;
    };

    explicit scripted(std::function<void(peer&)> script)
        : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        if (::bind(listener_.get(), any, size) != 0 || ::listen(listener_.get(), 8) != 0 ||
            ::getsockname(listener_.get(), any, &size) != 0)
            throw std::runtime_error("no port on 127.0.0.1");
        port_ = ntohs(address.sin_port);
        thread_ = std::jthread([this, script = std::move(script)](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                pollfd polled{listener_.get(), POLLIN, 0};
                if (::poll(&polled, 1, 2) <= 0) continue;
                const distlock::testing::impl::unique_fd fd{::accept(listener_.get(), nullptr, nullptr)};
                const int yes = 1;  // a small message follows another at once, as a test expects
                ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                peer client(fd.get(), stop, seen_, guard_);
                script(client);
            }
        });
    }

    std::string port() const { return std::to_string(port_); }
    /// Returns: every byte that ever came.
    std::string seen() const {
        const std::lock_guard lock(guard_);
        return seen_;
    }

  private:
    mutable std::mutex guard_;
    std::string seen_;
    distlock::testing::impl::unique_fd listener_;
    std::uint16_t port_ = 0;
    std::jthread thread_;  // last: ends first
};

/// A real server that speaks TLS on port() of 127.0.0.1, and plain text on its unix socket only.
class real {
  public:
    explicit real(const certificates::identity& shown, std::vector<std::string> more = {}) {
        constexpr int most = 10;
        for (int attempt = 1;; ++attempt) {
            port_ = distlock::testing::impl::unused_port();
            distlock::testing::redis_server_options options;
            options.program = program();
            options.arguments = {"--tls-port",           std::to_string(port_), "--tls-cert-file",
                                 shown.certificate_file, "--tls-key-file",      shown.key_file};
            if (std::find(more.begin(), more.end(), "--tls-auth-clients") == more.end())
                options.arguments.insert(options.arguments.end(), {"--tls-auth-clients", "no"});
            options.arguments.insert(options.arguments.end(), more.begin(), more.end());
            try {
                server_ = std::make_unique<distlock::testing::redis_server>(std::move(options));
                return;
            } catch (const distlock::error& failed) {
                const std::string_view said = failed.what();
                if (attempt < most && said.find("Address already in use") != said.npos) continue;
                throw;
            }
        }
    }

    /// Returns: rediss://127.0.0.1:port. Not every machine knows a localhost.
    std::string uri() const { return "rediss://127.0.0.1:" + port(); }
    std::string port() const { return std::to_string(port_); }
    distlock::testing::redis_server& plain() { return *server_; }

    /// Returns: what runs with TLS. Throws: when nothing does.
    static const std::string& program() {
        static const std::string found = [] {
            std::vector<std::string> candidates{"redis-server", "valkey-server"};
            const char* const named = std::getenv("DISTLOCK_TEST_SERVER");
            if (named != nullptr && *named != '\0') candidates = {named};
            std::string said;
            for (const std::string& candidate : candidates) {
                distlock::testing::redis_server_options options;
                options.program = candidate;
                options.arguments = {"--tls-ciphers", "DEFAULT"};  // refused by what is built without TLS
                try {
                    const distlock::testing::redis_server probe{options};
                    return candidate;
                } catch (const distlock::error& failed) {
                    said += "\n" + candidate + ": " + failed.what();
                }
            }
            throw std::runtime_error(
                "no server that speaks TLS; name one in DISTLOCK_TEST_SERVER, or set "
                "DISTLOCK_TEST_WITHOUT_TLS=1 to do without these tests:" +
                said);
        }();
        return found;
    }

  private:
    std::uint16_t port_ = 0;
    std::unique_ptr<distlock::testing::redis_server> server_;
};

}  // namespace servers
