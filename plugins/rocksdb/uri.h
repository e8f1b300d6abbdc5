// Parses the URI of a log: onejournal://PATH?OPTION=VALUE&...

#ifndef ONEJOURNAL_PLUGINS_ROCKSDB_URI_H_
#define ONEJOURNAL_PLUGINS_ROCKSDB_URI_H_

#include <string>

#include "streams.h"

namespace onejournal {

Result ParseUri(const std::string& uri, LogOptions* options);

}  // namespace onejournal

#endif
