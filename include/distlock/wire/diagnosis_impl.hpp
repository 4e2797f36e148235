// Findings as text; compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <distlock/detail/separate.hpp>
#include <distlock/wire/diagnosis.hpp>

namespace distlock {

DISTLOCK_INLINE severity diagnosis::worst() const noexcept {
    severity worst = findings_.empty() ? severity::unknown : severity::ok;
    for (const finding& one : findings_) worst = std::max(worst, one.how);
    return worst;
}

DISTLOCK_INLINE const finding* diagnosis::about(std::string_view subject) const noexcept {
    for (const finding& one : findings_) {
        if (one.subject == subject) return &one;
    }
    return nullptr;
}

DISTLOCK_INLINE std::string to_string(const diagnosis& of) {
    std::size_t widest = 0;
    for (const finding& one : of) widest = std::max(widest, one.subject.size());
    std::string all;
    for (const finding& one : of) {
        std::string line(to_string(one.how));
        line.resize(9, ' ');
        line += one.subject;
        line.resize(9 + widest + 2, ' ');
        all += line + one.text + '\n';
    }
    return all;
}

}  // namespace distlock
