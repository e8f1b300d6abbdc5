// Tests what RocksDB sees of its directory, and what it does there besides writing logs.

#include "../common/files.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>

#include <algorithm>

#include "onejournal_rocksdb.h"
#include "uri.h"

namespace onejournal {

namespace {

// An Env of the plugin, and a database in it.
class Opened {
 public:
  explicit Opened(const TestPlace& place) : path_(place.path) {
    std::unique_ptr<rocksdb::FileSystem> fs;
    Check(NewRocksDbFileSystem(rocksdb::FileSystem::Default(), place.options.log, &fs));
    env = rocksdb::NewCompositeEnv(std::move(fs));
    options.env = env.get();
    options.create_if_missing = true;
    options.write_buffer_size = 64 << 10;
    sync.sync = true;
  }

  void Open() {
    db.reset();
    rocksdb::DB* found = nullptr;
    Check(rocksdb::DB::Open(options, path_, &found));
    db.reset(found);
  }

  void Put(int first, int last) {
    for (int number = first; number < last; number++) {
      Check(db->Put(sync, "key" + std::to_string(number),
                    std::string(1000, static_cast<char>('a' + number % 26))));
    }
  }

  static void MustHave(rocksdb::DB* db, int first, int last) {
    std::string value;
    for (int number = first; number < last; number++) {
      Check(db->Get(rocksdb::ReadOptions(), "key" + std::to_string(number), &value));
      MUST(value == std::string(1000, static_cast<char>('a' + number % 26)),
           std::to_string(number));
    }
  }

  static void Check(const rocksdb::Status& status) { MUST(status.ok(), status.ToString()); }

  std::unique_ptr<rocksdb::Env> env;
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::Options options;
  rocksdb::WriteOptions sync;

