// A LevelDB Env whose logs and MANIFESTs are streams.
//
// Three moments make something durable besides a sync of a log:
//
// 1. When a MANIFEST is synced, the names in its directory become durable, because the tables that
//    it names must be there after a crash. LevelDB's own Env does this, too.
// 2. Before a stream is removed, the names in the directory become durable. The removal is durable
//    at once, and the table that replaces the log, or the CURRENT that names another MANIFEST,
//    might be in memory only.
// 3. When a log is closed, it becomes durable. LevelDB closes a log when it begins the next one.
//    Otherwise a synchronous put in the new log could survive a power cut that earlier puts in the
//    old log do not.
//
// CURRENT is an ordinary file. LevelDB replaces it by renaming, once each time a database is
// opened.

#include <leveldb/slice.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "onejournal_leveldb.h"
#include "streams.h"

namespace onejournal {

namespace {

using leveldb::Slice;
using leveldb::Status;

// What LevelDB's own files collect before they write.
constexpr size_t kBufferBytes = 64 << 10;

Status ToStatus(const Result& result, const std::string& path) {
  if (result.ok()) return Status::OK();
  if (result.not_found()) return Status::NotFound(path, result.text);
  return Status::IOError(path, result.text);
}

// Which directories have names that may not be durable. One that was not seen yet may have some of
// an earlier process.
class Names {
 public:
  // To be called when the change was made.
  void Changed(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    is_durable_[DirectoryOf(path)] = false;
  }

  Result MakeDurable(const std::string& path) {
    const std::string directory = DirectoryOf(path);
    std::lock_guard<std::mutex> lock(mutex_);
    bool& is_durable = is_durable_[directory];
    if (is_durable) return {};
    Result result = SyncDirectory(directory);
    is_durable = result.ok();
    return result;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, bool> is_durable_;
};

class SequentialStream final : public leveldb::SequentialFile {
 public:
  SequentialStream(std::string path, std::unique_ptr<Reader> reader)
      : path_(std::move(path)), reader_(std::move(reader)) {}

  Status Read(size_t n, Slice* result, char* scratch) override {
    size_t got = 0;
    Status status = ToStatus(reader_->Read(n, scratch, &got), path_);
    *result = Slice(scratch, got);
    return status;
  }

  Status Skip(uint64_t n) override { return ToStatus(reader_->Skip(n), path_); }

 private:
  const std::string path_;
  const std::unique_ptr<Reader> reader_;
};

class WritableStream final : public leveldb::WritableFile {
 public:
  // names: to be made durable with the file, as a MANIFEST's are; or null.
  WritableStream(std::string path, std::unique_ptr<Writer> writer, Names* names)
      : path_(std::move(path)), writer_(std::move(writer)), names_(names) {}

  ~WritableStream() override {
    // A caller that needs the result calls Close.
    if (writer_ != nullptr) WritableStream::Close();
  }

  Status Append(const Slice& data) override {
    buffer_.append(data.data(), data.size());
    return buffer_.size() < kBufferBytes ? Status::OK() : Flush();
  }

  Status Flush() override {
    if (writer_ == nullptr) return Status::IOError(path_, "is closed");
    Result result = writer_->Append(buffer_.data(), buffer_.size());
    buffer_.clear();
    return ToStatus(result, path_);
  }

  Status Sync() override {
    if (names_ != nullptr) {
      Result result = names_->MakeDurable(path_);
      if (!result.ok()) return ToStatus(result, path_);
    }
    Status status = Flush();
    return status.ok() ? ToStatus(writer_->Sync(), path_) : status;
  }

  Status Close() override {
    if (writer_ == nullptr) return Status::OK();
    Status status = Sync();
    writer_.reset();
    return status;
  }

 private:
  const std::string path_;
  std::unique_ptr<Writer> writer_;
  Names* const names_;
  std::string buffer_;
};

class StreamEnv final : public leveldb::EnvWrapper {
 public:
  StreamEnv(leveldb::Env* base, std::shared_ptr<Streams> streams)
      : EnvWrapper(base), streams_(std::move(streams)) {}

  Status NewSequentialFile(const std::string& path, leveldb::SequentialFile** file) override {
    std::unique_ptr<Reader> reader;
    Result result = streams_->OpenReader(path, &reader);
    if (result.not_found()) return target()->NewSequentialFile(path, file);
    *file = result.ok() ? new SequentialStream(path, std::move(reader)) : nullptr;
    return ToStatus(result, path);
  }

