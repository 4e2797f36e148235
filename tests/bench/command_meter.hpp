// How many commands clients sent to a server, by the server's own statistics.
//
// Both total_commands_processed and INFO commandstats count what scripts call as well (seen on 7.0.15: an
// EVAL with three calls inside counts four). MONITOR tells them apart: it marks what a script calls with
// "lua". So a sample of MONITOR, taken while the clients warm up, says for each command name which share of
// its calls clients sent, and that share of commandstats is counted in the measured time, which MONITOR does
// not disturb. Most names are wholly one or the other.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include <distlock/testing.hpp>

#include "redis_client.hpp"

namespace bench {

class command_meter {
  public:
    explicit command_meter(const distlock::testing::redis_server& server)
        : where_("unix://" + server.socket_path()), client_(where_) {}

    /// Effects: watches what is sent until `deadline`.
    void learn(nanoseconds deadline) {
        seen_.clear();
        redis_client monitor(where_);
        monitor.run({"MONITOR"});
        while (now() < deadline) {
            const auto line = monitor.pushed(deadline);
            if (line && line->str != nullptr) learn(std::string_view(line->str, line->len));
        }
    }

    void begin() { before_ = calls(); }

    /// Returns: how many commands clients sent since begin().
    double sent() {
        double sum = 0;
        for (const auto& [name, count] : calls()) {
            const auto then = before_.find(name);
            const double more = count - (then == before_.end() ? 0 : then->second);
            const auto known = seen_.find(name);
            sum += known == seen_.end() ? more : more * known->second.share();
        }
        return sum;
    }

  private:
    struct senders {
        double clients = 0;
        double scripts = 0;
        double share() const { return clients / (clients + scripts); }
    };

    // 1700000000.123456 [0 127.0.0.1:50000] "SET" "name" ...
    void learn(std::string_view line) {
        const auto from = line.find("] \"");
        if (from == std::string_view::npos) return;
        const bool by_script = line.substr(0, from).ends_with(" lua");
        line.remove_prefix(from + 3);
        std::string name(line.substr(0, line.find('"')));
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        senders& known = seen_[name];
        ++(by_script ? known.scripts : known.clients);
    }

    // cmdstat_client|list:calls=5,usec=... counts as client; what this class sends does not count.
    std::map<std::string, double> calls() {
        const auto r = client_.run({"INFO", "commandstats"});
        std::string_view rest(r->str, r->len);
        std::map<std::string, double> found;
        constexpr std::string_view prefix = "cmdstat_";
        constexpr std::string_view count = ":calls=";
        for (auto at = rest.find(prefix); at != std::string_view::npos; at = rest.find(prefix)) {
            rest.remove_prefix(at + prefix.size());
            const std::string name(rest.substr(0, rest.find_first_of("|:")));
            rest.remove_prefix(rest.find(count) + count.size());
            if (name != "info" && name != "monitor") found[name] += std::atof(rest.data());
        }
        return found;
    }

    std::string where_;
    redis_client client_;
    std::map<std::string, senders> seen_;
    std::map<std::string, double> before_;
};

}  // namespace bench
