// Random words for the commands to a lock's server: keys, tokens, times, fences, tickets and
// messages; most make sense.
//
//   class dice;              // the same throws everywhere
//   class random_words;      // of one lock at a time, with an eye on what the model holds
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "model/simulator/model_server.hpp"

namespace sim {

class dice {
  public:
    explicit dice(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {  // splitmix64
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
    /// Returns: true so many times in a hundred.
    bool percent(std::size_t n) { return below(100) < n; }
    template <class Range>
    const auto& of(const Range& values) {
        return values[below(std::size(values))];
    }

  private:
    std::uint64_t state_;
};

class random_words {
  public:
    using wall = model_server::wall;

    explicit random_words(std::uint64_t seed) : dice_(seed) {}

    /// Effects: the words that follow are about one of three locks, as `model` has it at `now`.
    void look_at(const model_server& model, wall now) {
        model_ = &model;
        now_ = now;
        lock_ = std::string(1, static_cast<char>('a' + dice_.below(3)));
    }

    std::string key(std::string_view role) const {
        return role == "lock" ? lock_ : "{" + lock_ + "}:" + std::string(role);
    }
    std::string K() const { return key("lock"); }
    std::string Q() const { return key("queue"); }
    std::string F() const { return key("fence"); }
    std::string O() const { return key("owner"); }
    std::string any_key() {
        constexpr std::array<std::string_view, 4> roles{"lock", "queue", "fence", "owner"};
        return dice_.percent(1) ? "" : key(dice_.of(roles));
    }
    // This key, or seldom another.
    std::string mostly(const std::string& which) { return dice_.percent(4) ? any_key() : which; }

    std::string token() {
        constexpr std::array<std::string_view, 4> tokens{
            "00000000000000000000000000000001", "0123456789abcdef0123456789abcdef",
            "fedcba9876543210fedcba9876543210", "0123456789ABCDEF0123456789abcdef"};
        constexpr std::array<std::string_view, 5> absurd{"", "x", "0", "0123456789abcdef0123456789abcde",
                                                         "0123456789abcdef0123456789abcdef0"};
        if (dice_.percent(45)) {
            if (auto held = model_->get(K(), now_)) return *held;
        }
        return std::string(dice_.percent(3) ? dice_.of(absurd) : dice_.of(tokens));
    }
    std::string lease() {
        constexpr std::array<std::string_view, 14> sensible{"1",    "2",    "3",    "10",   "100",
                                                            "500",  "1000", "1999", "2000", "2001",
                                                            "3999", "4000", "5000", "30000"};
        constexpr std::array<std::string_view, 26> absurd{"0",
                                                          "-1",
                                                          "-100",
                                                          "",
                                                          "abc",
                                                          "1.5",
                                                          "0x10",
                                                          " 7",
                                                          "7 ",
                                                          "007",
                                                          "+7",
                                                          "-0",
                                                          "1e3",
                                                          "nan",
                                                          "inf",
                                                          "-inf",
                                                          "9007199254740993",
                                                          "9223370000000000000",
                                                          "9223372036854775807",
                                                          "9223372036854775808",
                                                          "-9223372036854775808",
                                                          "99999999999999999999",
                                                          "0x",
                                                          "1x",
                                                          ".5",
                                                          "4611686018427387904"};
        return std::string(dice_.percent(7) ? dice_.of(absurd) : dice_.of(sensible));
    }
    std::string life() {
        constexpr std::array<std::string_view, 4> lives{"0", "3600000", "5000", "100"};
        return dice_.percent(8) ? lease() : std::string(dice_.of(lives));
    }
    std::string owner() { return dice_.percent(40) ? "" : "somebody on host 7"; }
    std::string mode() {
        constexpr std::array<std::string_view, 4> modes{"try", "join", "join", "last"};
        return dice_.percent(2) ? "elsewhere" : std::string(dice_.of(modes));
    }
    std::string number() {
        constexpr std::array<std::string_view, 20> numbers{"0",
                                                           "1",
                                                           "2",
                                                           "3",
                                                           "7",
                                                           "-1",
                                                           "-2",
                                                           "9223372036854775807",
                                                           "9223372036854775806",
                                                           "-9223372036854775808",
                                                           "9007199254740993",
                                                           "12.5",
                                                           "007",
                                                           " 1",
                                                           "abc",
                                                           "",
                                                           "nan",
                                                           "1e2",
                                                           "0x3",
                                                           "9999999999999999999999"};
        return std::string(dice_.percent(80) ? numbers[dice_.below(5)] : dice_.of(numbers));
    }
    std::string fence() {
        constexpr std::array<std::int64_t, 7> off{
            -1, 0, 1, -1'000'000, 1'000'000, 3'600'000'000, -3'600'000'000};
        if (dice_.percent(20)) return number();
        return std::to_string(now_.count() + dice_.of(off));
    }
    std::string channel() {
        constexpr std::array<std::string_view, 6> names{"p1", "p2", "p3", "p1", "{a}:distlock:7", "a b 3"};
        return dice_.percent(2) ? token() : std::string(dice_.of(names));
    }
    // Of one token the same, mostly: what it wants goes by its last digits.
    std::string ticket(const std::string& of) {
        if (of.size() < 2 || dice_.percent(10)) return loose_ticket(of);
        constexpr std::array<std::string_view, 4> leases{"1000", "2000", "3999", "30000"};
        constexpr std::array<std::string_view, 3> lives{"0", "3600000", "5000"};
        const auto by = static_cast<unsigned char>(of[of.size() - 1] + of[of.size() - 2]);
        const std::string name = "p" + std::to_string(1 + by % 3);
        return of + " " + std::string(leases[by % 4]) + " " + std::string(lives[by % 3]) +
               (by % 5 == 0 ? " s" : " p") + std::to_string(name.size()) + " " + name +
               (by % 2 == 0 ? "" : "somebody 7");
    }
    std::string loose_ticket(const std::string& of) {
        constexpr std::array<std::string_view, 5> absurd{"", " ", "x", "0123456789abcdef0123456789abcdef",
                                                         "0123456789abcdef0123456789abcdef 1 2 p9 p1"};
        if (dice_.percent(20)) return std::string(dice_.of(absurd));
        const auto name = channel();
        std::string text = of + " " + lease() + " " + life() + (dice_.percent(80) ? " p" : " s") +
                           std::to_string(name.size()) + " " + name + owner();
        if (dice_.percent(10)) text.erase(dice_.below(text.size()), 1 + dice_.below(3));
        return text;
    }
    // Of a ticket: about now.
    std::string score() {
        constexpr std::array<std::int64_t, 7> off{
            -1, 0, 1, -1'000'000, 1'000'000, 3'600'000'000, -3'600'000'000};
        constexpr std::array<std::string_view, 8> others{"0", "1", "2.5", "-3", "inf", "-inf", "7", "abc"};
        if (dice_.percent(15)) return std::string(dice_.of(others));
        return std::to_string(now_.count() + dice_.of(off));
    }
    std::string any_value() {
        switch (dice_.below(4)) {
            case 0:
                return token();
            case 1:
                return number();
            case 2:
                return fence();
            default:
                return ticket(token());
        }
    }

    dataset::sorted waiting() const { return model_->sorted_set(Q(), now_); }

  protected:
    wall now() const { return now_; }

    dice dice_;

  private:
    const model_server* model_ = nullptr;
    wall now_{};
    std::string lock_;
};

}  // namespace sim
