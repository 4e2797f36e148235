// What is no connection, and that the compiler says which part is missing.
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/distlock.hpp>

// CASE_no_execute: executes_a_command
#if defined(CASE_no_execute)
struct stranger {
    void send(const std::string&) {}
};
stranger s;
distlock::mutex<stranger> orders{s, "orders:42"};
#elif defined(CASE_no_execute_ok)
struct client {
    distlock::reply execute(const distlock::command&) { return {}; }
};
client c;
distlock::mutex<client> orders{c, "orders:42"};
#endif

// CASE_no_execute_deduced: constraints not satisfied
#if defined(CASE_no_execute_deduced)
struct stranger {};
stranger s;
distlock::mutex orders{s, "orders:42"};
#elif defined(CASE_no_execute_deduced_ok)
struct client {
    distlock::reply execute(const distlock::command&) { return {}; }
};
client c;
distlock::mutex orders{c, "orders:42"};
#endif

// CASE_check_no_execute: a connection needs a member .distlock::reply execute
#if defined(CASE_check_no_execute)
struct stranger {};
static_assert(distlock::check_connection<stranger>());
#elif defined(CASE_check_no_execute_ok)
struct client {
    distlock::reply execute(const distlock::command&) { return {}; }
};
static_assert(distlock::check_connection<client>());
#endif

