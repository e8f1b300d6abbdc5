// A database for a program that judges what a power cut leaves of it; see session.h.

#include "session.h"

#include <cstdio>
#include <iostream>
#include <sstream>

#include "database.h"

namespace onejournal {

namespace {

// A database makes a new log after so many bytes, so that it does so often.
constexpr size_t kWriteBufferBytes = 64 << 10;
constexpr uint64_t kPoolBytes = 4 << 20;

constexpr char kTotal[] = "total";

// As text that has the order of the numbers.
std::string KeyOf(uint64_t number) {
  char key[24];
  std::snprintf(key, sizeof key, "%010llu", static_cast<unsigned long long>(number));
  return key;
}

void PrintAll(Database* database) {
  std::string total = "0", records;
  database->ForEach([&](const std::string& key, const std::string& value) {
    if (key == kTotal) {
      total = value;
    } else {
      records += value + "\n";
    }
  });
  std::cout << total << "\n" << records << "end" << std::endl;
}

void Commit(Database* database, const std::string& line) {
  std::istringstream words(line);
  uint64_t number = 0;
  std::string how, record;
  MUST(words >> number >> how >> record && (how == "sync" || how == "lazy"), line);
  database->Write({{KeyOf(number), record}, {kTotal, std::to_string(number)}}, how == "sync");
  std::cout << "done " << number << std::endl;
}

}  // namespace

int SessionMain(int count, char** arguments) {
  const bool has_log = count == 4 && std::string(arguments[2]) == "--log";
  if (count != 2 && !has_log) {
    std::fprintf(stderr, "usage: session DIR [--log LOG]\n");
    return 2;
  }
  DatabaseOptions options;
  options.write_buffer_bytes = kWriteBufferBytes;
  if (has_log) {
    options.log.path = arguments[3];
    options.log.pool_bytes = kPoolBytes;
  }
  std::unique_ptr<Database> database = OpenDatabase(arguments[1], options);
  PrintAll(database.get());
  for (std::string line; std::getline(std::cin, line);) Commit(database.get(), line);
  return 0;
}

}  // namespace onejournal
