// A server that changes its mind about the connections it has: from then on they get another answer, or none.
//
//   class moody_server {
//     std::string uri() const;                         // with time-outs that no test reaches
//     int accepted() const, commands(word) const, answered() const;
//     void hold(), let_go();  int holding() const;     // the answers to HOLD
//     void change(answer);  // to everything on the present connections; "" for none, or "hang up"
//     void be_full();       // to connections from now on
//     int closed() const, reset() const;               // connections that the client ended so
//   };
#pragma once

#include <atomic>
#include <limits>
#include <mutex>
#include <string>

#include "support/fake_server.hpp"
#include "support/waiting.hpp"

// Answers everything, but HOLD only when it is told to; and on the connections it has by then
// whatever a test wants.
class moody_server {
  public:
    moody_server() : front_([this](fake_server::peer& p) { serve(p); }) {}

    std::string uri() const { return front_.uri("", "?connect_timeout=20s&command_timeout=20s"); }
    int accepted() const { return front_.accepted(); }
    int commands(const std::string& word) const { return front_.commands(word); }

    /// Effects: every HOLD is answered, also those to come.
    void let_go() { hold_ = false; }
    void hold() { hold_ = true; }
    int holding() const { return holding_; }

    /// Effects: on the present connections this is the answer to everything from now on; "" for none, or
    /// "hang up".
    void change(const std::string& answer) {
        const std::lock_guard guard(lock_);
        answer_ = answer;
        changed_below_ = accepted();
    }

    /// Effects: it has no room for connections from now on.
    void be_full() { full_from_ = accepted(); }

    int closed() const { return closed_; }
    int reset() const { return reset_; }
    int answered() const { return answered_; }

  private:
    void serve(fake_server::peer& p) {
        if (p.number() >= full_from_)
            return static_cast<void>(p.send("-ERR max number of clients reached\r\n"));
        while (const auto asked = p.next_command()) {
            if (asked->at(0) == "HOLD") {
                ++holding_;
                eventually([&] { return !hold_; });
                --holding_;
            }
            const std::string answer = answer_for(p.number());
            if (answer == "hang up") break;
            if (!answer.empty() && !p.send(answer)) break;
            ++answered_;
        }
        (p.ended() == fake_server::ending::reset ? reset_ : closed_)++;
    }
    std::string answer_for(int number) const {
        const std::lock_guard guard(lock_);
        return number < changed_below_ ? answer_ : "+OK\r\n";
    }

    mutable std::mutex lock_;
    std::string answer_;
    int changed_below_ = 0;
    std::atomic<int> full_from_{std::numeric_limits<int>::max()};
    std::atomic<bool> hold_{true};
    std::atomic<int> holding_{0};
    std::atomic<int> closed_{0};
    std::atomic<int> reset_{0};
    std::atomic<int> answered_{0};
    fake_server front_;  // last: its threads use the others
};
