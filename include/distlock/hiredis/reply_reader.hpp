// hiredis as a codec: bytes in, replies out, with caps on what a peer can make us allocate.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/hiredis/api.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// Parses one server's byte stream. Uses hiredis's redisReader with object functions of our own, so that
/// replies are built in place and no length a peer claims is believed: thirteen bytes make the stock
/// functions reserve 16 GB.
class reply_reader {
  public:
    /// Of one reply.
    struct limits {
        std::size_t bytes;
        std::size_t elements;  ///< of each array
    };
    static constexpr limits usual{64 * 1024, 1024};  ///< a lock needs far less
    /// Of the map of a Cluster: each slot may be a range of its own, with the nodes that have it. Of the
    /// Sentinels of a master, with those that were there before.
    static constexpr limits list_of_servers{4 * 1024 * 1024, 16 * 1024};
    static constexpr int max_depth = 4;

    reply_reader() : reader_(::redisReaderCreateWithFunctions(functions())) {
        if (!reader_) throw std::bad_alloc();
        reader_->privdata = this;
    }
    reply_reader(const reply_reader&) = delete;
    reply_reader& operator=(const reply_reader&) = delete;

    /// Preconditions: next() has returned nothing since the last call: what lies unread is bounded by it.
    /// Returns: false when the stream cannot be parsed any further; see failure().
    bool feed(std::string_view bytes) noexcept {
        unread_ += bytes.size();
        return ::redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) == REDIS_OK || fail(why_not());
    }

    /// Returns: the next whole reply, or nothing when more bytes are needed or the stream is broken
    /// (failure() tells).
    std::optional<reply> next() {
        if (failure_ != errc{}) return std::nullopt;
        void* done = nullptr;
        if (::redisReaderGetReply(reader_.get(), &done) != REDIS_OK) {
            fail(why_not());
            return std::nullopt;
        }
        // The cap is on one reply: what came with it may be the next ones.
        const std::size_t rest = done != nullptr ? reader_->len - reader_->pos : 0;
        if (unread_ - rest > most_.bytes) {
            fail(errc::reply_too_large);
            return std::nullopt;
        }
        if (done == nullptr) return std::nullopt;
        unread_ = rest;
        return std::exchange(root_, reply{});
    }

    /// Returns: whether bytes beyond the last reply are there.
    bool has_leftover() const noexcept { return reader_->pos != reader_->len; }

    /// Effects: from now on a reply may have as much; at first `usual`.
    void allow(const limits& most) noexcept { most_ = most; }

    /// Effects: from now on no error shows this text, if a server repeats it; but for its first word, and for
    /// what is shorter than four bytes, which nobody can keep secret.
    void hide(std::string_view secret) { secret_ = secret.size() < 4 ? std::string_view() : secret; }

    /// Returns: what broke the stream; errc{} when nothing did.
    errc failure() const noexcept { return failure_; }

  private:
    struct free_reader {
        void operator()(redisReader* r) const noexcept { ::redisReaderFree(r); }
    };

    [[gnu::cold]] std::string shown(std::string_view text) const {
        std::string out(text);
        if (!secret_.empty()) {
            constexpr std::string_view instead = "***";
            for (auto at = out.find(' '); (at = out.find(secret_, at)) != std::string::npos;
                 at += instead.size())
                out.replace(at, secret_.size(), instead);
        }
        return out;
    }

    // There was no memory, as far as none of our functions has said what else is wrong.
    [[gnu::cold]] errc why_not() const noexcept {
        return reader_->err == REDIS_ERR_OOM ? errc::no_reply : errc::protocol_error;
    }

    [[gnu::cold]] bool fail(errc why) noexcept {
        if (failure_ == errc{}) failure_ = why;
        return false;
    }

    // Effects: reading has failed. Returns: null, by which a function stops hiredis.
    static void* refuse(const redisReadTask* task, errc why) noexcept {
        static_cast<reply_reader*>(task->privdata)->fail(why);
        return nullptr;
    }

    // Called by hiredis, in C: no exception may leave. A null result makes it stop with an error.
    static void* place(const redisReadTask* task, function_ref<void(reply_reader&, reply&)> fill) noexcept {
        auto& self = *static_cast<reply_reader*>(task->privdata);
        try {
            reply* slot = &self.root_;
            int depth = 0;
            for (const auto* up = task->parent; up != nullptr; up = up->parent) ++depth;
            if (depth > max_depth) return refuse(task, errc::reply_too_large);
            if (task->parent != nullptr) {
                auto& siblings = static_cast<reply*>(task->parent->obj)->elements();
                const auto index = static_cast<std::size_t>(task->idx);
                if (index >= siblings.size()) return refuse(task, errc::protocol_error);
                slot = &siblings[index];
            }
            fill(self, *slot);
            return slot;
        } catch (...) {
            return nullptr;
        }
    }

    // RESP3 types were not asked for. hiredis takes a missing function for "wants no object" and would go on.
    // A template, since hiredis 0.14 does not have them.
    template <class Functions>
    static void refuse_resp3(Functions& f) noexcept {
        const auto unasked = [](const redisReadTask* task, auto...) -> void* {
            return refuse(task, errc::protocol_error);
        };
        if constexpr (requires { f.createDouble; }) f.createDouble = unasked;
        if constexpr (requires { f.createBool; }) f.createBool = unasked;
    }

    [[gnu::cold]] static redisReplyObjectFunctions* functions() noexcept {
        static redisReplyObjectFunctions table = [] {
            redisReplyObjectFunctions f{};
            f.createString = [](const redisReadTask* task, char* text, std::size_t size) -> void* {
                return place(task, [&](reply_reader& self, reply& slot) {
                    switch (task->type) {
                        case REDIS_REPLY_ERROR:
                            slot.become_error({text, size}, printable(self.shown({text, size})));
                            break;
                        case REDIS_REPLY_STATUS:
                            slot.become(reply_kind::status, {text, size});
                            break;
                        default:
                            slot.become(reply_kind::string, {text, size});
                    }
                });
            };
            // The type of the count differs between hiredis 0.14 and 1.x.
            f.createArray = [](const redisReadTask* task, auto count) -> void* {
                if (task->type != REDIS_REPLY_ARRAY) return refuse(task, errc::protocol_error);
                return place(task, [&](reply_reader& self, reply& slot) {
                    if (count < 0 || static_cast<std::size_t>(count) > self.most_.elements) {
                        self.fail(errc::reply_too_large);
                        throw std::bad_alloc();
                    }
                    slot = reply::array_of(static_cast<std::size_t>(count));
                });
            };
            f.createInteger = [](const redisReadTask* task, long long value) -> void* {
                return place(task, [&](reply_reader&, reply& slot) { slot = reply::integer(value); });
            };
            f.createNil = [](const redisReadTask* task) -> void* {
                return place(task, [](reply_reader&, reply& slot) { slot = reply::nil(); });
            };
            f.freeObject = [](void*) {};
            refuse_resp3(f);
            return f;
        }();
        return &table;
    }

    std::unique_ptr<redisReader, free_reader> reader_;
    reply root_;
    std::string secret_;
    limits most_ = usual;
    std::size_t unread_ = 0;  // bytes fed and not yet part of a returned reply
    errc failure_{};
};

}  // namespace distlock::detail
