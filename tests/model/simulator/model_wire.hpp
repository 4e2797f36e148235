// A connection to the real server that the model is compared with: bytes out, replies in.
//
//   class wire_socket { send(words)...; flush(); std::optional<reply> receive(); bool silent(); };
//   std::string show(const reply&), show(words)    // as a person reads it, in one line
#pragma once

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/testing/child_process.hpp>
#include <distlock/testing/raw_client.hpp>
#include <distlock/wire/reply.hpp>

namespace sim {

class wire_socket {
  public:
    using reply = distlock::reply;

    /// Throws: std::system_error.
    explicit wire_socket(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            throw std::system_error(errno, std::generic_category(), path);
    }

    void add(std::span<const std::string_view> words) {
        out_ += distlock::testing::impl::resp_request(words);
    }
    /// Effects: sends what was added.
    void flush() {
        for (std::string_view rest = out_; !rest.empty();) {
            const auto sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "send");
            if (sent > 0) rest.remove_prefix(static_cast<std::size_t>(sent));
        }
        out_.clear();
    }

    /// Returns: the next reply; none: there was none for five seconds, or the server closed the connection.
    std::optional<reply> receive() {
        for (;;) {
            std::string_view rest = std::string_view(in_).substr(read_);
            if (auto whole = parse(rest)) {
                read_ = in_.size() - rest.size();
                if (rest.empty()) in_.clear(), read_ = 0;
                return whole;
            }
            if (!ready(5000) || !more()) return std::nullopt;
        }
    }
    /// Returns: that nothing has come which was not received.
    bool silent() { return read_ == in_.size() && !ready(0); }

    reply ask(std::span<const std::string_view> words) {
        add(words);
        flush();
        return receive().value_or(reply::error("no reply"));
    }

  private:
    bool ready(int ms) {
        pollfd one{fd_.get(), POLLIN, 0};
        int found = 0;
        do {
            found = ::poll(&one, 1, ms);
        } while (found < 0 && errno == EINTR);
        return found > 0;
    }
    bool more() {
        std::array<char, 16384> chunk{};
        const auto got = ::recv(fd_.get(), chunk.data(), chunk.size(), 0);
        if (got > 0) in_.append(chunk.data(), static_cast<std::size_t>(got));
        return got > 0 || (got < 0 && errno == EINTR);
    }

    // Returns: the reply at the front of `rest`, taken off; none: it is not there whole.
    static std::optional<reply> parse(std::string_view& rest) {
        const auto end = rest.find("\r\n");
        if (end == std::string_view::npos) return std::nullopt;
        const char kind = rest[0];
        const std::string_view line = rest.substr(1, end - 1);
        std::string_view after = rest.substr(end + 2);
        std::optional<reply> made;
        if (kind == '+') {
            made = reply::status(std::string(line));
        } else if (kind == '-') {
            made = reply::error(std::string(line));
        } else {
            long long number = 0;
            const auto [stop, failed] = std::from_chars(line.data(), line.data() + line.size(), number);
            if (failed != std::errc{} || stop != line.data() + line.size())
                return reply::error("not RESP: " + std::string(rest.substr(0, end)));
            if (kind == ':') {
                made = reply::integer(number);
            } else if (number < 0) {
                made = reply::nil();
            } else if (const auto size = static_cast<std::size_t>(number); kind == '$') {
                if (after.size() < size + 2) return std::nullopt;
                made = reply::string(std::string(after.substr(0, size)));
                after.remove_prefix(size + 2);
            } else {
                std::vector<reply> elements;
                while (elements.size() < size) {
                    auto element = parse(after);
                    if (!element) return std::nullopt;
                    elements.push_back(std::move(*element));
                }
                made = reply::array(std::move(elements));
            }
        }
        rest = after;
        return made;
    }

    distlock::testing::impl::unique_fd fd_;
    std::string out_;
    std::string in_;
    std::size_t read_ = 0;  // how much of in_ was given out
};

inline std::string show(const distlock::reply& what) {
    using distlock::reply_kind;
    switch (what.kind()) {
        case reply_kind::nil:
            return "(nil)";
        case reply_kind::integer:
            return std::to_string(what.number());
        case reply_kind::string:
            return '"' + what.text() + '"';
        case reply_kind::status:
            return "+" + what.text();
        case reply_kind::array: {
            std::string all;
            for (const auto& one : what.elements()) all += (all.empty() ? "[" : ", ") + show(one);
            return all.empty() ? "[]" : all + "]";
        }
        default:
            return "-" + what.text();
    }
}
/// The text of a script is left out.
inline std::string show(std::span<const std::string> words) {
    std::string all;
    for (const std::string& word : words) all += (word.size() > 200 ? "<script>" : '"' + word + '"') + " ";
    return all;
}

}  // namespace sim
