// What became of a command: the server's reply, or the two ways of not having one.
//
//   reply::nil(); reply::integer(value); reply::string(value); reply::status(value); reply::array(elements)
//   reply::error("WRONGTYPE ...")                                  // the server answered with an error
//   reply::not_sent(cause, detail)                                 // no byte left: it was not applied
//   reply::no_answer(cause, detail)                                // sent; it may have been applied
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/separate.hpp>

namespace distlock {

enum class reply_kind { nil, integer, string, status, array, error, not_sent, no_answer };

/// A value. The default is nil.
class reply {
  public:
    reply() = default;
    reply(const reply&);
    reply(reply&&) noexcept;
    reply& operator=(const reply&);
    reply& operator=(reply&&) noexcept;
    ~reply();

    static reply nil() { return {}; }
    static reply integer(std::int64_t value) {
        reply r(reply_kind::integer);
        r.integer_ = value;
        return r;
    }
    static reply string(std::string value) { return {reply_kind::string, std::move(value)}; }
    static reply status(std::string value) { return {reply_kind::status, std::move(value)}; }
    static reply array(std::vector<reply> elements) {
        reply r(reply_kind::array);
        r.elements_ = std::move(elements);
        return r;
    }

    /// Returns: an array of so many replies, each to be replaced or to become something; in the memory that
    /// the last array of the thread left, if that suffices.
    static reply array_of(std::size_t count);
    /// Effects: this is a string, status or error of that text, in the memory it had if that suffices.
    void become(reply_kind kind, std::string_view text) {
        text_.assign(text);
        said_.reset();
        kind_ = kind;
        integer_ = 0;
        elements_.clear();
    }
    /// Effects: this is an error of that text, of which `shown` may be shown to people.
    void become_error(std::string_view text, std::string_view shown);

    /// Effects: what is shown of an error says which server said it.
    void said_at(std::string_view host, std::uint16_t port);

    /// An error the server sent, as it came after the '-': "WRONGTYPE Operation against a key ...".
    /// Preconditions: no secret is in it.
    static reply error(std::string text) { return {reply_kind::error, std::move(text)}; }

    /// Not one byte of the command was handed to the system: it was certainly not applied. `detail` says what
    /// failed, fit for a message: printable, without secrets. A `cause` that is none is errc::unreachable.
    static reply not_sent(errc cause, std::string_view detail);

    /// Something was sent and no answer came: the command may have been applied, or may still be. A `cause`
    /// that is none is errc::no_reply.
    static reply no_answer(errc cause, std::string_view detail);

    reply_kind kind() const noexcept { return kind_; }

    /// Returns: whether a server answered, if only with an error.
    bool answered() const noexcept { return kind_ != reply_kind::not_sent && kind_ != reply_kind::no_answer; }

    bool is(reply_kind kind) const noexcept { return kind_ == kind; }
    bool is_status(std::string_view text) const noexcept {
        return kind_ == reply_kind::status && text_ == text;
    }
    bool is_string(std::string_view text) const noexcept {
        return kind_ == reply_kind::string && text_ == text;
    }
    bool is_integer(std::int64_t value) const noexcept {
        return kind_ == reply_kind::integer && integer_ == value;
    }

    /// Returns: the text of a string, status or error reply, or the detail of not_sent and no_answer; else
    /// empty.
    const std::string& text() const noexcept { return text_; }
    /// Returns: what decisions are made by: of an error all that the server said. Servers repeat what they
    /// refuse, a password, too: so what people are shown is text(), which may be shorter, and lack words.
    const std::string& said() const noexcept { return said_ ? *said_ : text_; }
    /// Returns: the number of an integer reply; else 0.
    std::int64_t number() const noexcept { return integer_; }
    /// Returns: the elements of an array reply; else none.
    const std::vector<reply>& elements() const noexcept { return elements_; }
    std::vector<reply>& elements() noexcept { return elements_; }
    /// Preconditions: !answered().
    /// Returns: why there is no answer.
    errc cause() const noexcept { return cause_; }

  private:
    explicit reply(reply_kind kind) : kind_(kind) {}
    reply(reply_kind kind, std::string text) : kind_(kind), text_(std::move(text)) {}

    reply_kind kind_ = reply_kind::nil;
    errc cause_ = errc::no_reply;
    std::int64_t integer_ = 0;
    std::string text_;
    std::shared_ptr<const std::string> said_;  // null: the text
    std::vector<reply> elements_;

    // What the last array that ended on this thread was made of, so that a lock that is handed round needs no
    // memory each time. Replies may end after it, when a thread does.
    struct spare;
};

/// The server's replies to a write, and to the WAIT that was sent right behind it.
struct acknowledged_reply {
    reply answer;
    reply replicated;
};

namespace detail {
/// Returns: the text behind `name` in [name, value, name, value, ...]; none: it is not there.
inline std::optional<std::string_view> value_of(const reply& pairs, std::string_view name) noexcept {
    const auto& all = pairs.elements();
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
        if (all[i].text() == name) return all[i + 1].text();
    }
    return std::nullopt;
}
}  // namespace detail

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/reply_impl.hpp>
#endif
