// A Sentinel that says what a test tells it to.
//
//   class fake_sentinel {
//     fake_sentinel(port of the master, epoch, others = {});    // port 0: it knows no master
//     void name(port, epoch);                                   // from now on
//     void announce(name of a master = "m");                    // +switch-master
//     void hang_up();                                           // on those who listen now
//     void slow_down(milliseconds);                             // from now on each answer takes so long
//     std::uint16_t port() const;
//     const fake_server& server() const;                        // what was sent to it
//   };
//   std::string uri_of(sentinels..., rest);
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/fake_server.hpp"

class fake_sentinel {
  public:
    fake_sentinel(std::uint16_t master, int epoch, std::vector<std::uint16_t> others = {})
        : master_(master),
          epoch_(epoch),
          others_(std::move(others)),
          server_([this](fake_server::peer& p) { serve(p); }) {}

    void name(std::uint16_t master, int epoch) {
        epoch_ = epoch;
        master_ = master;
    }
    /// Effects: tells those who listen that the master of that name changed, and those who will.
    void announce(const std::string& of = "m") {
        const std::lock_guard guard(lock_);
        announced_.push_back(of);
    }
    void hang_up() { ++hung_up_; }
    void slow_down(std::chrono::milliseconds by) { answers_after_ = by; }
    std::uint16_t port() const { return server_.port(); }
    const fake_server& server() const { return server_; }

  private:
    static std::string bulk(const std::string& text) {
        return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
    }
    static std::string array(const std::vector<std::string>& texts) {
        std::string all = "*" + std::to_string(texts.size()) + "\r\n";
        for (const auto& one : texts) all += bulk(one);
        return all;
    }

    void serve(fake_server::peer& p) const {
        const int before = hung_up_;
        while (const auto cmd = p.next_command()) {
            const auto pause = answers_after_.load();
            if (pause.count() > 0 && !p.nap(pause)) return;
            if (!p.send(answer(*cmd))) return;
            if (cmd->at(0) == "SUBSCRIBE") return announce_to(p, before);
        }
    }
    void announce_to(fake_server::peer& p, int before) const {
        using namespace std::chrono_literals;
        for (std::size_t said = 0; hung_up_ == before && p.nap(1ms);) {
            const auto of = announcement(said);
            if (!of) continue;
            if (!p.send(array({"message", "+switch-master", *of + " 127.0.0.1 1 127.0.0.1 2"}))) return;
            ++said;
        }
    }
    std::optional<std::string> announcement(std::size_t number) const {
        const std::lock_guard guard(lock_);
        if (number == announced_.size()) return std::nullopt;
        return announced_[number];
    }
    std::string answer(const fake_server::words& cmd) const {
        if (cmd[0] != "SENTINEL") return "+OK\r\n";
        if (cmd[1] == "MYID") return bulk("id-of-" + std::to_string(port()));
        if (master_ == 0)
            return cmd[1] == "GET-MASTER-ADDR-BY-NAME" ? "*-1\r\n" : "-ERR No such master with that name\r\n";
        if (cmd[1] == "GET-MASTER-ADDR-BY-NAME") return array({"127.0.0.1", std::to_string(master_)});
        if (cmd[1] == "MASTER") return array({"name", cmd[2], "config-epoch", std::to_string(epoch_)});
        std::string all = "*" + std::to_string(others_.size()) + "\r\n";
        for (const auto other : others_) {
            const auto number = std::to_string(other);
            all += array({"ip", "127.0.0.1", "port", number, "runid", "id-of-" + number});
        }
        return all;
    }

    std::atomic<std::uint16_t> master_;
    std::atomic<int> epoch_;
    std::atomic<int> hung_up_{0};
    std::atomic<std::chrono::milliseconds> answers_after_{};
    mutable std::mutex lock_;
    std::vector<std::string> announced_;  // with the mutex
    const std::vector<std::uint16_t> others_;
    fake_server server_;  // last: its threads use the others
};

inline std::string sentinel_uri_of(const std::vector<std::uint16_t>& ports, const std::string& login = "",
                                   const std::string& options = "") {
    std::string all = "redis+sentinel://" + login;
    for (std::size_t i = 0; i < ports.size(); ++i)
        all += (i > 0 ? ",127.0.0.1:" : "127.0.0.1:") + std::to_string(ports[i]);
    return all + "/m" + options;
}