 private:
  const std::string path_;
};

void TestDirectory(const TestPlace& place) {
  Opened opened(place);
  opened.Open();
  opened.Put(0, 10);
  std::vector<rocksdb::Env::FileAttributes> attributes;
  Opened::Check(opened.env->GetChildrenFileAttributes(place.path, &attributes));
  int log_count = 0;
  for (const auto& file : attributes) {
    MUST(file.name != Streams::kTagFile, "hidden");
    if (!Streams::IsLogName(file.name)) continue;
    log_count++;
    MUST(file.size_bytes > 0, file.name);
    const std::string path = place.path + "/" + file.name;
    Opened::Check(opened.env->FileExists(path));
    uint64_t time = 0;
    Opened::Check(opened.env->GetFileModificationTime(path, &time));
    std::unique_ptr<rocksdb::RandomAccessFile> random;
    MUST(opened.env->NewRandomAccessFile(path, &random, rocksdb::EnvOptions()).IsNotSupported(),
         path);
    MUST(opened.env->LinkFile(path, path + "x").IsNotSupported(), path);
    bool is_directory = true;
    Opened::Check(opened.env->IsDirectory(path, &is_directory));
    MUST(!is_directory, path);
  }
  MUST(log_count == 2, "one log, one MANIFEST");
  MUST(opened.env->FileExists(place.path + "/999999.log").IsNotFound(), "not there");
}

// RocksDB's ways of keeping, reusing and reading logs.
void TestLogs(const TestPlace& place, const std::function<void(rocksdb::Options*)>& change) {
  Opened opened(place);
  change(&opened.options);
  for (int life = 0; life < 4; life++) {
    opened.Open();
    Opened::MustHave(opened.db.get(), 0, life * 300);
    opened.Put(life * 300, life * 300 + 300);
    rocksdb::WriteOptions no_sync;
    Opened::Check(opened.db->Put(no_sync, "lazy", "value"));
    Opened::Check(opened.db->FlushWAL(true));
    Opened::Check(opened.db->SyncWAL());
    rocksdb::VectorLogPtr logs;
    Opened::Check(opened.db->GetSortedWalFiles(logs));
    MUST(!logs.empty(), "logs are found");
  }
}

void TestCheckpoint(const TestPlace& place) {
  Opened opened(place);
  opened.Open();
  opened.Put(0, 500);
  rocksdb::Checkpoint* made = nullptr;
  Opened::Check(rocksdb::Checkpoint::Create(opened.db.get(), &made));
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  const std::string path = place.root / "checkpoint";
  // With its log, which is copied.
  Opened::Check(checkpoint->CreateCheckpoint(path, 1 << 30));
  opened.Put(500, 600);
  rocksdb::DB* found = nullptr;
  Opened::Check(rocksdb::DB::Open(opened.options, path, &found));
  const std::unique_ptr<rocksdb::DB> copy(found);
  Opened::MustHave(copy.get(), 0, 500);
  std::string value;
  MUST(copy->Get(rocksdb::ReadOptions(), "key550", &value).IsNotFound(),
       "later than the checkpoint");
}

// A database without the plug-in.
std::unique_ptr<rocksdb::DB> OpenPlain(const std::string& path) {
  rocksdb::DB* found = nullptr;
  Opened::Check(rocksdb::DB::Open(rocksdb::Options(), path, &found));
  return std::unique_ptr<rocksdb::DB>(found);
}

// The copy at path needs neither the database nor its log, which are gone: plain RocksDB opens it,
// and so does the plug-in with another log.
void MustBeWhole(const TestPlace& place, const std::string& path, int last) {
  MUST(!std::filesystem::exists(path + "/" + Streams::kTagFile), "it needs no log");
  Opened::MustHave(OpenPlain(path).get(), 0, last);
  TestPlace with_log(!place.options.log.nvram.empty());
  with_log.path = path;
  Opened opened(with_log);
  opened.Open();
  Opened::MustHave(opened.db.get(), 0, last);
  opened.Put(last, last + 100);
  opened.Open();
  Opened::MustHave(opened.db.get(), 0, last + 100);
}

// The database and its log are gone, with everything in memory.
void Lose(const TestPlace& place) {
  std::filesystem::remove_all(place.path);
  std::filesystem::remove_all(place.options.log.path);
  for (const auto& entry : std::filesystem::directory_iterator(place.options.log.memory)) {
    std::filesystem::remove_all(entry.path());
  }
}

void TestCopiedCheckpoint(const TestPlace& place) {
  const std::filesystem::path checkpoint = place.root / "checkpoint", copy = place.root / "copy";
  {
    Opened opened(place);
    opened.Open();
    opened.Put(0, 500);
    rocksdb::Checkpoint* made = nullptr;
    Opened::Check(rocksdb::Checkpoint::Create(opened.db.get(), &made));
    // With its log.
    const std::unique_ptr<rocksdb::Checkpoint> maker(made);
    Opened::Check(maker->CreateCheckpoint(checkpoint, 1 << 30));
    opened.Put(500, 600);
  }
  std::filesystem::copy(checkpoint, copy);
  std::filesystem::remove_all(checkpoint);
  Lose(place);
  MustBeWhole(place, copy, 500);
}

void TestCopiedBackup(const TestPlace& place) {
  const std::filesystem::path backups = place.root / "backups", copy = place.root / "copy";
  const std::filesystem::path restored = place.root / "restored";
  {
    Opened opened(place);
    opened.Open();
    opened.Put(0, 500);
    rocksdb::BackupEngine* made = nullptr;
    const rocksdb::BackupEngineOptions options(backups);
    Opened::Check(rocksdb::BackupEngine::Open(opened.env.get(), options, &made));
    const std::unique_ptr<rocksdb::BackupEngine> engine(made);
    Opened::Check(engine->CreateNewBackup(opened.db.get()));
    opened.Put(500, 600);
    Opened::Check(engine->VerifyBackup(1, true));
    opened.db.reset();
    // In place of the database, through the plug-in.
    Opened::Check(engine->RestoreDBFromLatestBackup(place.path, place.path));
    opened.Open();
    Opened::MustHave(opened.db.get(), 0, 500);
    std::string value;
    const rocksdb::Status later = opened.db->Get(rocksdb::ReadOptions(), "key550", &value);
    MUST(later.IsNotFound(), "later than the backup");
  }
  std::filesystem::copy(backups, copy, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(backups);
  Lose(place);
  rocksdb::BackupEngineReadOnly* found = nullptr;
  const rocksdb::BackupEngineOptions options(copy);
  Opened::Check(rocksdb::BackupEngineReadOnly::Open(rocksdb::Env::Default(), options, &found));
  const std::unique_ptr<rocksdb::BackupEngineReadOnly> engine(found);
  Opened::Check(engine->RestoreDBFromLatestBackup(restored, restored));
  MustBeWhole(place, restored, 500);
}

// Repair reads the streams, and makes a MANIFEST.
void TestRepair(const TestPlace& place) {
  Opened opened(place);
  opened.Open();
  opened.Put(0, 500);
  opened.db.reset();
  Opened::Check(rocksdb::RepairDB(place.path, opened.options));
  opened.Open();
  Opened::MustHave(opened.db.get(), 0, 500);
}

// A copy of a log or MANIFEST takes the place of a stream with its name.
void TestFileInPlaceOfStream(const TestPlace& place) {
  Opened opened(place);
  opened.Open();
  opened.Put(0, 10);
  opened.db.reset();
  std::vector<std::string> names;
  Opened::Check(opened.env->GetChildren(place.path, &names));
  const auto log = std::find_if(names.begin(), names.end(), Streams::IsLogName);
  MUST(log != names.end(), "a stream");
  const std::string path = place.path + "/" + *log;
  Opened::Check(rocksdb::WriteStringToFile(opened.env.get(), "copied", path));
  std::string text;
  Opened::Check(rocksdb::ReadFileToString(opened.env.get(), path, &text));
  MUST(text == "copied" && std::filesystem::file_size(path) == 6, "the file, and no stream");
}

void TestUri() {
  LogOptions options;
  Result result = ParseUri(
      "onejournal:///a/b?nvram=/mnt/pmem&memory=/dev/shm/x&pool_bytes=123&durability=process",
      &options);
  MUST(result.ok(), result.text);
  MUST(options.path == "/a/b" && options.nvram == "/mnt/pmem" && options.memory == "/dev/shm/x",
       "places");
  MUST(options.pool_bytes == 123 && options.durability == ONEJOURNAL_DURABILITY_PROCESS, "numbers");
  for (const char* wrong : {"onejournal://", "onejournal://?nvram=/x", "other:///a",
                            "onejournal:///a?b", "onejournal:///a?b=c",
                            "onejournal:///a?pool_bytes=", "onejournal:///a?pool_bytes=-1",
                            "onejournal:///a?durability=no"}) {
    LogOptions none;
    MUST(!ParseUri(wrong, &none).ok(), wrong);
  }
  std::shared_ptr<rocksdb::FileSystem> fs;
  rocksdb::Status status = rocksdb::FileSystem::CreateFromString(
      rocksdb::ConfigOptions(), "onejournal:///proc/x", &fs);
  MUST(!status.ok(), "no log can be there");
}

}  // namespace

}  // namespace onejournal

int main() {
  using namespace onejournal;
  TestFiles();
  TestUri();
  for (bool is_nvram : {false, true}) {
    TestDirectory(TestPlace(is_nvram));
    TestCheckpoint(TestPlace(is_nvram));
    TestCopiedCheckpoint(TestPlace(is_nvram));
    TestCopiedBackup(TestPlace(is_nvram));
    TestFileInPlaceOfStream(TestPlace(is_nvram));
    TestRepair(TestPlace(is_nvram));
    TestLogs(TestPlace(is_nvram), [](rocksdb::Options*) {});
    TestLogs(TestPlace(is_nvram),
             [](rocksdb::Options* options) { options->recycle_log_file_num = 2; });
    TestLogs(TestPlace(is_nvram),
             [](rocksdb::Options* options) { options->WAL_ttl_seconds = 1000; });
    TestLogs(TestPlace(is_nvram),
             [](rocksdb::Options* options) { options->track_and_verify_wals_in_manifest = true; });
    TestLogs(TestPlace(is_nvram),
             [](rocksdb::Options* options) { options->manual_wal_flush = true; });
  }
  std::printf("RocksDB's FileSystem: all tests passed\n");
  return 0;
}
