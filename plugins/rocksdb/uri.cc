// The URI, and its registration with RocksDB when the library is loaded.

#include "uri.h"

#include <rocksdb/utilities/object_registry.h>

#include <cstdlib>

#include "onejournal_rocksdb.h"

namespace onejournal {

namespace {

constexpr char kScheme[] = "onejournal";
constexpr char kSeparator[] = "://";

Result Wrong(const std::string& text) { return {ONEJOURNAL_EUSAGE, text}; }

Result SetOption(const std::string& name, const std::string& value, LogOptions* options) {
  if (name == "nvram") {
    options->nvram = value;
  } else if (name == "memory") {
    options->memory = value;
  } else if (name == "pool_bytes") {
    char* end = nullptr;
    options->pool_bytes = std::strtoull(value.c_str(), &end, 10);
    if (value.empty() || value[0] == '-' || *end != '\0') {
      return Wrong("pool_bytes=" + value + " is no number");
    }
  } else if (name == "durability") {
    const char* const classes[] = {"", "power", "reboot", "process"};
    for (int number = ONEJOURNAL_DURABILITY_POWER; number <= ONEJOURNAL_DURABILITY_PROCESS;
         number++) {
      if (value == classes[number]) options->durability = number;
    }
    if (options->durability == 0) {
      return Wrong("durability=" + value + " is none of power, reboot, process");
    }
  } else {
    return Wrong("the option " + name + " is not known");
  }
  return {};
}

rocksdb::FileSystem* Make(const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard,
                          std::string* text) {
  LogOptions options;
  Result result = ParseUri(uri, &options);
  if (!result.ok()) {
    *text = result.text;
    return nullptr;
  }
  rocksdb::Status status = NewRocksDbFileSystem(rocksdb::FileSystem::Default(), options, guard);
  if (!status.ok()) *text = status.ToString();
  return guard->get();
}

const bool is_registered = [] {
  const rocksdb::ObjectLibrary::PatternEntry entry =
      rocksdb::ObjectLibrary::PatternEntry(kScheme, false).AddSeparator(kSeparator);
  rocksdb::ObjectLibrary::Default()->AddFactory<rocksdb::FileSystem>(entry, Make);
  return true;
}();

}  // namespace

Result ParseUri(const std::string& uri, LogOptions* options) {
  const std::string prefix = std::string(kScheme) + kSeparator;
  if (uri.compare(0, prefix.size(), prefix) != 0) {
    return Wrong(uri + " does not begin with " + prefix);
  }
  const size_t question = uri.find('?');
  options->path = uri.substr(
      prefix.size(), question == std::string::npos ? question : question - prefix.size());
  if (options->path.empty()) return Wrong(uri + " names no directory");
  for (size_t at = question; at != std::string::npos && at + 1 < uri.size();) {
    const size_t next = uri.find('&', at + 1);
    const std::string part = uri.substr(at + 1, next == std::string::npos ? next : next - at - 1);
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return Wrong("the option " + part + " has no value");
    Result result = SetOption(part.substr(0, equals), part.substr(equals + 1), options);
    if (!result.ok()) return result;
    at = next;
  }
  return {};
}

}  // namespace onejournal
