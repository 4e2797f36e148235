// A socket to a private server for tests of what is said to it: any command, and the messages of channels.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/hiredis/api.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

class redis_link {
  public:
    explicit redis_link(const std::string& socket_path)
        : context_(::redisConnectUnixWithTimeout(socket_path.c_str(), timeval{20, 0})) {
        if (!context_ || context_->err != 0) throw std::runtime_error("no connection to " + socket_path);
        ::redisSetTimeout(context_.get(), timeval{20, 0});
    }

    /// Returns: the answer; a script is sent whole if the server does not have it.
    distlock::reply ask(const distlock::command& cmd) {
        send(cmd);
        auto said = read();
        if (!said.text().starts_with("NOSCRIPT")) return said;
        send(cmd.with_body());
        return read();
    }

    /// Effects: hears what is published there from now on. The link is good for nothing else then.
    void subscribe(std::string_view channel, bool sharded = false) {
        const auto said = ask({sharded ? "SSUBSCRIBE" : "SUBSCRIBE", channel});
        if (said.elements().size() != 3) throw std::runtime_error("no subscription: " + said.text());
    }
    /// Returns: what was published next; none if nothing is there after `patience`.
    std::optional<std::string> message(std::chrono::milliseconds patience = std::chrono::seconds{10}) {
        pollfd there{context_->fd, POLLIN, 0};
        if (context_->reader->pos == context_->reader->len &&
            ::poll(&there, 1, static_cast<int>(patience.count())) == 0)
            return std::nullopt;
        return read().elements().at(2).text();
    }

  private:
    struct end {
        void operator()(redisContext* context) const { ::redisFree(context); }
        void operator()(redisReply* answer) const { ::freeReplyObject(answer); }
    };

    void send(const distlock::command& cmd) {
        std::vector<const char*> texts;
        std::vector<std::size_t> sizes;
        for (const auto word : cmd.argv()) {
            texts.push_back(word.data());
            sizes.push_back(word.size());
        }
        ::redisAppendCommandArgv(context_.get(), static_cast<int>(texts.size()), texts.data(), sizes.data());
    }
    distlock::reply read() {
        void* answer = nullptr;
        if (::redisGetReply(context_.get(), &answer) != REDIS_OK) throw std::runtime_error(context_->errstr);
        const std::unique_ptr<redisReply, end> owned(static_cast<redisReply*>(answer));
        return made_of(*owned);
    }
    static distlock::reply made_of(const redisReply& from) {
        const auto text = [&from] { return std::string(from.str, from.len); };
        switch (from.type) {
            case REDIS_REPLY_INTEGER:
                return distlock::reply::integer(from.integer);
            case REDIS_REPLY_STRING:
                return distlock::reply::string(text());
            case REDIS_REPLY_STATUS:
                return distlock::reply::status(text());
            case REDIS_REPLY_ERROR:
                return distlock::reply::error(text());
            case REDIS_REPLY_ARRAY: {
                std::vector<distlock::reply> elements;
                for (std::size_t i = 0; i < from.elements; ++i) elements.push_back(made_of(*from.element[i]));
                return distlock::reply::array(std::move(elements));
            }
            default:
                return distlock::reply::nil();
        }
    }

    std::unique_ptr<redisContext, end> context_;
};
