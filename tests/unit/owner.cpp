// Who we are, as it is kept beside a lock.
#include <array>
#include <string>
#include <string_view>
#include <unistd.h>

#include <distlock/base/owner.hpp>

#include "support/catch.hpp"
#include "support/in_child.hpp"

namespace owner_tests {

using distlock::describe_owner;
using distlock::owner_label;

namespace {

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string head() { return host_name() + "\n" + std::to_string(::getpid()) + "\n"; }

}  // namespace

TEST_CASE("an owner is a line of host name, a line of process id, and the label") {
    CHECK(describe_owner("night job") == head() + "night job");
    CHECK_FALSE(host_name().empty());
}

TEST_CASE("an owner's label may be empty and may hold any bytes") {
    CHECK(describe_owner("") == head());
    const std::string label("\0\n\r\n\xff\n", 6);
    CHECK(describe_owner(label) == head() + label);
}

TEST_CASE("a child after fork describes itself") {
    const std::string ours = describe_owner("x");
    CHECK(in_child([&] { return describe_owner("x") == head() + "x" && describe_owner("x") != ours; }));
}

TEST_CASE("a label is the text it was made from, byte for byte") {
    CHECK(owner_label().empty());
    CHECK(owner_label().view().empty());
    CHECK(owner_label("").empty());
    CHECK(owner_label(static_cast<const char*>(nullptr)).empty());  // of a variable that is not set
    const std::string text("\0a\n\xff\0", 5);
    CHECK(owner_label(text).view() == text);
    CHECK(owner_label(std::string_view(text)).size() == 5);
    const std::string longest(owner_label::max_size, 'x');
    CHECK(owner_label(longest).view() == longest);
    CHECK_FALSE(owner_label(longest).empty());
}

TEST_CASE("a label of a text that is too long says how long that is, and holds no more than fits") {
    const std::string text = std::string(owner_label::max_size, 'x') + "y";
    const owner_label label(text);
    CHECK(label.size() == owner_label::max_size + 1);
    CHECK(label.view() == std::string(owner_label::max_size, 'x'));
    CHECK_FALSE(label == owner_label(text.substr(0, owner_label::max_size)));
    CHECK(owner_label(std::string(100'000, 'x')).view().size() == owner_label::max_size);
}

TEST_CASE("labels are equal when their texts are") {
    CHECK(owner_label("a") == owner_label(std::string("a")));
    CHECK_FALSE(owner_label("a") == owner_label("b"));
    CHECK_FALSE(owner_label("a") == owner_label(std::string_view("a\0", 2)));
    CHECK_FALSE(owner_label("a") == owner_label());
}

}  // namespace owner_tests
