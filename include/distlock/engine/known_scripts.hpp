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
#include <distlock/wire/script.hpp>

namespace distlock::engine {

/// Thread-safe. A script that it does not know is sent as text; a posted release by one that it knows wrongly
/// is repeated, a moment later.
class known_scripts {
  public:
    bool has(const command& one) const noexcept {
        if (!one.is_script()) return true;
        for (const auto& known : known_) {
            if (known == one.source()) return true;
        }
        return false;
    }

    void note(const command& one, bool has) noexcept {
        if (!one.is_script() || this->has(one) == has) return;
        for (auto& known : known_) {
            const script* before = has ? nullptr : one.source();
            if (known.compare_exchange_strong(before, has ? one.source() : nullptr) && has) return;
        }
    }

    void forget() noexcept {
        for (auto& known : known_) known = nullptr;
    }

  private:
    std::array<std::atomic<const script*>, 16> known_{};  // one too many is sent as text
};

}  // namespace distlock::engine
