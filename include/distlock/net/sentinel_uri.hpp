// Where a group of Sentinels is, and which master they watch:
// redis+sentinel://user:password@s1:26379,s2:26379/mymaster?db=2&sentinel_user=...&sentinel_password=...
//
//   struct sentinel_uri { std::vector<uri> sentinels; std::string master_name; uri master; };
//   sentinel_uri parse_sentinel_uri(std::string_view text);
//       // throws error(errc::invalid_uri), as parse_uri()
//   void check_uri(const sentinel_uri& where);                // the same for one that was filled in by hand
//   std::string redacted(const sentinel_uri& where);          // for messages
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <distlock/detail/separate.hpp>
#include <distlock/net/uri.hpp>

namespace distlock {

struct sentinel_uri {
    std::vector<uri> sentinels;  ///< one or more, in the order of the text; they differ in host and port only
    std::string master_name;     ///< as the Sentinels call it
    uri master;                  ///< whatever master they name; host and port mean nothing
};

/// Throws: error(errc::invalid_uri) when `where` cannot be used.
DISTLOCK_INLINE void check_uri(const sentinel_uri& where);

/// Reads `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/master[?options]`, and the same
/// with rediss+sentinel for TLS to Sentinels and masters, valkey+sentinel and valkeys+sentinel. User and
/// password are for the masters. Options: those of parse_uri(), of which db is for the masters, and
/// sentinel_user=, sentinel_password= for the Sentinels. Their port is 26379.
///
/// Throws: error(errc::invalid_uri); `what()` names the part that is wrong and holds nothing of `text`.
[[nodiscard("what was read is lost")]] DISTLOCK_INLINE sentinel_uri parse_sentinel_uri(std::string_view text);

/// Returns: `where` without passwords and options but the database.
DISTLOCK_INLINE std::string redacted(const sentinel_uri& where);

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/net/sentinel_uri_impl.hpp>
#endif
