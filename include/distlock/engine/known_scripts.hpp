// The scripts that a server is known to have.
//
//   class known_scripts {
//     bool has(const command&) const noexcept;          // EVALSHA will do
//     void note(const command&, bool has) noexcept;
//     void forget() noexcept;                           // another server took its place
//   };
#pragma once

#include <array>
#include <atomic>

#include <distlock/wire/command.hpp>

namespace distlock::engine {

/// Thread-safe. A script that it does not know is sent as text; one that it knows wrongly costs a round trip.
class known_scripts {
  public:
    /// Preconditions: the command is no script, or was not given its body.
    bool has(const command& one) const noexcept {
        if (!one.is_script()) return true;
        for (const auto& known : known_) {
            if (known == id_of(one)) return true;
        }
        return false;
    }

    /// Preconditions: as above.
    void note(const command& one, bool has) noexcept {
        if (!one.is_script() || this->has(one) == has) return;
        for (auto& known : known_) {
            const char* before = has ? nullptr : id_of(one);
            if (known.compare_exchange_strong(before, has ? id_of(one) : nullptr) && has) return;
        }
    }

    void forget() noexcept {
        for (auto& known : known_) known = nullptr;
    }

  private:
    // A script's digest stands in one place for ever.
    static const char* id_of(const command& one) noexcept { return one.argv()[1].data(); }

    std::array<std::atomic<const char*>, 8> known_{};  // more than releases have
};

}  // namespace distlock::engine
