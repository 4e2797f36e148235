// What is no dialect, and that the compiler says which part is missing.
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <distlock/distlock.hpp>
#include <distlock/interop.hpp>

using distlock::acquire_outcome;
using distlock::command;
using distlock::enter_mode;
using distlock::lock_options;
using distlock::reply;
using distlock::token;

struct silent_server {
    distlock::reply execute(const distlock::command&) { return {}; }
};
silent_server server;

/// A dialect of one's own; what a case adds to it hides what was right.
struct own : distlock::plain {
    using distlock::plain::plain;
};

// CASE_no_dialect: describes_a_lock
#if defined(CASE_no_dialect)
struct stranger {};
distlock::mutex<silent_server, stranger> orders{server, "orders:42"};
#elif defined(CASE_no_dialect_ok)
distlock::mutex<silent_server, own> orders{server, "orders:42"};
#endif

// CASE_recursive_no_dialect: describes_a_lock
#if defined(CASE_recursive_no_dialect)
struct stranger {};
distlock::recursive_mutex<silent_server, stranger> orders{server, "orders:42"};
#elif defined(CASE_recursive_no_dialect_ok)
distlock::recursive_mutex<silent_server, own> orders{server, "orders:42"};
#endif

// CASE_made_of_nothing: a dialect is made of a name and the options
#if defined(CASE_made_of_nothing)
struct mine : own {
    mine() : own("orders", {}) {}
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_made_of_nothing_ok)
static_assert(distlock::check_dialect<own>());
#endif

// CASE_name_by_value: a dialect says what its lock is
#if defined(CASE_name_by_value)
struct mine : own {
    using own::own;
    std::string name() const { return "orders"; }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_name_by_value_ok)
struct mine : own {
    using own::own;
    const std::string& name() const { return own::name(); }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_look_says_yes: a dialect acquires
#if defined(CASE_look_says_yes)
struct mine : own {
    using own::own;
    bool read_look(const reply&) const { return true; }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_look_says_yes_ok)
struct mine : own {
    using own::own;
    acquire_outcome read_look(const reply& r) const { return own::read_look(r); }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_no_acquire_is_script: a dialect acquires
#if defined(CASE_no_acquire_is_script)
struct mine : own {
    using own::own;
    bool acquire_is_script() const = delete;
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_no_acquire_is_script_ok)
struct mine : own {
    using own::own;
    bool acquire_is_script() const { return false; }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_no_minimal_release: a dialect renews and releases
#if defined(CASE_no_minimal_release)
struct mine : own {
    using own::own;
    command release_minimal(const token&) const = delete;
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_no_minimal_release_ok)
struct mine : own {
    using own::own;
    command release_minimal(const token& owner) const { return release(owner); }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_no_inspector: a dialect has a type .inspector
#if defined(CASE_no_inspector)
struct mine : own {
    using own::own;
    struct inspector {
        explicit inspector(std::string) {}
    };
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_no_inspector_ok)
struct mine : own {
    using own::own;
    struct inspector : distlock::plain_inspector {
        using distlock::plain_inspector::plain_inspector;
    };
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_local_fences_say_nothing: allows_local_fences must be
#if defined(CASE_local_fences_say_nothing)
struct mine : own {
    using own::own;
    void allows_local_fences() const {}
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_local_fences_say_nothing_ok)
struct mine : own {
    using own::own;
    bool allows_local_fences() const { return false; }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_local_fences_not_const: allows_local_fences must be
#if defined(CASE_local_fences_not_const)
struct mine : own {
    using own::own;
    bool allows_local_fences() { return false; }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_local_fences_not_const_ok)
struct mine : own {
    using own::own;
    bool allows_local_fences() const { return false; }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_shared_not_const: is_shared must be
#if defined(CASE_shared_not_const)
struct mine : own {
    using own::own;
    bool is_shared() { return true; }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_shared_not_const_ok)
struct mine : own {
    using own::own;
    bool is_shared() const { return true; }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_renew_for_a_number: renew for a time must be
#if defined(CASE_renew_for_a_number)
struct mine : own {
    using own::own;
    command renew(const token& owner) const { return own::renew(owner); }
    command renew(const token& owner, long) const { return own::renew(owner); }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_renew_for_a_number_ok)
struct mine : own {
    using own::own;
    command renew(const token& owner) const { return own::renew(owner); }
    auto renew(const token& owner, auto milliseconds) const {
        return milliseconds.empty() ? own::renew(owner) : own::renew(owner, milliseconds);
    }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_unqueued_without_room: acquire_unqueued must be
#if defined(CASE_unqueued_without_room)
struct mine : own {
    using own::own;
    std::optional<command> acquire_unqueued(const token& owner, std::string_view) const {
        return acquire(owner);
    }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_unqueued_without_room_ok)
struct mine : own {
    using own::own;
    std::optional<command> acquire_unqueued(const token& owner, std::span<char>) const {
        return acquire(owner);
    }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_exchange_not_const: exchange must be
#if defined(CASE_exchange_not_const)
struct mine : own {
    using own::own;
    command exchange(const token& owner, const token&) { return look(owner); }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_exchange_not_const_ok)
struct mine : own {
    using own::own;
    command exchange(const token& owner, const token&) const { return look(owner); }
};
static_assert(distlock::check_dialect<mine>());
#endif

// CASE_queue_without_messages: a dialect with .enter. queues waiters
#if defined(CASE_queue_without_messages)
struct mine : own {
    using own::own;
    command enter(const token& owner, enter_mode) const { return look(owner); }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_queue_without_messages_ok)
struct mine : own {
    mine(std::string name, const lock_options& options, std::string_view = {}) : own(name, options) {}
    bool hands_over() const { return false; }
    command enter(const token& owner, enter_mode) const { return look(owner); }
    acquire_outcome read_enter(const reply& r) const { return read_look(r); }
    static std::optional<distlock::handover> read_message(std::string_view) { return {}; }
    static std::string_view name_in(std::string_view) { return {}; }
};
static_assert(distlock::check_dialect<mine>());
static_assert(distlock::queueing_dialect<mine>);
#endif

// CASE_channel_of_a_number: channel must be .std::string_view channel
#if defined(CASE_channel_of_a_number)
struct mine : own {
    using own::own;
    int channel() const { return 7; }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_channel_of_a_number_ok)
struct mine : own {
    using own::own;
    std::string channel() const { return "news"; }
};
static_assert(distlock::check_dialect<mine>());
static_assert(distlock::telling_dialect<mine>);
#endif

// CASE_queues_and_tells: not both
#if defined(CASE_queues_and_tells)
struct mine : distlock::handoff {
    using distlock::handoff::handoff;
    std::string channel() const { return "news"; }
};
static_assert(distlock::check_dialect<mine>());
#elif defined(CASE_queues_and_tells_ok)
struct mine : distlock::handoff {
    using distlock::handoff::handoff;
};
static_assert(distlock::check_dialect<mine>());
#endif
