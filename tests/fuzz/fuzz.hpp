// What the fuzz targets share: an input read piece by piece, and claims that end the program
// when they do not hold.
//
//   class input;                        // the bytes of one run: byte(), number(), text(n), rest(), empty()
//   must(holds, claim, detail = "")     // aborts, and libFuzzer writes the input down
//   fit_for_a_message(text, longest)    // printable ASCII, and not too long
//   holds_canary(text), password_canary // no message may hold it, nor half of it
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace fuzz {

/// What an input lacks at its end is zero or empty.
class input {
  public:
    input(const std::uint8_t* data, std::size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

    bool empty() const noexcept { return left_.empty(); }

    std::uint8_t byte() {
        if (left_.empty()) return 0;
        const auto value = static_cast<std::uint8_t>(left_.front());
        left_.remove_prefix(1);
        return value;
    }

    /// Returns: eight bytes as a number, the lowest first.
    std::uint64_t number() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 8) value |= std::uint64_t{byte()} << shift;
        return value;
    }

    std::string text(std::size_t size) {
        const std::string taken(left_.substr(0, size));
        left_.remove_prefix(taken.size());
        return taken;
    }
    std::string rest() { return text(left_.size()); }

  private:
    std::string_view left_;
};

inline void must(bool holds, const char* claim, std::string_view detail = {}) {
    if (holds) return;
    std::fprintf(stderr, "\nfuzz: does not hold: %s\n      ", claim);
    for (const char c : detail.substr(0, 2000)) std::fputc(c >= ' ' && c <= '~' ? c : '?', stderr);
    std::fputc('\n', stderr);
    std::abort();
}

inline void fit_for_a_message(std::string_view text, std::size_t longest) {
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
    must(printable, "a message is printable", text);
    must(text.size() <= longest, "a message is short", text);
}

inline const std::string password_canary = "hunter2-canary";

inline bool holds_canary(std::string_view text) {
    return text.find("hunter2") != std::string_view::npos || text.find("-canary") != std::string_view::npos;
}

}  // namespace fuzz
