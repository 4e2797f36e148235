// Findings about a server, as a program and a person read them.
#include <sstream>
#include <string>

#include <distlock/wire/diagnosis.hpp>

#include "support/catch.hpp"

namespace diagnosis_tests {

using distlock::diagnosis;
using distlock::severity;

TEST_CASE("a diagnosis is as bad as its worst finding, and unknown without any") {
    CHECK(diagnosis().worst() == severity::unknown);
    CHECK(diagnosis({{severity::ok, "role", "a master"}}).worst() == severity::ok);
    CHECK(diagnosis({{severity::ok, "a", ""}, {severity::problem, "b", ""}, {severity::warning, "c", ""}})
              .worst() == severity::problem);
    CHECK(diagnosis({{severity::ok, "a", ""}, {severity::unknown, "b", ""}}).worst() == severity::unknown);
}

TEST_CASE("the first finding on a subject is found by its name") {
    const diagnosis of({{severity::ok, "a", "1"}, {severity::problem, "b", "2"}, {severity::ok, "b", "3"}});
    REQUIRE(of.about("b") != nullptr);
    CHECK(*of.about("b") == distlock::finding{severity::problem, "b", "2"});
    CHECK(of.about("c") == nullptr);
}

TEST_CASE("each finding is a line: severity, subject and text, one below the other") {
    const diagnosis of({{severity::warning, "persistence", "none"}, {severity::ok, "role", "a master"}});
    std::ostringstream printed;
    printed << of;
    CHECK(printed.str() == "warning  persistence  none\nok       role         a master\n");
    CHECK(to_string(of) == printed.str());
    CHECK(to_string(diagnosis()).empty());
}

}  // namespace diagnosis_tests
