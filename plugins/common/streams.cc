// Streams in place of log files; see streams.h for the format.

#include "streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace onejournal {

namespace {

// Bytes of a record at most: well below half of the smallest pool.
constexpr size_t kRecordBytes = 256 << 10;

constexpr char kFirstLine[] = "onejournal 1";

Result Checked(int code) { return code == 0 ? Result() : Result{code, onejournal_log_error()}; }

Result SystemError(const std::string& what) {
  return {ONEJOURNAL_ESYSTEM, what + ": " + std::strerror(errno)};
}

bool AreDigits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

std::string NewTag() {
  std::random_device random;
  std::string tag;
  for (int i = 0; i < 4; i++) {
    char part[9];
    std::snprintf(part, sizeof part, "%08x", static_cast<unsigned>(random()));
    tag += part;
  }
  return tag;
}

// A descriptor that is closed at the end of its block.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }

 private:
  const int fd_;
};

Result WriteAll(int fd, const char* data, size_t len, const std::string& path) {
  while (len > 0) {
    ssize_t done = write(fd, data, len);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return SystemError(path);
    data += done;
    len -= static_cast<size_t>(done);
  }
  return {};
}

// Replaces the file at path, durably, with what fill writes.
template <typename Fill>
Result ReplaceFile(const std::string& path, Fill fill) {
  const std::string temporary = path + ".onejournal-new";
  {
    Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return SystemError(temporary);
    Result result = fill(file.get());
    if (!result.ok()) return result;
    if (fsync(file.get()) != 0) return SystemError(temporary);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return SystemError(path);
  return SyncDirectory(DirectoryOf(path));
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string BaseOf(const std::string& path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

Result SyncDirectory(const std::string& directory) {
  Descriptor file(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0 || fsync(file.get()) != 0) return SystemError(directory);
  return {};
}

Writer::~Writer() { onejournal_stream_release(stream_.get()); }

Result Writer::Append(const char* data, size_t len) {
  if (has_failed_.load(std::memory_order_acquire)) return failure_;
  while (len > 0) {
    size_t part = std::min(len, kRecordBytes);
    uint64_t lsn;
    Result result = Checked(onejournal_append(stream_.get(), data, part, &lsn));
    if (!result.ok()) {
      failure_ = result;
      has_failed_.store(true, std::memory_order_release);
      return result;
    }
    last_.store(lsn + 1, std::memory_order_release);
    size_ += part;
    data += part;
    len -= part;
  }
  return {};
}

Result Writer::Sync() {
  if (has_failed_.load(std::memory_order_acquire)) return failure_;
  uint64_t last = last_.load(std::memory_order_acquire);
  if (last == 0) return Checked(onejournal_flush(stream_.get()));
  return Checked(onejournal_sync(stream_.get(), last - 1));
}

Result Reader::Fill() {
  if (rest_.len > 0) return {};
  Result result = Checked(onejournal_cursor_next(cursor_.get(), &rest_));
  if (!result.ok() || rest_.data != nullptr) return result;
  uint64_t end, appended;
  result = Checked(onejournal_positions(stream_.get(), nullptr, &end, &appended));
  if (!result.ok()) return result;
  // Cursors show what is durable; a file shows what was written.
  if (end != appended) result = Checked(onejournal_flush(stream_.get()));
  if (!result.ok()) return result;
  // Looks again even if all is durable: records may have become durable after the first look.
  return Checked(onejournal_cursor_next(cursor_.get(), &rest_));
}

Result Reader::Read(size_t len, char* scratch, size_t* got) {
  *got = 0;
  while (*got < len) {
    Result result = Fill();
    if (!result.ok() || rest_.len == 0) return result;
    size_t part = std::min(len - *got, rest_.len);
    std::memcpy(scratch + *got, rest_.data, part);
    rest_.data = static_cast<const char*>(rest_.data) + part;
    rest_.len -= part;
    *got += part;
  }
  return {};
}

Result Reader::Skip(uint64_t len) {
  while (len > 0) {
    Result result = Fill();
    if (!result.ok() || rest_.len == 0) return result;
    size_t part = static_cast<size_t>(std::min<uint64_t>(len, rest_.len));
    rest_.data = static_cast<const char*>(rest_.data) + part;
    rest_.len -= part;
    len -= part;
  }
  return {};
}

Result Streams::Open(const LogOptions& options, std::shared_ptr<Streams>* streams) {
  onejournal_log_options raw = ONEJOURNAL_LOG_OPTIONS;
  raw.nvram = options.nvram.empty() ? nullptr : options.nvram.c_str();
  raw.memory = options.memory.empty() ? nullptr : options.memory.c_str();
  raw.pool_bytes = options.pool_bytes;
  raw.durability = options.durability;
  onejournal_log* log = nullptr;
  Result result = Checked(onejournal_log_open(options.path.c_str(), &raw, &log));
  if (!result.ok()) return result;
  LogHandle handle(log);
  char uuid[33];
  result = Checked(onejournal_log_uuid(log, uuid));
  if (!result.ok()) return result;
  char real[PATH_MAX];
  std::string path = realpath(options.path.c_str(), real) == nullptr ? options.path : real;
  streams->reset(new Streams(std::move(handle), std::move(path), uuid));
  return {};
}

bool Streams::IsLogName(const std::string& path) {
  const std::string name = BaseOf(path), manifest = "MANIFEST-", log = ".log";
  if (StartsWith(name, manifest)) return AreDigits(name.substr(manifest.size()));
  return name.size() > log.size() && name.compare(name.size() - log.size(), log.size(), log) == 0 &&
         AreDigits(name.substr(0, name.size() - log.size()));
}

// The tag of a directory; ONEJOURNAL_ENOTFOUND when it has none.
Result Streams::Tag(const std::string& directory, std::string* tag) {
  const std::string path = directory + "/" + kTagFile;
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno != ENOENT && errno != ENOTDIR) return SystemError(path);
    return {ONEJOURNAL_ENOTFOUND, directory + " has no streams"};
  }
  char text[PATH_MAX + 256];
  ssize_t len = read(file.get(), text, sizeof text);
  if (len < 0) return SystemError(path);
  std::vector<std::string> lines;
  for (const char *at = text, *end = text + len; at < end;) {
    const char* stop = std::find(at, end, '\n');
    lines.emplace_back(at, stop);
    at = stop + 1;
  }
  if (lines.size() != 4 || lines[0] != kFirstLine || lines[1].size() != 32) {
    return {ONEJOURNAL_EINCOMPATIBLE, path + " is not what it should be"};
  }
  if (lines[2] != uuid_) {
    return {ONEJOURNAL_EINCOMPATIBLE,
            directory + " has its logs in another log: it was in " + lines[3] +
                ", this one is in " + path_};
  }
  *tag = lines[1];
  return {};
}

Result Streams::MakeTag(const std::string& directory, std::string* tag) {
  std::lock_guard<std::mutex> lock(tagging_);
  Result result = Tag(directory, tag);
  if (!result.not_found()) return result;
  const std::string made = NewTag();
  const std::string text =
      std::string(kFirstLine) + "\n" + made + "\n" + uuid_ + "\n" + path_ + "\n";
  const std::string path = directory + "/" + kTagFile;
  result = ReplaceFile(path, [&](int fd) { return WriteAll(fd, text.data(), text.size(), path); });
  if (result.ok()) *tag = made;
  return result;
}

Result Streams::StreamName(const std::string& path, std::string* name) {
  std::string tag;
  Result result = Tag(DirectoryOf(path), &tag);
  if (result.ok()) *name = tag + "." + BaseOf(path);
  return result;
}

Result Streams::OpenStream(const std::string& path, StreamHandle* stream) {
  if (!IsLogName(path)) return {ONEJOURNAL_ENOTFOUND, path + " is no stream"};
  std::string name;
  Result result = StreamName(path, &name);
  if (!result.ok()) return result;
  onejournal_stream* opened = nullptr;
  result = Checked(onejournal_stream_open(log_.get(), name.c_str(), 0, &opened));
  stream->reset(opened);
  return result;
}

Result Streams::Create(const std::string& path, std::unique_ptr<Writer>* writer) {
  std::string tag;
  Result result = MakeTag(DirectoryOf(path), &tag);
  if (!result.ok()) return result;
  const std::string name = tag + "." + BaseOf(path);
  result = Checked(onejournal_log_remove(log_.get(), name.c_str()));
  if (!result.ok() && !result.not_found()) return result;
  onejournal_stream* stream = nullptr;
  result = Checked(onejournal_stream_open(log_.get(), name.c_str(), ONEJOURNAL_CREATE, &stream));
  if (!result.ok()) return result;
  writer->reset(new Writer(StreamHandle(stream), 0));
  // The stream has the name now, whether this is done or not.
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError(path);
  return {};
}

Result Streams::Reopen(const std::string& path, std::unique_ptr<Writer>* writer) {
  uint64_t size;
  Result result = Size(path, &size);
  if (!result.ok()) return result;
  StreamHandle stream;
  result = OpenStream(path, &stream);
  if (result.ok()) writer->reset(new Writer(std::move(stream), size));
  return result;
}

Result Streams::OpenReader(const std::string& path, std::unique_ptr<Reader>* reader) {
  StreamHandle stream;
  Result result = OpenStream(path, &stream);
  if (!result.ok()) return result;
  uint64_t head;
  result = Checked(onejournal_positions(stream.get(), &head, nullptr, nullptr));
  if (!result.ok()) return result;
  onejournal_cursor* cursor = nullptr;
  result = Checked(onejournal_cursor_open(stream.get(), head, &cursor));
  if (result.ok()) reader->reset(new Reader(std::move(stream), CursorHandle(cursor)));
  return result;
}

Result Streams::Exists(const std::string& path) {
  StreamHandle stream;
  return OpenStream(path, &stream);
}

Result Streams::Size(const std::string& path, uint64_t* size) {
  std::unique_ptr<Reader> reader;
  Result result = OpenReader(path, &reader);
  std::vector<char> scratch(64 << 10);
  *size = 0;
  for (size_t got = scratch.size(); result.ok() && got == scratch.size(); *size += got) {
    result = reader->Read(scratch.size(), scratch.data(), &got);
  }
  return result;
}

Result Streams::Remove(const std::string& path) {
  if (!IsLogName(path)) return {ONEJOURNAL_ENOTFOUND, path + " is no stream"};
  std::string name;
  Result result = StreamName(path, &name);
  return result.ok() ? Checked(onejournal_log_remove(log_.get(), name.c_str())) : result;
}

Result Streams::List(const std::string& directory, std::vector<std::string>* names) {
  std::string tag;
  Result result = Tag(directory, &tag);
  if (result.not_found()) return {};
  if (!result.ok()) return result;
  std::vector<char> text(4096);
  size_t len = 0;
  int code;
  while ((code = onejournal_log_list(log_.get(), text.data(), text.size(), &len)) ==
         ONEJOURNAL_ERANGE) {
    text.resize(len * 2);
  }
  if (code != 0) return Checked(code);
  const std::string prefix = tag + ".";
  for (const char *at = text.data(), *end = at + len - 1; at < end;) {
    const char* stop = std::find(at, end, '\n');
    std::string name(at, stop);
    if (StartsWith(name, prefix)) names->push_back(name.substr(prefix.size()));
    at = stop + 1;
  }
  return {};
}

Result Streams::CopyToFile(const std::string& path, const std::string& target) {
  std::unique_ptr<Reader> reader;
  Result opened = OpenReader(path, &reader);
  if (!opened.ok()) return opened;
  return ReplaceFile(target, [&](int fd) {
    std::vector<char> scratch(64 << 10);
    Result result;
    for (size_t got = scratch.size(); result.ok() && got == scratch.size();) {
      result = reader->Read(scratch.size(), scratch.data(), &got);
      if (result.ok()) result = WriteAll(fd, scratch.data(), got, target);
    }
    return result;
  });
}

Result Streams::Export(const std::string& directory) {
  std::vector<std::string> names;
  Result result = List(directory, &names);
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    if (result.ok()) result = CopyToFile(path, path);
    if (result.ok()) result = Remove(path);
  }
  return result.ok() ? Forget(directory) : result;
}

Result Streams::Forget(const std::string& directory) {
  std::vector<std::string> names;
  Result result = List(directory, &names);
  if (!result.ok()) return result;
  if (!names.empty()) {
    return {ONEJOURNAL_EUSAGE, directory + " is not empty: it has the stream " + names.front()};
  }
  const std::string path = directory + "/" + kTagFile;
  if (unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) return SystemError(path);
  return {};
}

}  // namespace onejournal
