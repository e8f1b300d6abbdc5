// LevelDB with its logs in the log service.
//
// USING
//
//   #include <onejournal_leveldb.h>
//   onejournal::LogOptions log;
//   log.path = "/var/lib/app/log";
//   leveldb::Options options;
//   leveldb::Status s = onejournal::NewLevelDbEnv(leveldb::Env::Default(), log, &options.env);
//   ... leveldb::DB::Open(options, "/var/lib/app/db", &db) ... delete db; delete options.env;
//
// COMPILING   c++ app.cc $(pkg-config --cflags --libs onejournal-leveldb)
//
// NOTES   docs/databases/rocksdb-leveldb.md

#ifndef ONEJOURNAL_PLUGINS_LEVELDB_H_
#define ONEJOURNAL_PLUGINS_LEVELDB_H_

#include <leveldb/env.h>
#include <leveldb/status.h>

#include <string>

#include "onejournal_log_options.h"

namespace onejournal {

// An Env that keeps NNNNNN.log and MANIFEST-NNNNNN in the log, and all other files in base. Base,
// which stays the caller's, must keep its files in the file system. Delete the Env after its
// databases.
leveldb::Status NewLevelDbEnv(leveldb::Env* base, const LogOptions& options, leveldb::Env** env);

// Makes a closed database one that needs no plugin any more. env comes from NewLevelDbEnv.
leveldb::Status ExportLevelDb(leveldb::Env* env, const std::string& name);

}  // namespace onejournal

#endif
