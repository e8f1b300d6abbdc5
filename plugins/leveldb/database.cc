// The interface to LevelDB for the tests and the benchmark.

#include "../common/database.h"

#include <leveldb/db.h>
#include <leveldb/write_batch.h>

#include "onejournal_leveldb.h"

namespace onejournal {

namespace {

class LevelDb final : public Database {
 public:
  LevelDb(std::unique_ptr<leveldb::Env> env, leveldb::DB* db) : env_(std::move(env)), db_(db) {}

  void Write(const std::vector<Change>& changes, bool sync) override {
    leveldb::WriteBatch batch;
    for (const Change& change : changes) {
      if (change.value) {
        batch.Put(change.key, *change.value);
      } else {
        batch.Delete(change.key);
      }
    }
    leveldb::WriteOptions options;
    options.sync = sync;
    leveldb::Status status = db_->Write(options, &batch);
    MUST(status.ok(), status.ToString());
  }

  void ForEach(const std::function<void(const std::string&, const std::string&)>& visit) override {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    std::unique_ptr<leveldb::Iterator> at(db_->NewIterator(options));
    for (at->SeekToFirst(); at->Valid(); at->Next()) {
      visit(at->key().ToString(), at->value().ToString());
    }
    MUST(at->status().ok(), at->status().ToString());
  }

  void Compact() override { db_->CompactRange(nullptr, nullptr); }

 private:
  const std::unique_ptr<leveldb::Env> env_;
  const std::unique_ptr<leveldb::DB> db_;
};

leveldb::Options LevelDbOptions(const DatabaseOptions& options,
                                std::unique_ptr<leveldb::Env>* env) {
  leveldb::Options found;
  found.create_if_missing = true;
  found.paranoid_checks = true;
  if (options.write_buffer_bytes != 0) found.write_buffer_size = options.write_buffer_bytes;
  if (!options.log.path.empty()) {
    leveldb::Status status = NewLevelDbEnv(leveldb::Env::Default(), options.log, &found.env);
    MUST(status.ok(), status.ToString());
    env->reset(found.env);
  }
  return found;
}

}  // namespace

std::unique_ptr<Database> TryOpenDatabase(const std::string& path, const DatabaseOptions& options,
                                          std::string* text) {
  std::unique_ptr<leveldb::Env> env;
  leveldb::DB* db = nullptr;
  leveldb::Status status = leveldb::DB::Open(LevelDbOptions(options, &env), path, &db);
  *text = status.ToString();
  if (!status.ok()) return nullptr;
  return std::make_unique<LevelDb>(std::move(env), db);
}

void DestroyDatabase(const std::string& path, const DatabaseOptions& options) {
  std::unique_ptr<leveldb::Env> env;
  leveldb::Status status = leveldb::DestroyDB(path, LevelDbOptions(options, &env));
  MUST(status.ok(), status.ToString());
}

void ExportDatabase(const std::string& path, const DatabaseOptions& options) {
  std::unique_ptr<leveldb::Env> env;
  LevelDbOptions(options, &env);
  leveldb::Status status = ExportLevelDb(env.get(), path);
  MUST(status.ok(), status.ToString());
}

}  // namespace onejournal
