// A connection as a user writes one: execute, and nothing else.
#pragma once

#include <string>

#include <distlock/hiredis.hpp>

class minimal_connection {
  public:
    explicit minimal_connection(const std::string& uri) : inner_(uri) {}
    distlock::reply execute(const distlock::command& cmd) { return inner_.execute(cmd); }

  private:
    distlock::hiredis_connection inner_;
};
