// The file descriptors this process has open, and what is set on them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <sys/socket.h>
#include <system_error>

/// Returns: the file descriptors this process has open.
inline std::set<int> open_descriptors() {
    std::set<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const auto target = std::filesystem::read_symlink(entry.path(), gone);
        const bool listing_itself = target.native().starts_with("/proc/");
        if (!gone && !listing_itself) found.insert(std::atoi(entry.path().filename().c_str()));
    }
    return found;
}

/// Returns: the descriptors that are open now and were not among `before`.
inline std::set<int> opened_since(const std::set<int>& before) {
    std::set<int> fresh = open_descriptors();
    for (const int fd : before) fresh.erase(fd);
    return fresh;
}

/// Returns: a socket option's value, -1 when `fd` is no socket.
inline int socket_option(int fd, int level, int option) {
    int value = 0;
    socklen_t size = sizeof value;
    return ::getsockopt(fd, level, option, &value, &size) == 0 ? value : -1;
}
