// The interface to RocksDB for the tests and the benchmark.

#include "../common/database.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>

#include "onejournal_rocksdb.h"

namespace onejournal {

namespace {

class RocksDb final : public Database {
 public:
  RocksDb(std::unique_ptr<rocksdb::Env> env, rocksdb::DB* db) : env_(std::move(env)), db_(db) {}

  void Write(const std::vector<Change>& changes, bool sync) override {
    rocksdb::WriteBatch batch;
    for (const Change& change : changes) {
      rocksdb::Status status =
          change.value ? batch.Put(change.key, *change.value) : batch.Delete(change.key);
      MUST(status.ok(), status.ToString());
    }
    rocksdb::WriteOptions options;
    options.sync = sync;
    rocksdb::Status status = db_->Write(options, &batch);
    MUST(status.ok(), status.ToString());
  }

  void ForEach(const std::function<void(const std::string&, const std::string&)>& visit) override {
    std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(rocksdb::ReadOptions()));
    for (at->SeekToFirst(); at->Valid(); at->Next()) {
      visit(at->key().ToString(), at->value().ToString());
    }
    MUST(at->status().ok(), at->status().ToString());
  }

  void Compact() override {
    rocksdb::Status status = db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr);
    MUST(status.ok(), status.ToString());
  }

 private:
  const std::unique_ptr<rocksdb::Env> env_;
  const std::unique_ptr<rocksdb::DB> db_;
};

// By the URI, which the tests use all the time thereby.
std::string UriOf(const LogOptions& log) {
  std::string uri = "onejournal://" + log.path + "?pool_bytes=" + std::to_string(log.pool_bytes);
  if (!log.memory.empty()) uri += "&memory=" + log.memory;
  if (!log.nvram.empty()) uri += "&nvram=" + log.nvram;
  if (log.durability == ONEJOURNAL_DURABILITY_PROCESS) uri += "&durability=process";
  return uri;
}

rocksdb::Options RocksDbOptions(const DatabaseOptions& options,
                                std::unique_ptr<rocksdb::Env>* env) {
  rocksdb::Options found;
  found.create_if_missing = true;
  found.paranoid_checks = true;
  if (options.write_buffer_bytes != 0) found.write_buffer_size = options.write_buffer_bytes;
  if (!options.log.path.empty()) {
    std::shared_ptr<rocksdb::FileSystem> fs;
    rocksdb::ConfigOptions config;
    rocksdb::Status status = rocksdb::FileSystem::CreateFromString(config, UriOf(options.log), &fs);
    MUST(status.ok(), status.ToString());
    *env = rocksdb::NewCompositeEnv(fs);
    found.env = env->get();
  }
  return found;
}

}  // namespace

std::unique_ptr<Database> TryOpenDatabase(const std::string& path, const DatabaseOptions& options,
                                          std::string* text) {
  std::unique_ptr<rocksdb::Env> env;
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(RocksDbOptions(options, &env), path, &db);
  *text = status.ToString();
  if (!status.ok()) return nullptr;
  return std::make_unique<RocksDb>(std::move(env), db);
}

void DestroyDatabase(const std::string& path, const DatabaseOptions& options) {
  std::unique_ptr<rocksdb::Env> env;
  rocksdb::Status status = rocksdb::DestroyDB(path, RocksDbOptions(options, &env));
  MUST(status.ok(), status.ToString());
}

void ExportDatabase(const std::string& path, const DatabaseOptions& options) {
  std::unique_ptr<rocksdb::Env> env;
  RocksDbOptions(options, &env);
  rocksdb::Status status = ExportRocksDb(env->GetFileSystem().get(), path);
  MUST(status.ok(), status.ToString());
}

}  // namespace onejournal
