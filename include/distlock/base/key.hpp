// Lock names and the keys they become on the server.
//
//   class key {
//     explicit key(std::string name);             // the lock's own key: the name, byte for byte
//     const std::string& name() const;
//     std::string sibling(std::string_view kind); // a further key of the same lock, in the same cluster slot
//   };
//   std::string_view hash_tag(std::string_view);  // the part of a key that a cluster hashes
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>

namespace distlock {

/// Returns: the part of `key` a cluster computes the slot from: what stands between the first '{' and the
/// first '}' after it, unless that is empty; else the whole key (Redis Cluster specification, "Hash tags").
constexpr std::string_view hash_tag(std::string_view key) noexcept {
    const auto open = key.find('{');
    if (open == std::string_view::npos) return key;
    const auto close = key.find('}', open + 1);
    if (close == std::string_view::npos || close == open + 1) return key;
    return key.substr(open + 1, close - open - 1);
}

/// The keys beside a lock, as messages name them: see key::sibling().
inline constexpr std::string_view shown_siblings =
    "{name}:distlock:* (name:distlock.:* if the name has a {hash tag})";

/// The longest lock name, in bytes.
inline constexpr std::size_t max_name_size = 4096;

/// The key of a lock and the keys that go with it.
///
/// The lock itself lives under its name as the user gave it, any bytes, so that every other client that uses
/// the same string contends for the same lock. Its siblings end in ":distlock:<kind>"; names of that form are
/// refused, so that no lock's name is another lock's sibling.
class key {
  public:
    /// Throws: error(errc::invalid_name) when `name` is empty, longer than max_name_size, or looks like a
    /// sibling.
    [[gnu::cold]] explicit key(std::string name) : name_(std::move(name)) {
        if (name_.empty()) detail::throw_error(errc::invalid_name, {"the lock name is empty"});
        if (name_.size() > max_name_size) {
            detail::throw_error(errc::invalid_name, {"the lock name ", detail::printable(name_, 40), " has ",
                                                     name_.size(), " bytes"});
        }
        if (looks_like_sibling(name_)) {
            detail::throw_error(errc::invalid_name,
                                {"the lock name ", detail::printable(name_, 100),
                                 " ends like a sibling key of a lock; give one that does not end in "
                                 ":distlock:<word>"});
        }
    }

    const std::string& name() const noexcept { return name_; }

    /// Returns: whether a key other than this one can be made to share its slot: not for a name with a
    /// '}' but no hash tag.
    bool may_have_siblings() const noexcept {
        return hash_tag(name_).size() != name_.size() || name_.find('}') == std::string::npos;
    }

    /// Preconditions: `kind` is one or more of a-z.
    /// Returns: the key of that kind beside this lock: in the same cluster slot, different from every lock's
    /// name and from every other lock's siblings.
    /// Throws: error(errc::invalid_name) for a name with a '}' but no hash tag: no key other than itself can
    /// be made to share its slot.
    [[gnu::cold]] std::string sibling(std::string_view kind) const {
        if (hash_tag(name_).size() != name_.size()) return detail::concat({name_, tagged_mark, kind});
        if (!may_have_siblings()) {
            detail::throw_error(errc::invalid_name,
                                {"the lock name ", detail::printable(name_, 100),
                                 " has a '}' but no {hash tag}, so no second key can share its slot; write "
                                 "{tag}name, or leave the '}' out"});
        }
        return detail::concat({"{", name_, "}", plain_mark, kind});
    }

    friend bool operator==(const key&, const key&) = default;

  private:
    // Two marks, so that the lock "{a}" (which has a tag) and the lock "a" (which gets one) do not share
    // siblings.
    static constexpr std::string_view plain_mark = ":distlock:";
    static constexpr std::string_view tagged_mark = ":distlock.:";

    static constexpr bool looks_like_sibling(std::string_view name) noexcept {
        const auto kind = name.find_last_not_of("abcdefghijklmnopqrstuvwxyz");
        if (kind == std::string_view::npos || kind + 1 == name.size()) return false;
        const auto stem = name.substr(0, kind + 1);
        return stem.ends_with(plain_mark) || stem.ends_with(tagged_mark);
    }

    std::string name_;
};

}  // namespace distlock
