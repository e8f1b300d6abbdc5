// RocksDB with its logs in the log service.
//
// USING
//
//   #include <onejournal_rocksdb.h>
//   onejournal::LogOptions log;
//   log.path = "/var/lib/app/log";
//   std::unique_ptr<rocksdb::FileSystem> fs;
//   rocksdb::Status s = onejournal::NewRocksDbFileSystem(rocksdb::FileSystem::Default(), log, &fs);
//   std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(std::move(fs));
//   options.env = env.get();
//
// or without this header, when the library is linked or in LD_PRELOAD:
//
//   std::shared_ptr<rocksdb::FileSystem> fs;
//   rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(),
//                                         "onejournal:///var/lib/app/log", &fs);
//
// with options after a question mark, as in
// onejournal:///var/lib/app/log?nvram=/mnt/pmem/app&pool_bytes=134217728; they are nvram, memory,
// pool_bytes and durability (power, reboot, process).
//
// COMPILING   c++ app.cc $(pkg-config --cflags --libs onejournal-rocksdb)
//
// NOTES   docs/databases/rocksdb-leveldb.md

#ifndef ONEJOURNAL_PLUGINS_ROCKSDB_H_
#define ONEJOURNAL_PLUGINS_ROCKSDB_H_

#include <rocksdb/file_system.h>
#include <rocksdb/status.h>

#include <memory>
#include <string>

#include "onejournal_log_options.h"

namespace onejournal {

// A FileSystem that keeps NNNNNN.log and MANIFEST-NNNNNN in the log, and all other files in base,
// which must keep its files in the file system.
rocksdb::Status NewRocksDbFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base,
                                     const LogOptions& options,
                                     std::unique_ptr<rocksdb::FileSystem>* fs);

// Makes a closed database one that needs no plugin any more. fs comes from NewRocksDbFileSystem.
rocksdb::Status ExportRocksDb(rocksdb::FileSystem* fs, const std::string& name);

}  // namespace onejournal

#endif
