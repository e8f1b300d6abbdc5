// The tests of files and directories of both plug-ins; see files.h.

#include "files.h"

#include <algorithm>
#include <map>

namespace onejournal {

namespace fs = std::filesystem;

namespace {

constexpr int kPutCount = 2000;

using Contents = std::map<std::string, std::string>;

// Enough for many memtables of 64 KiB.
Contents Fill(Database* database, int seed) {
  Contents contents;
  for (int number = 0; number < kPutCount; number++) {
    const std::string key = "key" + std::to_string(number * 7919 % kPutCount);
    const std::string value =
        std::to_string(seed) + std::string(static_cast<size_t>(number % 500), 'x');
    database->Write({{key, value}}, number % 100 == 0);
    contents[key] = value;
  }
  return contents;
}

Contents ContentsOf(Database* database) {
  Contents contents;
  database->ForEach(
      [&](const std::string& key, const std::string& value) { contents[key] = value; });
  return contents;
}

std::vector<std::string> LogFiles(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (Streams::IsLogName(entry.path())) names.push_back(entry.path().filename());
  }
  return names;
}

void TestReopening(const TestPlace& place) {
  Contents contents;
  for (int life = 0; life < 3; life++) {
    std::unique_ptr<Database> database = OpenDatabase(place.path, place.options);
    MUST(ContentsOf(database.get()) == contents, "life " + std::to_string(life));
    contents = Fill(database.get(), life);
    MUST(ContentsOf(database.get()) == contents, "life " + std::to_string(life));
    if (life == 1) database->Compact();
    MUST(ContentsOf(database.get()) == contents, "compacted");
    database.reset();
    const std::vector<std::string> streams = place.StreamNames();
    MUST(streams.size() >= 2 && streams.size() < 10, "logs that are done with are removed");
    MUST(LogFiles(place.path).empty(), "logs are streams");
  }
  std::string text;
  MUST(TryOpenDatabase(place.path, {}, &text) == nullptr, "opened without its logs");
}

void TestDestroying(const TestPlace& place) {
  Fill(OpenDatabase(place.path, place.options).get(), 1);
  MUST(!place.StreamNames().empty(), "streams");
  DestroyDatabase(place.path, place.options);
  MUST(place.StreamNames().empty(), "a stream is left");
  MUST(!fs::exists(place.path), "the directory is left");
  MUST(ContentsOf(OpenDatabase(place.path, place.options).get()).empty(), "something came back");
}

void TestAdoptionAndExport(const TestPlace& place) {
  DatabaseOptions plain;
  plain.write_buffer_bytes = place.options.write_buffer_bytes;
  Contents contents = Fill(OpenDatabase(place.path, plain).get(), 1);
  {
    std::unique_ptr<Database> database = OpenDatabase(place.path, place.options);
    MUST(ContentsOf(database.get()) == contents, "a database of ordinary files is taken over");
    database->Write({{"more", "of it"}}, true);
    contents["more"] = "of it";
  }
  MUST(!place.StreamNames().empty(), "streams");
  ExportDatabase(place.path, place.options);
  MUST(place.StreamNames().empty() && !LogFiles(place.path).empty(), "ordinary files again");
  MUST(ContentsOf(OpenDatabase(place.path, plain).get()) == contents, "opened without the plugin");
}

void TestMovingAndOtherLogs(const TestPlace& place) {
  const Contents contents = Fill(OpenDatabase(place.path, place.options).get(), 1);
  const std::string other_path = place.root / "elsewhere";
  fs::rename(place.path, other_path);
  MUST(ContentsOf(OpenDatabase(other_path, place.options).get()) == contents, "moved");
  DatabaseOptions other = place.options;
  other.log.path = place.root / "other-log";
  other.log.nvram.clear();
  other.log.durability = ONEJOURNAL_DURABILITY_DEFAULT;
  std::string text;
  MUST(TryOpenDatabase(other_path, other, &text) == nullptr, "opened with another log");
  MUST(text.find("another log") != std::string::npos, text);
  MUST(ContentsOf(OpenDatabase(other_path, place.options).get()) == contents, "unharmed");
}

void TestTwoDatabasesInOneLog(const TestPlace& place) {
  const std::string second = place.root / "second";
  std::unique_ptr<Database> one = OpenDatabase(place.path, place.options),
                            two = OpenDatabase(second, place.options);
  const Contents first = Fill(one.get(), 1), other = Fill(two.get(), 2);
  one.reset();
  two.reset();
  MUST(ContentsOf(OpenDatabase(place.path, place.options).get()) == first, "the first");
  MUST(ContentsOf(OpenDatabase(second, place.options).get()) == other, "the second");
  DestroyDatabase(place.path, place.options);
  MUST(ContentsOf(OpenDatabase(second, place.options).get()) == other, "the second stays");
}

std::string ReadAll(Streams* streams, const std::string& path) {
  std::unique_ptr<Reader> reader;
  Result result = streams->OpenReader(path, &reader);
  MUST(result.ok(), result.text);
  std::string text;
  char scratch[1000];
  for (size_t got = sizeof scratch; got == sizeof scratch; text.append(scratch, got)) {
    result = reader->Read(sizeof scratch, scratch, &got);
    MUST(result.ok(), result.text);
  }
  return text;
}

void TestStreams(const TestPlace& place) {
  std::shared_ptr<Streams> streams;
  Result result = Streams::Open(place.options.log, &streams);
  MUST(result.ok(), result.text);
  fs::create_directory(place.path);
  const std::string path = place.path + "/000007.log";
  MUST(streams->Exists(path).not_found() && streams->Remove(path).not_found(), "not there");
  std::unique_ptr<Writer> writer;
  MUST(streams->Create(path, &writer).ok(), "create");
  MUST(streams->Exists(path).ok() && ReadAll(streams.get(), path).empty(), "empty");
  std::string expected;
  for (size_t len : {size_t{1}, size_t{100}, size_t{300} << 10, size_t{700} << 10, size_t{5}}) {
    const std::string part(len, static_cast<char>('a' + len % 26));
    MUST(writer->Append(part.data(), part.size()).ok(), "append");
    expected += part;
    // Unsynced bytes can be read, as from a file.
    MUST(ReadAll(streams.get(), path) == expected && writer->size() == expected.size(), "read");
  }
  MUST(writer->Sync().ok(), "sync");
  uint64_t size = 0;
  MUST(streams->Size(path, &size).ok() && size == expected.size(), "size");
  writer.reset();
  MUST(streams->Reopen(path, &writer).ok() && writer->size() == expected.size(), "reopen");
  MUST(writer->Append("more", 4).ok() && writer->Sync().ok(), "append");
  expected += "more";
  std::unique_ptr<Reader> reader;
  char rest[8];
  size_t got = 0;
  MUST(streams->OpenReader(path, &reader).ok() && reader->Skip(expected.size() - 4).ok(), "skip");
  MUST(reader->Read(sizeof rest, rest, &got).ok() && std::string(rest, got) == "more", "the end");
  MUST(!streams->Forget(place.path).ok(), "a directory with streams is not forgotten");
  MUST(streams->CopyToFile(path, place.path + "/copy").ok(), "copy");
  MUST(fs::file_size(place.path + "/copy") == expected.size(), "copy");
  MUST(streams->Create(path, &writer).ok() && ReadAll(streams.get(), path).empty(),
       "created anew: empty");
  MUST(streams->Remove(path).ok() && streams->Exists(path).not_found(), "removed");
  MUST(!writer->Append("x", 1).ok(), "a removed file takes nothing");
}

void TestNames() {
  for (const char* name : {"000001.log", "/a/b/123.log", "MANIFEST-000004", "x/MANIFEST-1"}) {
    MUST(Streams::IsLogName(name), name);
  }
  for (const char* name : {"LOG", "x.log", ".log", "1.log.trash", "CURRENT", "MANIFEST-",
                           "MANIFEST-1x", "000001.ldb"}) {
    MUST(!Streams::IsLogName(name), name);
  }
}

}  // namespace

