// A RocksDB FileSystem whose logs and MANIFESTs are streams.
//
// RocksDB syncs directories itself where order matters: before it removes a log or an older
// MANIFEST, CURRENT and the tables that a MANIFEST names are durable. It buffers its writes itself,
// so each append here is an append to the stream.
//
// A copy of a log or MANIFEST must be a file, because checkpoints and backups are copied
// elsewhere. Only the options tell: RocksDB asks OptimizeForLogWrite or OptimizeForManifestWrite
// before it makes a log or MANIFEST that it will write, and it copies with other options.

#include <ctime>
#include <utility>

#include "onejournal_rocksdb.h"
#include "streams.h"
#include "uri.h"

namespace onejournal {

namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus ToStatus(const Result& result, const std::string& path) {
  if (result.ok()) return IOStatus::OK();
  if (result.not_found()) return IOStatus::PathNotFound(path, result.text);
  return IOStatus::IOError(path, result.text);
}

// Whether the options are those of a log or MANIFEST that a database writes.
bool IsOfLog(const FileOptions& options) {
  const rocksdb::IOType type = options.io_options.type;
  return type == rocksdb::IOType::kWAL || type == rocksdb::IOType::kManifest;
}

class SequentialStream final : public rocksdb::FSSequentialFile {
 public:
  SequentialStream(std::string path, std::unique_ptr<Reader> reader)
      : path_(std::move(path)), reader_(std::move(reader)) {}

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    size_t got = 0;
    IOStatus status = ToStatus(reader_->Read(n, scratch, &got), path_);
    *result = Slice(scratch, got);
    return status;
  }

  IOStatus Skip(uint64_t n) override { return ToStatus(reader_->Skip(n), path_); }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  const std::string path_;
  const std::unique_ptr<Reader> reader_;
};

class WritableStream final : public rocksdb::FSWritableFile {
 public:
  WritableStream(std::string path, std::unique_ptr<Writer> writer)
      : path_(std::move(path)), writer_(std::move(writer)), size_(writer_->size()) {}

  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    if (writer_ == nullptr) return IOStatus::IOError(path_, "is closed");
    Result result = writer_->Append(data.data(), data.size());
    size_.store(writer_->size(), std::memory_order_release);
    return ToStatus(result, path_);
  }

  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    if (writer_ == nullptr) return IOStatus::IOError(path_, "is closed");
    return ToStatus(writer_->Sync(), path_);
  }

  bool IsSyncThreadSafe() const override { return true; }

  // RocksDB cuts off what it reserved, and nothing was.
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    if (size >= size_.load(std::memory_order_acquire)) return IOStatus::OK();
    return IOStatus::NotSupported(path_, "a stream is only appended to");
  }

  IOStatus Close(const IOOptions&, IODebugContext*) override {
    writer_.reset();
    return IOStatus::OK();
  }

  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    return size_.load(std::memory_order_acquire);
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

 private:
  const std::string path_;
  std::unique_ptr<Writer> writer_;
  std::atomic<uint64_t> size_;
};

class StreamFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  StreamFileSystem(const std::shared_ptr<FileSystem>& base, std::shared_ptr<Streams> streams)
      : FileSystemWrapper(base), streams_(std::move(streams)) {}

  static const char* kClassName() { return "onejournal"; }
  const char* Name() const override { return kClassName(); }

  FileOptions OptimizeForLogWrite(const FileOptions& options,
                                  const rocksdb::DBOptions& db_options) const override {
    FileOptions found = target()->OptimizeForLogWrite(options, db_options);
    found.io_options.type = rocksdb::IOType::kWAL;
    return found;
  }

  FileOptions OptimizeForManifestWrite(const FileOptions& options) const override {
    FileOptions found = target()->OptimizeForManifestWrite(options);
    found.io_options.type = rocksdb::IOType::kManifest;
    return found;
  }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext* dbg) override {
    std::unique_ptr<Reader> reader;
    Result result = streams_->OpenReader(path, &reader);
    if (result.not_found()) return target()->NewSequentialFile(path, options, file, dbg);
    if (result.ok()) file->reset(new SequentialStream(path, std::move(reader)));
    return ToStatus(result, path);
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                               IODebugContext* dbg) override {
    IOStatus status = RefuseStream(path);
    return status.ok() ? target()->NewRandomAccessFile(path, options, file, dbg) : status;
  }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    if (!Streams::IsLogName(path)) return target()->NewWritableFile(path, options, file, dbg);
    if (!IsOfLog(options)) {
      // The copy takes the place of a stream with its name.
      Result removed = streams_->Remove(path);
      if (!removed.ok() && !removed.not_found()) return ToStatus(removed, path);
      return target()->NewWritableFile(path, options, file, dbg);
    }
    std::unique_ptr<Writer> writer;
    Result result = streams_->Create(path, &writer);
    if (result.ok()) file->reset(new WritableStream(path, std::move(writer)));
    return ToStatus(result, path);
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* dbg) override {
    std::unique_ptr<Writer> writer;
    Result result = streams_->Reopen(path, &writer);
    if (result.not_found()) return target()->ReopenWritableFile(path, options, file, dbg);
    if (result.ok()) file->reset(new WritableStream(path, std::move(writer)));
    return ToStatus(result, path);
  }

  // There is nothing to gain from an old log: a new stream takes its place.
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* file,
                             IODebugContext* dbg) override {
    if (!Streams::IsLogName(path)) {
      return target()->ReuseWritableFile(path, old_path, options, file, dbg);
    }
    IOStatus status = DeleteFile(old_path, options.io_options, dbg);
    return status.ok() ? NewWritableFile(path, options, file, dbg) : status;
  }

  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           IODebugContext* dbg) override {
    IOStatus status = RefuseStream(path);
    return status.ok() ? target()->NewRandomRWFile(path, options, file, dbg) : status;
  }

  IOStatus NewMemoryMappedFileBuffer(
      const std::string& path,
      std::unique_ptr<rocksdb::MemoryMappedFileBuffer>* buffer) override {
    IOStatus status = RefuseStream(path);
    return status.ok() ? target()->NewMemoryMappedFileBuffer(path, buffer) : status;
  }

  IOStatus FileExists(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    Result result = streams_->Exists(path);
    return result.not_found() ? target()->FileExists(path, options, dbg) : ToStatus(result, path);
  }

  IOStatus GetChildren(const std::string& directory, const IOOptions& options,
                       std::vector<std::string>* names, IODebugContext* dbg) override {
    std::vector<std::string> streams, files;
    IOStatus status = ToStatus(streams_->List(directory, &streams), directory);
    if (status.ok()) status = target()->GetChildren(directory, options, &files, dbg);
    if (!status.ok()) return status;
    *names = streams;
    for (std::string& file : files) {
      bool is_hidden = file == Streams::kTagFile;
      for (const std::string& stream : streams) is_hidden |= file == stream;
      if (!is_hidden) names->push_back(std::move(file));
    }
    return status;
  }

  IOStatus GetChildrenFileAttributes(const std::string& directory, const IOOptions& options,
                                     std::vector<rocksdb::FileAttributes>* attributes,
                                     IODebugContext* dbg) override {
    // The base class asks GetChildren and GetFileSize.
    return FileSystem::GetChildrenFileAttributes(directory, options, attributes, dbg);
  }

  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    Result result = streams_->Remove(path);
    return result.not_found() ? target()->DeleteFile(path, options, dbg) : ToStatus(result, path);
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options,
                    IODebugContext* dbg) override {
    IOStatus status = RefuseStream(path);
    return status.ok() ? target()->Truncate(path, size, options, dbg) : status;
  }

  IOStatus DeleteDir(const std::string& directory, const IOOptions& options,
                     IODebugContext* dbg) override {
    Result result = streams_->Forget(directory);
    return result.ok() ? target()->DeleteDir(directory, options, dbg) : ToStatus(result, directory);
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions& options, uint64_t* size,
                       IODebugContext* dbg) override {
    Result result = streams_->Size(path, size);
    return result.not_found() ? target()->GetFileSize(path, options, size, dbg)
                              : ToStatus(result, path);
  }

  // A stream is a live log: it changes now.
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions& options,
                                   uint64_t* time, IODebugContext* dbg) override {
    Result result = streams_->Exists(path);
    if (result.not_found()) return target()->GetFileModificationTime(path, options, time, dbg);
    *time = static_cast<uint64_t>(std::time(nullptr));
    return ToStatus(result, path);
  }

  // A stream that gets another name becomes a file: RocksDB renames logs only to put them aside.
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    Result result = streams_->CopyToFile(from, to);
    if (result.not_found()) {
      IOStatus status = target()->RenameFile(from, to, options, dbg);
      if (!status.ok()) return status;
    } else if (result.ok()) {
      result = streams_->Remove(from);
    }
    if (!result.ok() && !result.not_found()) return ToStatus(result, from);
    result = streams_->Remove(to);
    return result.not_found() ? IOStatus::OK() : ToStatus(result, to);
  }

  // RocksDB copies what cannot be linked.
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& options,
                    IODebugContext* dbg) override {
    IOStatus status = RefuseStream(from);
    return status.ok() ? target()->LinkFile(from, to, options, dbg) : status;
  }

  IOStatus NumFileLinks(const std::string& path, const IOOptions& options, uint64_t* count,
                        IODebugContext* dbg) override {
    IOStatus status = RefuseStream(path);
    return status.ok() ? target()->NumFileLinks(path, options, count, dbg) : status;
  }

  IOStatus AreFilesSame(const std::string& one, const std::string& other, const IOOptions& options,
                        bool* are_same, IODebugContext* dbg) override {
    IOStatus status = RefuseStream(one);
    if (status.ok()) status = RefuseStream(other);
    return status.ok() ? target()->AreFilesSame(one, other, options, are_same, dbg) : status;
  }

  IOStatus IsDirectory(const std::string& path, const IOOptions& options, bool* is_directory,
                       IODebugContext* dbg) override {
    Result result = streams_->Exists(path);
    if (result.not_found()) return target()->IsDirectory(path, options, is_directory, dbg);
    *is_directory = false;
    return ToStatus(result, path);
  }

  IOStatus Export(const std::string& directory) {
    return ToStatus(streams_->Export(directory), directory);
  }

 private:
  // OK when the path is no stream.
  IOStatus RefuseStream(const std::string& path) {
    Result result = streams_->Exists(path);
    if (result.not_found()) return IOStatus::OK();
    if (!result.ok()) return ToStatus(result, path);
    return IOStatus::NotSupported(path, "a stream is read from its beginning and appended to");
  }

  const std::shared_ptr<Streams> streams_;
};

}  // namespace

rocksdb::Status NewRocksDbFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base,
                                     const LogOptions& options,
                                     std::unique_ptr<rocksdb::FileSystem>* fs) {
  std::shared_ptr<Streams> streams;
  Result result = Streams::Open(options, &streams);
  if (result.ok()) fs->reset(new StreamFileSystem(base, std::move(streams)));
  return ToStatus(result, options.path);
}

rocksdb::Status ExportRocksDb(rocksdb::FileSystem* fs, const std::string& name) {
  return static_cast<StreamFileSystem*>(fs)->Export(name);
}

}  // namespace onejournal
