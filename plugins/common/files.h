// Tests of both plug-ins: what they must do with files and directories, seen through the database.

#ifndef ONEJOURNAL_PLUGINS_COMMON_FILES_H_
#define ONEJOURNAL_PLUGINS_COMMON_FILES_H_

#include <filesystem>

#include "database.h"

namespace onejournal {

// A directory of its own for each test, with a database's and a log's place in it, and shared
// memory.
class TestPlace {
 public:
  explicit TestPlace(bool is_nvram);
  ~TestPlace();

  DatabaseOptions options;
  std::filesystem::path root;
  std::string path;

  // The streams of all databases.
  std::vector<std::string> StreamNames() const;

 private:
  std::filesystem::path memory_;
};

// Runs all of it.
void TestFiles();

}  // namespace onejournal

#endif
