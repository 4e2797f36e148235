// The description of an owner that is stored beside its lock for inspect(): host, process id and label.
//
//   class owner_label;                                       // a text in an options struct
//   std::string describe_owner(std::string_view label);     // "<host>\n<process id>\n<label>"
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <distlock/detail/concat.hpp>
#include <distlock/detail/system.hpp>

namespace distlock {

/// A short text by value, so that options can be constants.
class owner_label {
  public:
    static constexpr std::size_t max_size = 256;

    constexpr owner_label() = default;
    constexpr owner_label(std::string_view text) : size_(text.size()) {
        std::copy_n(text.begin(), std::min(text.size(), max_size), text_.begin());
    }
    /// A null pointer, as of a variable that is not set, is an empty text.
    constexpr owner_label(const char* text) : owner_label(detail::text_or_none(text)) {}
    owner_label(const std::string& text) : owner_label(std::string_view(text)) {}

    /// Returns: the length of the text it was made from, which is too long when it is more than max_size.
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    /// Returns: the text, or as much of it as there is room for.
    constexpr std::string_view view() const noexcept { return {text_.data(), std::min(size_, max_size)}; }

    friend constexpr bool operator==(const owner_label& a, const owner_label& b) noexcept {
        return a.size_ == b.size_ && a.view() == b.view();
    }

  private:
    std::array<char, max_size> text_{};
    std::size_t size_ = 0;
};

/// Returns: host name, process id and `label`, a line each; the label comes last and may hold any bytes.
inline std::string describe_owner(std::string_view label) {
    return detail::concat({detail::host_name(), "\n", detail::process_number(), "\n", label});
}

}  // namespace distlock