  Status NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** file) override {
    Result result = streams_->Exists(path);
    if (result.not_found()) return target()->NewRandomAccessFile(path, file);
    *file = nullptr;
    return result.ok() ? Status::NotSupported(path, "a stream is read from its beginning")
                       : ToStatus(result, path);
  }

  Status NewWritableFile(const std::string& path, leveldb::WritableFile** file) override {
    if (!Streams::IsLogName(path)) {
      Status status = target()->NewWritableFile(path, file);
      names_.Changed(path);
      return status;
    }
    std::unique_ptr<Writer> writer;
    Result result = streams_->Create(path, &writer);
    *file = result.ok() ? NewStream(path, std::move(writer)) : nullptr;
    return ToStatus(result, path);
  }

  Status NewAppendableFile(const std::string& path, leveldb::WritableFile** file) override {
    std::unique_ptr<Writer> writer;
    Result result = streams_->Reopen(path, &writer);
    if (result.not_found()) {
      if (target()->FileExists(path) || !Streams::IsLogName(path)) {
        Status status = target()->NewAppendableFile(path, file);
        names_.Changed(path);
        return status;
      }
      result = streams_->Create(path, &writer);
    }
    *file = result.ok() ? NewStream(path, std::move(writer)) : nullptr;
    return ToStatus(result, path);
  }

  // What cannot be looked at may be there: better an error when it is opened than a log that is
  // passed over.
  bool FileExists(const std::string& path) override {
    return !streams_->Exists(path).not_found() || target()->FileExists(path);
  }

  Status GetChildren(const std::string& directory, std::vector<std::string>* names) override {
    std::vector<std::string> streams, files;
    Status status = ToStatus(streams_->List(directory, &streams), directory);
    if (status.ok()) status = target()->GetChildren(directory, &files);
    if (!status.ok()) return status;
    *names = streams;
    for (std::string& file : files) {
      bool is_hidden = file == Streams::kTagFile;
      for (const std::string& stream : streams) is_hidden |= file == stream;
      if (!is_hidden) names->push_back(std::move(file));
    }
    return Status::OK();
  }

  Status RemoveFile(const std::string& path) override {
    if (Streams::IsLogName(path)) {
      Result result = names_.MakeDurable(path);
      if (result.ok()) result = streams_->Remove(path);
      if (!result.not_found()) return ToStatus(result, path);
    }
    return target()->RemoveFile(path);
  }

  Status RemoveDir(const std::string& directory) override {
    Result result = streams_->Forget(directory);
    return result.ok() ? target()->RemoveDir(directory) : ToStatus(result, directory);
  }

  Status GetFileSize(const std::string& path, uint64_t* size) override {
    Result result = streams_->Size(path, size);
    return result.not_found() ? target()->GetFileSize(path, size) : ToStatus(result, path);
  }

  // A stream that gets another name becomes a file: LevelDB renames logs only to put them aside.
  Status RenameFile(const std::string& from, const std::string& to) override {
    Result result = streams_->CopyToFile(from, to);
    if (result.not_found()) {
      Status status = target()->RenameFile(from, to);
      names_.Changed(from);
      names_.Changed(to);
      if (!status.ok()) return status;
    } else if (result.ok()) {
      result = streams_->Remove(from);
    }
    if (!result.ok() && !result.not_found()) return ToStatus(result, from);
    result = streams_->Remove(to);
    return result.not_found() ? Status::OK() : ToStatus(result, to);
  }

  Status Export(const std::string& directory) {
    return ToStatus(streams_->Export(directory), directory);
  }

 private:
  leveldb::WritableFile* NewStream(const std::string& path, std::unique_ptr<Writer> writer) {
    const bool is_manifest = BaseOf(path)[0] == 'M';
    return new WritableStream(path, std::move(writer), is_manifest ? &names_ : nullptr);
  }

  const std::shared_ptr<Streams> streams_;
  Names names_;
};

}  // namespace

Status NewLevelDbEnv(leveldb::Env* base, const LogOptions& options, leveldb::Env** env) {
  std::shared_ptr<Streams> streams;
  Result result = Streams::Open(options, &streams);
  *env = result.ok() ? new StreamEnv(base, std::move(streams)) : nullptr;
  return ToStatus(result, options.path);
}

Status ExportLevelDb(leveldb::Env* env, const std::string& name) {
  return static_cast<StreamEnv*>(env)->Export(name);
}

}  // namespace onejournal
