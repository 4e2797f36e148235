// The findings of an examination on what the user may do, and the cost of what it may not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/key.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/examination_questions.hpp>
#include <distlock/wire/examined.hpp>

namespace distlock::detail {

// As an ACL writes a name that has characters of its patterns.
inline std::string escape_pattern(std::string_view name) {
    std::string made;
    for (const char c : name) {
        if (std::string_view("*?[]^\\").find(c) != std::string_view::npos) made += '\\';
        made += c;
    }
    return made;
}

/// Returns: what an ACL must allow: the command, or its key or channel where the server refuses that.
inline std::string missing_permission(const asked_for::need& of, bool about_name, const std::string& prefix) {
    if (!about_name) return "+" + std::string(of.name);
    const auto uses = [&](std::string_view name) { return of.words.find(name) != std::string_view::npos; };
    // A name with a hash tag gives it to the keys beside it, and to its channel.
    const auto tag = hash_tag(prefix);
    const bool tagged = tag.size() != prefix.size();
    const std::string names = escape_pattern(prefix) + "*";
    if (uses("$C")) {
        if (of.at == asked_for::need::where::single) return "&distlock:*";
        return "&{" + (tagged ? escape_pattern(tag) : names) + "}:distlock:*";
    }
    if (uses("$K") || tagged) return "~" + names;
    return "~{" + names + "}:distlock:*";
}

/// Effects: adds a finding for each thing that locks cannot do for want of permissions.
inline void add_permissions(const examined& of, std::vector<finding>& findings) {
    using asked_for::needs;
    using verdict = examined::verdict;
    const auto add = [&](severity how, std::string text) {
        findings.push_back({how, "permissions", std::move(text)});
    };
    const auto& prefix = of.options.prefix;
    const auto user = of.user.empty() ? std::string("this user") : "user " + printable(of.user, 60);
    const auto& first = of.needs.front();
    if (prefix.empty() && first.what == verdict::refused && first.about_name) {
        return add(severity::unknown,
                   user +
                       " may not use keys of any name: say what the names of your locks begin with "
                       "(diagnose_options::prefix)");
    }
    std::size_t asked = 0;
    bool sound = true;
    std::string lacks;
    for (const auto& group : asked_for::consequences) {
        std::string refused;
        std::string unknown;
        std::string said;
        for (std::size_t i = 0; i < needs.size(); ++i) {
            if (needs[i].what != group.of || !of.applies(i)) continue;
            const examined::tried& one = of.needs[i];
            asked += one.what == verdict::permitted;
            if (one.what == verdict::refused || one.what == verdict::unsupported) {
                const auto name = " " + printable(missing_permission(needs[i], one.about_name, prefix), 120);
                if (lacks.find(name + " ") != std::string::npos) continue;
                lacks += name + " ";
                refused += name;
                if (said.empty()) said = printable(one.said, 120);
            } else if (one.what == verdict::unanswered ||
                       (one.what == verdict::unasked && !needs[i].only_dry)) {
                unknown += (unknown.empty() ? "" : " ") + std::string(needs[i].name);
            }
        }
        if (!refused.empty()) {
            sound = false;
            add(group.how, user + " lacks" + refused + " (" + said + "): " + std::string(group.text) +
                               "; allow what .github/SECURITY.md lists");
        }
        if (!unknown.empty()) {
            sound = false;
            add(severity::unknown, unknown + " could not be tried");
        }
    }
    if (sound && asked > 0) add(severity::ok, user + " may do all that a mutex needs");
}

}  // namespace distlock::detail
