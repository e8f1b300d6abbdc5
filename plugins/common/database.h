// The interface to a database that the tests and the benchmark of both plug-ins use.

#ifndef ONEJOURNAL_PLUGINS_COMMON_DATABASE_H_
#define ONEJOURNAL_PLUGINS_COMMON_DATABASE_H_

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "streams.h"

// Ends the program when something that must hold does not, also in release builds.
#define MUST(condition, text)                                                                     \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition,                     \
                   std::string(text).c_str());                                                    \
      std::exit(1);                                                                               \
    }                                                                                             \
  } while (0)

namespace onejournal {

struct Change {
  std::string key;
  // Nothing: the key is deleted.
  std::optional<std::string> value;
};

class Database {
 public:
  virtual ~Database() = default;
  // Ends the program when it fails.
  virtual void Write(const std::vector<Change>& changes, bool sync) = 0;
  virtual void ForEach(
      const std::function<void(const std::string&, const std::string&)>& visit) = 0;
  virtual void Compact() = 0;
};

struct DatabaseOptions {
  // No path: without the plugin.
  LogOptions log;
  // 0: the database's default.
  size_t write_buffer_bytes = 0;
};

// Each plugin has one of each. Opens or makes a database; the error is in *text.
std::unique_ptr<Database> TryOpenDatabase(const std::string& path, const DatabaseOptions& options,
                                          std::string* text);
void DestroyDatabase(const std::string& path, const DatabaseOptions& options);
void ExportDatabase(const std::string& path, const DatabaseOptions& options);

inline std::unique_ptr<Database> OpenDatabase(const std::string& path,
                                              const DatabaseOptions& options) {
  std::string text;
  std::unique_ptr<Database> database = TryOpenDatabase(path, options, &text);
  MUST(database != nullptr, text);
  return database;
}

}  // namespace onejournal

#endif
