// Tests what LevelDB sees of its directory, and what it does there besides writing logs.

#include "../common/files.h"

#include <dlfcn.h>
#include <leveldb/db.h>

#include <algorithm>

#include "onejournal_leveldb.h"

namespace {

// Appends fail, as with a pool that stayed full.
bool appends_fail = false;

}  // namespace

// Stands before the library's own.
extern "C" int onejournal_append(const onejournal_stream* stream, const void* data, size_t len,
                                 uint64_t* lsn) {
  using Append = int(const onejournal_stream*, const void*, size_t, uint64_t*);
  static Append* const append = reinterpret_cast<Append*>(dlsym(RTLD_NEXT, "onejournal_append"));
  return appends_fail ? ONEJOURNAL_EFULL : append(stream, data, len, lsn);
}

namespace onejournal {

namespace {

std::string ReadFile(leveldb::Env* env, const std::string& path) {
  std::string text;
  leveldb::Status status = leveldb::ReadFileToString(env, path, &text);
  MUST(status.ok(), status.ToString());
  return text;
}

void TestEnv(const TestPlace& place) {
  leveldb::Env* made = nullptr;
  leveldb::Status status = NewLevelDbEnv(leveldb::Env::Default(), place.options.log, &made);
  MUST(status.ok(), status.ToString());
  std::unique_ptr<leveldb::Env> env(made);
  MUST(env->CreateDir(place.path).ok(), "directory");
  const std::string log = place.path + "/000003.log", text(100000, 'x');
  leveldb::WritableFile* file = nullptr;
  MUST(env->NewWritableFile(log, &file).ok(), "make");
  MUST(file->Append(text).ok() && file->Flush().ok(), "write");
  MUST(ReadFile(env.get(), log) == text, "what was flushed is seen");
  MUST(file->Append("end").ok() && file->Sync().ok() && file->Close().ok(), "sync");
  MUST(!file->Append("x").ok() || !file->Flush().ok(), "closed");
  delete file;
  MUST(leveldb::WriteStringToFile(env.get(), "other", place.path + "/other").ok(),
       "an ordinary file");
  std::vector<std::string> names;
  MUST(env->GetChildren(place.path, &names).ok(), "children");
  std::sort(names.begin(), names.end());
  const auto is_dots = [](const std::string& name) { return name == "." || name == ".."; };
  names.erase(std::remove_if(names.begin(), names.end(), is_dots), names.end());
  MUST((names == std::vector<std::string>{"000003.log", "other"}), "the directory looks complete");
  uint64_t size = 0;
  MUST(env->FileExists(log) && env->GetFileSize(log, &size).ok() && size == text.size() + 3,
       "size");
  MUST(!env->FileExists(place.path + "/000004.log"), "not there");
  leveldb::SequentialFile* none = nullptr;
  MUST(env->NewSequentialFile(place.path + "/000004.log", &none).IsNotFound(), "not there");
  leveldb::RandomAccessFile* random = nullptr;
  MUST(env->NewRandomAccessFile(log, &random).IsNotSupportedError(), "from the beginning only");
  MUST(env->NewAppendableFile(log, &file).ok() && file->Append("more").ok() && file->Close().ok(),
       "append");
  delete file;
  MUST(ReadFile(env.get(), log) == text + "endmore", "appended");
  MUST(env->RenameFile(log, place.path + "/aside").ok() && !env->FileExists(log), "renamed");
  MUST(ReadFile(leveldb::Env::Default(), place.path + "/aside") == text + "endmore",
       "an ordinary file now");
  MUST(!env->RemoveDir(place.path).ok(), "not empty");
  MUST(env->RemoveFile(place.path + "/aside").ok() && env->RemoveFile(place.path + "/other").ok(),
       "remove");
  MUST(env->RemoveFile(log).IsNotFound(), "gone already");
  MUST(env->RemoveDir(place.path).ok(), "removed");
}

// LevelDB takes the next write after one that failed; its log must not have a hole in it then.
void TestFailedAppend(const TestPlace& place) {
  leveldb::Options options;
  leveldb::Status status = NewLevelDbEnv(leveldb::Env::Default(), place.options.log, &options.env);
  MUST(status.ok(), status.ToString());
  const std::unique_ptr<leveldb::Env> env(options.env);
  options.create_if_missing = true;
  options.paranoid_checks = true;
  leveldb::WriteOptions sync;
  sync.sync = true;
  std::vector<std::string> acknowledged;
  leveldb::DB* db = nullptr;
  MUST(leveldb::DB::Open(options, place.path, &db).ok(), "open");
  for (int number = 0; number < 300; number++) {
    appends_fail = number == 100;
    const std::string key = std::to_string(number);
    const bool is_good = db->Put(sync, key, std::string(1000, 'x')).ok();
    MUST(is_good || number >= 100, key);
    if (is_good) acknowledged.push_back(key);
  }
  delete db;
  MUST(leveldb::DB::Open(options, place.path, &db).ok(), "open again");
  std::string value;
  for (const std::string& key : acknowledged) {
    MUST(db->Get(leveldb::ReadOptions(), key, &value).ok(), key);
  }
  MUST(db->Put(sync, "after", "x").ok(), "a new log is a sound one");
  delete db;
}

void TestRepairAndReuse(const TestPlace& place) {
  leveldb::Options options;
  leveldb::Status status = NewLevelDbEnv(leveldb::Env::Default(), place.options.log, &options.env);
  MUST(status.ok(), status.ToString());
  const std::unique_ptr<leveldb::Env> env(options.env);
  options.create_if_missing = true;
  options.reuse_logs = true;
  for (int life = 0; life < 5; life++) {
    leveldb::DB* db = nullptr;
    status = leveldb::DB::Open(options, place.path, &db);
    MUST(status.ok(), status.ToString());
    leveldb::WriteOptions sync;
    sync.sync = true;
    std::string value;
    for (int number = 0; number < life; number++) {
      MUST(db->Get(leveldb::ReadOptions(), std::to_string(number), &value).ok() && value == "kept",
           "reuse");
    }
    MUST(db->Put(sync, std::to_string(life), "kept").ok(), "put");
    delete db;
    // Reads every log, makes another MANIFEST, puts the old ones aside.
    status = life == 3 ? leveldb::RepairDB(place.path, options) : leveldb::Status::OK();
    MUST(status.ok(), status.ToString());
  }
}

}  // namespace

}  // namespace onejournal

int main() {
  onejournal::TestFiles();
  for (bool is_nvram : {false, true}) {
    onejournal::TestEnv(onejournal::TestPlace(is_nvram));
    onejournal::TestFailedAppend(onejournal::TestPlace(is_nvram));
    onejournal::TestRepairAndReuse(onejournal::TestPlace(is_nvram));
  }
  std::printf("LevelDB's Env: all tests passed\n");
  return 0;
}
