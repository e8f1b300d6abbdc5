// Which log a LevelDB or RocksDB database uses. Installed beside the plug-ins' headers, which
// include it.

#ifndef ONEJOURNAL_PLUGINS_COMMON_LOG_OPTIONS_H_
#define ONEJOURNAL_PLUGINS_COMMON_LOG_OPTIONS_H_

#include <onejournal_log.h>

#include <cstdint>
#include <string>

namespace onejournal {

// Where the log is, and how it is made if it does not exist. 0 or empty means the default of
// onejournal_log.h.
struct LogOptions {
  std::string path;
  std::string nvram;
  std::string memory;
  uint64_t pool_bytes = 0;
  // ONEJOURNAL_DURABILITY_*: what the NVRAM is to be called, when that is less than power.
  int durability = ONEJOURNAL_DURABILITY_DEFAULT;
};

}  // namespace onejournal

#endif
