// Who we are, in a text that is kept beside a lock for people who ask who holds it.
//
//   std::string describe_owner(std::string_view label);     // "<host>\n<process id>\n<label>"
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unistd.h>

#include <distlock/detail/process.hpp>

namespace distlock {

/// Returns: host name, process id and `label`, a line each; the label comes last and may hold any bytes.
inline std::string describe_owner(std::string_view label) {
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
    std::string text = host.data();
    text += '\n';
    text += std::to_string(detail::current_process());
    text += '\n';
    text += label;
    return text;
}

}  // namespace distlock