// CASE_wrong_reply: the result type must be exactly distlock::reply
#if defined(CASE_wrong_reply)
struct client {
    bool execute(const distlock::command&) { return true; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_wrong_reply_ok)
auto client = [](const distlock::command&) { return distlock::reply::nil(); };
static_assert(distlock::check_connection<decltype(client)>());
distlock::mutex orders{client, "orders:42"};
#endif

// What the clients below have beside the member that is looked at.
struct executes {
    distlock::reply execute(const distlock::command&) { return {}; }
};

// CASE_wrong_post: post must be .bool post
#if defined(CASE_wrong_post)
struct client : executes {
    void post(const distlock::command&) {}
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_wrong_post_ok)
struct client : executes {
    bool post(const distlock::command&) { return true; }
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::posting_connection<client>);
#endif

// CASE_wrong_command_timeout: command_timeout must be const, and return
#if defined(CASE_wrong_command_timeout)
struct client : executes {
    int command_timeout() const { return 200; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_wrong_command_timeout_ok)
struct client : executes {
    std::chrono::seconds command_timeout() const { return std::chrono::seconds{1}; }
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::timed_connection<client>);
#endif

// CASE_pipeline_returns: pipeline must be .void pipeline
#if defined(CASE_pipeline_returns)
struct client : executes {
    std::vector<distlock::reply> pipeline(std::span<const distlock::command>) { return {}; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_pipeline_returns_ok)
struct client : executes {
    void pipeline(std::span<const distlock::command>, std::span<distlock::reply>) {}
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::pipelining_connection<client>);
#endif

// CASE_pipeline_changes_commands: pipeline must be .void pipeline
#if defined(CASE_pipeline_changes_commands)
struct client : executes {
    void pipeline(std::span<distlock::command>, std::span<distlock::reply>) {}
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_pipeline_changes_commands_ok)
struct client : executes {
    int pipeline() const { return 0; }  // somebody else's idea of one
};
static_assert(distlock::check_connection<client>());
static_assert(!distlock::pipelining_connection<client>);
#endif

// CASE_services_by_pointer: services must be .distlock::service_registry& services
#if defined(CASE_services_by_pointer)
struct client : executes {
    distlock::service_registry* services() { return &services_; }
    distlock::service_registry services_;
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_services_by_pointer_ok)
struct client : executes {
    distlock::service_registry& services() { return services_; }
    distlock::service_registry services_;
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::service_hosting_connection<client>);
#endif

// CASE_services_anew: and return the same one at every call
#if defined(CASE_services_anew)
struct client : executes {
    distlock::service_registry services() { return {}; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_services_anew_ok)
struct client : executes {
    std::string services() const { return "db1"; }  // a text is nothing to complain about
};
static_assert(distlock::check_connection<client>());
static_assert(!distlock::service_hosting_connection<client>);
#endif

// CASE_subscribe_by_value: subscribe must be .std::shared_ptr<distlock::subscription> subscribe
#if defined(CASE_subscribe_by_value)
struct client : executes {
    bool subscribe(std::string_view) { return true; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_subscribe_by_value_ok)
struct client : executes {
    std::shared_ptr<distlock::subscription> subscribe(std::string_view) { return nullptr; }
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::subscribing_connection<client>);
#endif

// CASE_no_follow: and .void follow
#if defined(CASE_no_follow)
struct client : executes {
    void on_master_change(const std::weak_ptr<distlock::master_listener>&) {}
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_no_follow_ok)
struct client : executes {
    void on_master_change(const std::weak_ptr<distlock::master_listener>&) {}
    void follow() {}
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::following_connection<client>);
#endif

// CASE_acknowledged_by_one_reply: execute_acknowledged must be .distlock::acknowledged_reply
// execute_acknowledged
#if defined(CASE_acknowledged_by_one_reply)
struct client : executes {
    distlock::reply execute_acknowledged(const distlock::command&, const distlock::command&) { return {}; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_acknowledged_by_one_reply_ok)
struct client : executes {
    distlock::acknowledged_reply execute_acknowledged(const distlock::command&, const distlock::command&) {
        return {};
    }
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::acknowledging_connection<client>);
#endif

// CASE_timeout_not_const: command_timeout must be const
#if defined(CASE_timeout_not_const)
struct client : executes {
    std::chrono::seconds command_timeout() { return std::chrono::seconds{1}; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_timeout_not_const_ok)
struct client : executes {
    std::chrono::seconds command_timeout() const { return std::chrono::seconds{1}; }
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::timed_connection<client>);
#endif

// CASE_identity_not_const: identity must be const
#if defined(CASE_identity_not_const)
struct client : executes {
    std::string_view identity() { return "db1"; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_identity_not_const_ok)
struct client : executes {
    std::string_view identity() const { return "db1"; }
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::identified_connection<client>);
#endif

// CASE_subscribe_takes_a_string: subscribe must be .std::shared_ptr<distlock::subscription> subscribe
#if defined(CASE_subscribe_takes_a_string)
struct client : executes {
    std::shared_ptr<distlock::subscription> subscribe(const std::string&) { return nullptr; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_subscribe_takes_a_string_ok)
struct client : executes {
    std::shared_ptr<distlock::subscription> subscribe(std::string_view) { return nullptr; }
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::subscribing_connection<client>);
#endif

// CASE_pipeline_takes_vectors: pipeline must be .void pipeline
#if defined(CASE_pipeline_takes_vectors)
struct client : executes {
    void pipeline(const std::vector<distlock::command>&, std::vector<distlock::reply>&) {}
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_pipeline_takes_vectors_ok)
struct client : executes {
    void pipeline(std::span<const distlock::command>, std::span<distlock::reply>) {}
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::pipelining_connection<client>);
#endif

// CASE_confirms_without_collect: and .void collect
#if defined(CASE_confirms_without_collect)
struct client : executes {
    bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& = nullptr) { return true; }
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_confirms_without_collect_ok)
struct client : executes {
    bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& = nullptr) { return true; }
    void collect() {}
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::confirming_connection<client>);
#endif

// CASE_listener_is_owned: and .void follow
#if defined(CASE_listener_is_owned)
struct client : executes {
    void on_master_change(const std::shared_ptr<distlock::master_listener>&) {}
    void follow() {}
};
static_assert(distlock::check_connection<client>());
#elif defined(CASE_listener_is_owned_ok)
struct client : executes {
    void on_master_change(const std::weak_ptr<distlock::master_listener>&) {}
    void follow() {}
};
static_assert(distlock::check_connection<client>());
static_assert(distlock::following_connection<client>);
#endif
