// Bare hiredis, written the plainest way: one blocking command at a time; and the lock loop
// made of two of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <hiredis/hiredis.h>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>

#include <distlock/net/uri.hpp>

#include "bench.hpp"

namespace bench {

/// Every call throws when the server cannot be reached, does not answer within ten seconds or
/// answers with an error.
class redis_client {
  public:
    using reply = std::unique_ptr<redisReply, void (*)(void*)>;

    explicit redis_client(const std::string& where) : context_(connect(where), ::redisFree) {
        if (!context_) throw std::runtime_error("no memory for a connection");
        if (context_->err != 0) throw std::runtime_error(where + ": " + context_->errstr);
        ::redisSetTimeout(context_.get(), {10, 0});
    }

    reply run(std::initializer_list<std::string_view> words) {
        std::array<const char*, 8> argv{};
        std::array<std::size_t, 8> sizes{};
        std::size_t count = 0;
        for (const auto word : words) {
            argv.at(count) = word.data();
            sizes.at(count++) = word.size();
        }
        return checked(
            ::redisCommandArgv(context_.get(), static_cast<int>(count), argv.data(), sizes.data()));
    }

    /// Returns: the digest by which the script is called.
    std::string load(std::string_view script) { return run({"SCRIPT", "LOAD", script})->str; }

    /// Returns: what the server sent unasked by `deadline`; nullptr when nothing came.
    reply pushed(nanoseconds deadline) {
        for (;;) {
            void* r = nullptr;
            if (::redisGetReplyFromReader(context_.get(), &r) != REDIS_OK) fail();
            if (r != nullptr) return checked(r);
            pollfd ready{context_->fd, POLLIN, 0};
            const auto left = std::max(deadline - now(), nanoseconds{0});
            const timespec rest{left / 1s, static_cast<long>((left % 1s).count())};
            if (::ppoll(&ready, 1, &rest, nullptr) <= 0) return {nullptr, ::freeReplyObject};
            if (::redisBufferRead(context_.get()) != REDIS_OK) fail();
        }
    }

  private:
    static redisContext* connect(const std::string& where) {
        const distlock::uri place = distlock::parse_uri(where);
        return place.scheme == distlock::uri_scheme::unix_socket
                   ? ::redisConnectUnix(place.path.c_str())
                   : ::redisConnectWithTimeout(place.host.c_str(), place.port, {5, 0});
    }

    reply checked(void* r) {
        if (r == nullptr) fail();
        reply mine(static_cast<redisReply*>(r), ::freeReplyObject);
        if (mine->type == REDIS_REPLY_ERROR)
            throw std::runtime_error("the server says " + std::string(mine->str));
        return mine;
    }
    [[noreturn]] void fail() {
        throw std::runtime_error(std::string("the server was lost: ") + context_->errstr);
    }

    std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
};

/// The release that the documentation of SET shows.
inline constexpr std::string_view compare_and_delete =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// SET NX PX and a compare-and-delete, with a constant token: the least a lock on the server can be.
class raw_loop {
  public:
    explicit raw_loop(const std::string& where)
        : client_(where), release_(client_.load(compare_and_delete)) {}

    void operator()() {
        const auto taken = client_.run({"SET", "raw", token_, "NX", "PX", "30000"});
        const auto freed = client_.run({"EVALSHA", release_, "1", "raw", token_});
        if (taken->type != REDIS_REPLY_STATUS || freed->integer != 1)
            throw std::runtime_error("somebody else has the raw loop's lock");
    }

  private:
    redis_client client_;
    std::string release_;
    std::string token_ = "0123456789abcdef0123456789abcdef";
};

/// Returns: how often a second `cycle` can be called.
template <class Cycle>
double rate_of(int cycles, Cycle& cycle) {
    const auto start = now();
    for (int i = 0; i < cycles; ++i) cycle();
    return cycles / in_seconds(now() - start);
}

}  // namespace bench
