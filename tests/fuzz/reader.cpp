// Fuzzes hiredis/reply_reader.hpp: an input is a server's bytes, behind one that says in
// what pieces they come.
//
// Checks: whatever the pieces, the same replies come out, in order, up to the same failure; each is what a
// parser of this file (RESP2) makes of the same bytes; nothing follows a failure; an error text is printable
// and short; the caps on a reply's bytes, elements and depth hold.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <distlock/hiredis/reply_reader.hpp>

#include "fuzz.hpp"

namespace {

using distlock::errc;
using distlock::reply;
using distlock::reply_kind;
using distlock::detail::reply_reader;
using fuzz::must;

struct outcome {
    std::vector<reply> replies;
    errc failure{};
};

outcome read(std::string_view bytes, unsigned pieces) {
    reply_reader reader;
    outcome out;
    unsigned random = pieces * 2654435761U + 1U;
    const std::size_t longest = pieces * std::size_t{8} + bytes.size() / 256;
    while (!bytes.empty()) {
        random ^= random << 13U;
        random ^= random >> 17U;
        random ^= random << 5U;
        const std::size_t size = pieces == 0 ? 16384 : 1 + random % longest;
        reader.feed(bytes.substr(0, size));
        bytes.remove_prefix(std::min(size, bytes.size()));
        while (auto made = reader.next()) out.replies.push_back(*std::move(made));
        if (reader.failure() != errc{}) break;
    }
    out.failure = reader.failure();
    must(out.failure == errc{} || !reader.next(), "nothing follows a failure");
    return out;
}

bool same(const reply& a, const reply& b) {
    return a.kind() == b.kind() && a.text() == b.text() && a.number() == b.number() &&
           std::equal(a.elements().begin(), a.elements().end(), b.elements().begin(), b.elements().end(),
                      same);
}

// RESP2, as the specification has it.
class parser {
  public:
    explicit parser(std::string_view bytes) : rest_(bytes) {}

    // Returns: the next whole reply; none where there is none or where the bytes are no RESP2.
    std::optional<reply> next(int depth = 0) {
        const auto end = rest_.find("\r\n");
        if (end == std::string_view::npos || depth > 12) return std::nullopt;
        const char mark = rest_[0];
        const auto line = rest_.substr(1, end - 1);
        rest_.remove_prefix(end + 2);
        if (mark == '+') return reply::status(std::string(line));
        if (mark == '-') return reply::error(distlock::detail::printable(line));
        const auto value = number(line);
        if (!value) return std::nullopt;
        if (mark == ':') return reply::integer(*value);
        if (mark != '$' && mark != '*') return std::nullopt;
        if (*value == -1) return reply::nil();
        if (*value < 0) return std::nullopt;
        const auto size = static_cast<std::size_t>(*value);
        if (mark == '$') {
            if (rest_.size() < 2 || size > rest_.size() - 2) return std::nullopt;
            const std::string text(rest_.substr(0, size));
            rest_.remove_prefix(size + 2);
            return reply::string(text);
        }
        std::vector<reply> elements;
        while (elements.size() < size) {
            auto one = next(depth + 1);
            if (!one) return std::nullopt;
            elements.push_back(*std::move(one));
        }
        return reply::array(std::move(elements));
    }

  private:
    static std::optional<std::int64_t> number(std::string_view digits) {
        std::int64_t value = 0;
        if (digits.starts_with('+')) digits.remove_prefix(1);
        const auto stop = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (stop.ec != std::errc{} || stop.ptr != digits.data() + digits.size()) return std::nullopt;
        return value;
    }

    std::string_view rest_;
};

std::size_t size_of(const reply& r) {
    std::size_t size = r.text().size();
    for (const reply& one : r.elements()) size += size_of(one);
    return size;
}

void check_caps(const reply& r, int depth) {
    must(r.elements().size() <= 1024, "no array is longer than 1024 elements");
    must(depth <= 4 || !r.is(reply_kind::array), "no reply is nested deeper than four arrays");
    if (r.is(reply_kind::error)) fuzz::fit_for_a_message(r.text(), 203);
    for (const reply& one : r.elements()) check_caps(one, depth + 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    const unsigned pieces = in.byte();
    // 2: a lot, so that the cap is met; 3: many elements.
    std::string bytes;
    for (const char c : in.rest()) {
        if (c == '\x02') {
            bytes.append(5000, 'x');
        } else if (c == '\x03') {
            for (int i = 0; i < 300; ++i) bytes += ":1\r\n";
        } else {
            bytes += c;
        }
    }
    if (bytes.size() > 100'000) return 0;
    const outcome whole = read(bytes, 0);
    const outcome split = read(bytes, pieces);
    must(std::equal(whole.replies.begin(), whole.replies.end(), split.replies.begin(), split.replies.end(),
                    same),
         "the pieces do not matter", bytes);
    must((whole.failure == errc{}) == (split.failure == errc{}), "the pieces do not matter to a failure",
         bytes);
    parser reference(bytes);
    for (const reply& one : whole.replies) {
        const auto right = reference.next();
        must(right.has_value(), "no reply is made of what is none", bytes);
        must(same(one, *right), "a reply is what was sent", bytes);
        must(size_of(one) <= 64 * 1024, "no reply is longer than 64 KiB");
        check_caps(one, 0);
    }
    if (whole.failure == errc{}) {
        const auto more = reference.next();
        must(!more, "what is a reply comes out", bytes);
    }
    return 0;
}