TestPlace::TestPlace(bool is_nvram) {
  char root_name[] = "/tmp/onejournal-files-XXXXXX";
  char memory_name[] = "/dev/shm/onejournal-files-XXXXXX";
  MUST(mkdtemp(root_name) != nullptr && mkdtemp(memory_name) != nullptr, "mkdtemp");
  root = root_name;
  memory_ = memory_name;
  path = root / "db";
  options.write_buffer_bytes = 64 << 10;
  options.log.path = root / "log";
  options.log.memory = memory_;
  options.log.pool_bytes = 4 << 20;
  if (is_nvram) {
    options.log.nvram = memory_ / "nvram";
    options.log.durability = ONEJOURNAL_DURABILITY_PROCESS;
    fs::create_directory(memory_ / "nvram");
  }
}

TestPlace::~TestPlace() {
  fs::remove_all(root);
  fs::remove_all(memory_);
}

std::vector<std::string> TestPlace::StreamNames() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root / "log" / "streams")) {
    if (fs::exists(entry.path() / "stream.json")) names.push_back(entry.path().filename());
  }
  return names;
}

void TestFiles() {
  TestNames();
  for (bool is_nvram : {false, true}) {
    for (const auto test : {TestStreams, TestReopening, TestDestroying, TestAdoptionAndExport,
                            TestMovingAndOtherLogs, TestTwoDatabasesInOneLog}) {
      test(TestPlace(is_nvram));
    }
  }
  std::printf("files: all tests passed\n");
}

}  // namespace onejournal
