// Whether a server serves, is a replica, or is full, by its answers on a connection.
#pragma once

#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

class server_standing {
  public:
    void on_reply(const reply& answer) noexcept {
        if (is_ == kind::unheard) is_ = kind::serves;
        if (!answer.is(reply_kind::error)) return;
        if (says_role_changed(answer.said())) is_ = kind::no_master;
        if (says_too_many_clients(answer.said())) is_ = kind::full;
    }
    /// Effects: as on_reply() of a server that says so where no answer was asked for.
    void on_no_room() noexcept { is_ = kind::full; }

    /// Returns: whether it ever answered.
    bool answered() const noexcept { return is_ != kind::unheard; }
    /// Returns: whether it said that it is no master, or no longer: see says_role_changed.
    bool demoted() const noexcept { return is_ == kind::no_master; }
    /// Returns: whether it said that it has no room for this connection; it ends it.
    bool full() const noexcept { return is_ == kind::full; }

  private:
    enum class kind { unheard, serves, no_master, full };
    kind is_ = kind::unheard;
};

}  // namespace distlock::detail
