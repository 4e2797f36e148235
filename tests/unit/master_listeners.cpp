// Who is told that a connection leads to another server.
#include <memory>

#include <distlock/hiredis/master_listeners.hpp>
#include <distlock/net/master_listener.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace master_listeners_tests {

namespace {

struct counting final : distlock::master_listener {
    void master_changed() noexcept override { ++told; }
    int told = 0;
};

void tell(distlock::detail::master_listeners& all) {
    all.tell([](distlock::master_listener& one) { one.master_changed(); });
}

}  // namespace

TEST_CASE("each listener is told as long as it lives, and one that comes later from then on") {
    distlock::detail::master_listeners all;
    tell(all);
    const auto first = std::make_shared<counting>();
    auto second = std::make_shared<counting>();
    all.add(first);
    all.add(second);
    tell(all);
    CHECK(first->told == 1);
    CHECK(second->told == 1);
    second.reset();
    tell(all);
    const auto third = std::make_shared<counting>();
    all.add(third);
    tell(all);
    CHECK(first->told == 3);
    CHECK(third->told == 1);
}

TEST_CASE("one that is gone keeps nobody behind it from being told") {
    distlock::detail::master_listeners all;
    auto first = std::make_shared<counting>();
    const auto second = std::make_shared<counting>();
    all.add(first);
    all.add(second);
    first.reset();
    tell(all);
    CHECK(second->told == 1);
}

TEST_CASE("listeners are told without memory, and a new one takes the place of one that is gone") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    distlock::detail::master_listeners all;
    const auto stays = std::make_shared<counting>();
    all.add(stays);
    all.add(std::make_shared<counting>());
    const auto fresh = std::make_shared<counting>();
    fail_allocation(1);
    all.add(fresh);
    tell(all);
    CHECK_FALSE(allocation_failed());
    fail_allocation(0);
    CHECK(stays->told == 1);
    CHECK(fresh->told == 1);
}

TEST_CASE("a listener may add another while it is told, and that one is told, too") {
    struct adding final : distlock::master_listener {
        void master_changed() noexcept override { all->add(other); }
        distlock::detail::master_listeners* all = nullptr;
        std::shared_ptr<counting> other = std::make_shared<counting>();
    };
    distlock::detail::master_listeners all;
    const auto one = std::make_shared<adding>();
    one->all = &all;
    all.add(one);
    tell(all);
    CHECK(one->other->told == 1);
}

}  // namespace master_listeners_tests
