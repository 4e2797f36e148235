// Fuzzes base/key.hpp and what every dialect makes of a name: an input is two names, the second from bytes
// of its own or made of the first and the marks that keys beside a lock have. The first three bytes say how,
// and in which dialect.
//
// Checks: a name is refused with a message that is fit to be shown, or it has keys; those are taken from the
// commands themselves. The lock's own key is the name, byte for byte (behind its prefix); all keys of a lock
// are in one cluster slot, by a CRC16 of this file; no key of one name is a key of another, within a dialect.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/interop.hpp>
#include <distlock/wire/handoff.hpp>

#include "fuzz.hpp"

namespace {

using distlock::command;
using distlock::token;
using fuzz::must;
using keys = std::set<std::string>;

// Redis Cluster specification, appendix A: CRC16-CCITT (XMODEM).
unsigned slot_of(std::string_view key) {
    const auto open = key.find('{');
    if (open != std::string_view::npos) {
        const auto inside = key.substr(open + 1);
        const auto close = inside.find('}');
        if (close != std::string_view::npos && close > 0) key = inside.substr(0, close);
    }
    unsigned crc = 0;
    for (const char c : key) {
        crc ^= static_cast<unsigned>(static_cast<unsigned char>(c)) << 8U;
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000U) != 0 ? (crc << 1U) ^ 0x1021U : crc << 1U;
        crc &= 0xffffU;
    }
    return crc % 16384;
}

// Effects: adds the keys the server is told of; of a plain command the first argument.
void collect(const command& cmd, keys& into) {
    const auto argv = cmd.argv();
    if (argv[0] != "EVALSHA" && argv[0] != "EVAL") {
        into.emplace(argv[1]);
    } else {
        std::size_t count = 0;
        std::from_chars(argv[2].data(), argv[2].data() + argv[2].size(), count);
        for (std::size_t i = 0; i < count; ++i) into.emplace(argv[3 + i]);
    }
    must(into.count(std::string(cmd.routing_key())) == 1, "a command is routed by a key of its own",
         cmd.routing_key());
}

template <class Dialect>
keys keys_of(const std::string& name, const distlock::lock_options& options) {
    keys all;
    try {
        const Dialect lock(name, options);
        const token owner = token::from("0123456789abcdef0123456789abcdef");
        collect(lock.acquire(owner), all);
        collect(lock.look(owner), all);
        collect(lock.renew(owner), all);
        collect(lock.release(owner), all);
        collect(lock.release_minimal(owner), all);
        if constexpr (requires { lock.hands_over(); }) {
            if (lock.hands_over()) collect(lock.enter(owner, distlock::enter_mode::join), all);
        }
        const typename Dialect::inspector about(name);
        collect(about.inspect(), all);
        collect(about.force_release(), all);
        collect(about.forced(), all);
        must(about.name() == lock.name(), "an operator sees the key that the owner has", lock.name());
        must(all.count(lock.name()) == 1, "the lock's own key is among its keys", lock.name());
    } catch (const distlock::error& e) {
        must(e.code() == distlock::errc::invalid_name, "a name that is refused is invalid_name", e.what());
        fuzz::fit_for_a_message(e.what(), 400);
        all.clear();
    }
    return all;
}

// What may be refused, said once more: nothing, too much, or what looks like a key beside a lock.
bool refusable(const std::string& name, const std::string& key) {
    const auto kind = key.find_last_not_of("abcdefghijklmnopqrstuvwxyz") + 1;
    const std::string_view stem = std::string_view(key).substr(0, kind);
    const bool like_a_sibling =
        kind < key.size() && (stem.ends_with(":distlock:") || stem.ends_with(":distlock.:"));
    return name.empty() || key.size() > 4096 || like_a_sibling;
}

// Whether the server could put a second key into the slot of this one.
bool can_be_shared(const std::string& key) {
    const auto open = key.find('{');
    const auto close = open == std::string::npos ? open : key.find('}', open);
    const bool tagged = close != std::string::npos && close > open + 1;
    return tagged || key.find('}') == std::string::npos;
}

template <class Dialect>
void check(const std::string& one, const std::string& other, const std::string& prefix, bool needs_siblings,
           bool one_slot, const distlock::lock_options& options) {
    const keys ours = keys_of<Dialect>(one, options);
    const std::string key = prefix + one;
    if (ours.empty()) {
        must(refusable(one, key) || (needs_siblings && !can_be_shared(key)), "no name is refused for nothing",
             one);
        return;
    }
    must(!refusable(one, key), "a name that cannot be a lock is refused", one);
    must(ours.count(key) == 1, "the lock's own key is its name", one);
    for (const std::string& each : ours) {
        must(!one_slot || slot_of(each) == slot_of(key), "all keys of a lock are in one slot", each);
        must(slot_of(distlock::hash_tag(each)) == slot_of(each) ||
                 distlock::hash_tag(each).size() < each.size(),
             "the hash tag is what a cluster takes for it", each);
    }
    if (one == other) return;
    for (const std::string& each : keys_of<Dialect>(other, options))
        must(ours.count(each) == 0, "no two locks have a key in common", each);
}

// A name that is like another one.
std::string made_of(const std::string& name, std::uint8_t how) {
    static constexpr std::array<const char*, 7> kinds{"fence", "owner", "queue", "q", "forced", "mine", ""};
    const std::string kind = kinds[how / 8 % kinds.size()];
    switch (how % 8) {
        case 0:
            return "{" + name + "}:distlock:" + kind;
        case 1:
            return name + ":distlock.:" + kind;
        case 2:
            return name + ":distlock:" + kind;
        case 3:
            return "{" + name + "}";
        case 4:
            return name.empty() ? name : name.substr(1);
        case 5:
            return name + '\0' + kind;
        case 6:
            return "{" + name + "}:distlock.:" + kind + "x";
        default:
            return name.substr(0, name.size() / 2) + "}" + name.substr(name.size() / 2);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input in(data, size);
    const auto dialect = in.byte();
    const auto how = in.byte();
    const auto length = in.byte();
    // 0x80: a long name, so that the limit is met.
    std::string one = in.text(how >= 0x80 ? std::size_t{length} : 1U + length % 32U);
    if (how >= 0xf8) one.append(4096 - std::min<std::size_t>(one.size(), 4095) - length % 2U, 'x');
    const std::string left = in.rest();
    const std::string other = left.empty() ? made_of(one, how) : left;
    static const std::array<distlock::lock_options, 3> kinds{
        {{}, {.fencing = true}, {.fencing = true, .owner_info = "me"}}};
    const auto& options = kinds[dialect / 6U % kinds.size()];
    const bool beside = options.fencing;
    switch (dialect % 6U) {
        case 0:
            check<distlock::handoff>(one, other, "", beside, true, options);
            break;
        case 1:
            check<distlock::plain>(one, other, "", beside, true, options);
            break;
        case 2:
            check<distlock::redis_semaphore>(one, other, "mutex:", beside, true, options);
            break;
        case 3:
            check<distlock::go_zero>(one, other, "", beside, true, options);
            break;
        case 4:
            check<distlock::getset>(one, other, "", true, true, options);
            break;
        default:  // two keys in two slots: as its client has it
            check<distlock::python_redis_lock>(one, other, "lock:", beside, false, options);
    }
    return 0;
}
