// What a server counts: read from its INFO and its list of clients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

/// `server` has command(), as distlock::testing::redis_server.
/// Returns: the number behind `label` in that section of its INFO; 0: it says none.
template <class Server>
long counted(Server& server, const char* section, const std::string& label) {
    const std::string text = server.command({"INFO", section});
    const auto at = text.find(label);
    return at == std::string::npos ? 0 : std::strtol(text.c_str() + at + label.size(), nullptr, 10);
}

/// Returns: how often it has executed a command, in scripts, too; its name in small letters.
template <class Server>
long calls_at(Server& server, const std::string& command) {
    return counted(server, "commandstats", "cmdstat_" + command + ":calls=");
}

/// Returns: how often it has executed a script.
template <class Server>
long scripts_at(Server& server) {
    return calls_at(server, "evalsha") + calls_at(server, "eval");
}

/// Returns: how many sockets it has, but for the one it is asked on.
template <class Server>
std::ptrdiff_t sockets_at(Server& server) {
    const std::string list = server.command({"CLIENT", "LIST"});
    return std::count(list.begin(), list.end(), '\n') - 1;
}
