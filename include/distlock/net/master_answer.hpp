// What an answer to a command says of the master that it came from.
//
//   struct master_answer { bool suspect; bool executed; };
//   master_answer judge_master(const reply&);
#pragma once

#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock {

struct master_answer {
    bool suspect = false;  ///< another server may be the master by now: the Sentinels know
    bool executed = true;  ///< the command was, or may have been; false: it may go to another master
};

constexpr master_answer judge_master_error(std::string_view text) noexcept {
    const auto word = detail::first_word(detail::unwrap_script_error(text));
    // A server that loads its data was restarted: without them another one may have taken its place.
    if (says_role_changed(text) || word == "LOADING")
        return {.suspect = true, .executed = word == "UNBLOCKED"};
    return {};
}

inline master_answer judge_master(const reply& answer) noexcept {
    if (answer.is(reply_kind::error)) return judge_master_error(answer.said());
    if (answer.answered()) return {};
    // A call that the caller ended, or may not make, says nothing of the server.
    const bool own_doing = answer.cause() == errc::cancelled || answer.cause() == errc::wrong_process;
    return {.suspect = !own_doing, .executed = own_doing || answer.is(reply_kind::no_answer)};
}

}  // namespace distlock
