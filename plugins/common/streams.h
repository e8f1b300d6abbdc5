// Streams of the log service in place of a database's log files. The LevelDB and the RocksDB
// plug-in share this.
//
// A file NNNNNN.log or MANIFEST-NNNNNN in directory DIR is the stream TAG.NNNNNN.log. The content
// of the file is the payloads of the stream's records, one after the other. TAG is 32 random
// hexadecimal digits. The file DIR/.onejournal holds it, with the identity of the log. So a
// database may be moved, and it is refused with another log. A name without a stream is an ordinary
// file. So a database that was made without the plug-in can be used with it.
//
// Threads: several threads may use everything here. One writer or reader is used by one thread at a
// time, except for Writer::Sync.

#ifndef ONEJOURNAL_PLUGINS_COMMON_STREAMS_H_
#define ONEJOURNAL_PLUGINS_COMMON_STREAMS_H_

#include <onejournal_log.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "onejournal_log_options.h"

namespace onejournal {

// 0, or one of the numbers ONEJOURNAL_E*, with words.
struct Result {
  int code = 0;
  std::string text;

  bool ok() const { return code == 0; }
  bool not_found() const { return code == ONEJOURNAL_ENOTFOUND; }
};

struct LogDeleter {
  void operator()(onejournal_log* log) const { onejournal_log_close(log); }
};
struct StreamDeleter {
  void operator()(onejournal_stream* stream) const { onejournal_stream_close(stream); }
};
struct CursorDeleter {
  void operator()(onejournal_cursor* cursor) const { onejournal_cursor_close(cursor); }
};
using LogHandle = std::unique_ptr<onejournal_log, LogDeleter>;
using StreamHandle = std::unique_ptr<onejournal_stream, StreamDeleter>;
using CursorHandle = std::unique_ptr<onejournal_cursor, CursorDeleter>;

// A file that is appended to. What was appended survives the end of the process; after Sync() what
// the log's durability says.
class Writer {
 public:
  Writer(StreamHandle stream, uint64_t size) : stream_(std::move(stream)), size_(size) {}
  ~Writer();

  // After a failure every later call fails with it, as does Sync(): the file ends there, maybe
  // within what was to be appended. Databases go on after an error, and what they would write
  // behind such a hole could not be read.
  Result Append(const char* data, size_t len);
  // May be called while another thread appends.
  Result Sync();
  // Bytes of the file.
  uint64_t size() const { return size_; }

 private:
  StreamHandle stream_;
  uint64_t size_;
  // LSN of the last record, plus one; 0: none was appended.
  std::atomic<uint64_t> last_{0};
  // Written before has_failed_ is set, and never again.
  Result failure_;
  std::atomic<bool> has_failed_{false};
};

// A file that is read from its beginning, also while it is written.
class Reader {
 public:
  Reader(StreamHandle stream, CursorHandle cursor)
      : stream_(std::move(stream)), cursor_(std::move(cursor)) {}

  // Reads len bytes; fewer only at the end of the file.
  Result Read(size_t len, char* scratch, size_t* got);
  Result Skip(uint64_t len);

 private:
  // Makes rest_ not empty, but at the end of the file.
  Result Fill();

  StreamHandle stream_;
  CursorHandle cursor_;
  // What was not read yet of the record at the cursor.
  onejournal_record rest_ = {0, 0, nullptr, 0};
};

class Streams {
 public:
  static Result Open(const LogOptions& options, std::shared_ptr<Streams>* streams);

  // Whether the last part of the path is a name that is made as a stream.
  static bool IsLogName(const std::string& path);

  // An empty file, in place of a stream or an ordinary file with that name.
  Result Create(const std::string& path, std::unique_ptr<Writer>* writer);
  // A writer at the end of a stream that exists.
  Result Reopen(const std::string& path, std::unique_ptr<Writer>* writer);
  Result OpenReader(const std::string& path, std::unique_ptr<Reader>* reader);
  // ONEJOURNAL_ENOTFOUND when the path is no stream; so for the others.
  Result Exists(const std::string& path);
  Result Size(const std::string& path, uint64_t* size);
  Result Remove(const std::string& path);
  // Adds the names of the streams in a directory.
  Result List(const std::string& directory, std::vector<std::string>* names);
  // Copies a stream to an ordinary file, durably.
  Result CopyToFile(const std::string& path, const std::string& target);
  // Turns all streams of a directory into ordinary files, and forgets the directory.
  Result Export(const std::string& directory);
  // Before a directory is removed: an error if it has streams.
  Result Forget(const std::string& directory);

  // The file in a database's directory that ties it to its streams.
  static constexpr const char* kTagFile = ".onejournal";

 private:
  explicit Streams(LogHandle log, std::string path, std::string uuid)
      : log_(std::move(log)), path_(std::move(path)), uuid_(std::move(uuid)) {}

  Result Tag(const std::string& directory, std::string* tag);
  Result MakeTag(const std::string& directory, std::string* tag);
  Result StreamName(const std::string& path, std::string* name);
  Result OpenStream(const std::string& path, StreamHandle* stream);

  const LogHandle log_;
  const std::string path_;
  const std::string uuid_;
  // Held while a directory gets its tag.
  std::mutex tagging_;
};

// Makes the names in a directory durable.
Result SyncDirectory(const std::string& directory);

std::string DirectoryOf(const std::string& path);
std::string BaseOf(const std::string& path);

}  // namespace onejournal

#endif
