// The benchmark of both plug-ins; see bench.h.

#include "bench.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "database.h"

namespace onejournal {

namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockPuts = 500;

// Times of single puts, in µs.
struct Times {
  std::vector<double> all;

  double Median() {
    std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
    return all[all.size() / 2];
  }
  double Mean() const {
    double sum = 0;
    for (double time : all) sum += time;
    return sum / static_cast<double>(all.size());
  }
};

class Filler {
 public:
  Filler(const std::string& path, const DatabaseOptions& options, size_t value_bytes)
      : path_(path), options_(options), value_(value_bytes, 'v') {
    DestroyDatabase(path_, options_);
    database_ = OpenDatabase(path_, options_);
  }
  ~Filler() {
    database_.reset();
    DestroyDatabase(path_, options_);
  }

  void Fill(size_t count) {
    for (size_t number = 0; number < count; number++) {
      char key[17];
      std::snprintf(key, sizeof key, "%016llx", static_cast<unsigned long long>(random_()));
      // Random bytes: nothing compresses.
      for (size_t at = 0; at < value_.size(); at += sizeof(uint64_t)) {
        const uint64_t random = random_();
        std::memcpy(&value_[at], &random, std::min(sizeof random, value_.size() - at));
      }
      const std::vector<Change> changes = {{key, value_}};
      const auto begin = std::chrono::steady_clock::now();
      database_->Write(changes, true);
      const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
      times.all.push_back(time.count());
    }
  }

  Times times;

 private:
  const std::string path_;
  const DatabaseOptions options_;
  std::unique_ptr<Database> database_;
  std::string value_;
  std::mt19937_64 random_{7};
};

}  // namespace

int BenchMain(const char* title, int count, char** arguments) {
  std::string directory, nvram;
  size_t puts = 20000;
  std::vector<size_t> sizes = {100, 400, 800, 1600};
  bool with_ours = true;
  for (int index = 1; index < count; index++) {
    const std::string argument = arguments[index];
    const char* next = index + 1 < count ? arguments[index + 1] : nullptr;
    if (argument == "--nvram" && next != nullptr) {
      nvram = arguments[++index];
    } else if (argument == "--puts" && next != nullptr) {
      puts = std::max<size_t>(std::stoul(arguments[++index]), kBlockPuts);
    } else if (argument == "--bytes" && next != nullptr) {
      sizes = {std::stoul(arguments[++index])};
    } else if (argument == "--plain") {
      with_ours = false;
    } else if (directory.empty() && argument[0] != '-') {
      directory = argument;
    } else {
      directory.clear();
      break;
    }
  }
  if (directory.empty()) {
    std::fprintf(stderr, "usage: bench DIR [--nvram DIR] [--puts COUNT] [--bytes VALUE_SIZE] [--plain]\n");
    return 2;
  }
  char memory[] = "/dev/shm/onejournal-bench-XXXXXX";
  MUST(mkdtemp(memory) != nullptr, memory);
  DatabaseOptions plain, ours;
  ours.log.path = directory + "/log";
  ours.log.memory = memory;
  fs::create_directories(directory);
  if (!nvram.empty()) {
    ours.log.nvram = nvram + "/onejournal-bench";
    ours.log.durability = ONEJOURNAL_DURABILITY_PROCESS;
    fs::create_directories(ours.log.nvram);
  }
  std::printf("%s, fillsync, %zu puts a side, logs %s\n", title, puts,
              nvram.empty() ? "through the group log on the same disk" : "on an NVRAM lane");
  std::printf("%8s %12s %12s %8s %12s %12s %8s\n", "bytes", "plain us", "ours us", "median", "plain mean", "ours mean", "mean");
  for (size_t value_bytes : sizes) {
    Filler theirs(directory + "/plain", plain, value_bytes);
    std::optional<Filler> with_streams;
    if (with_ours) with_streams.emplace(directory + "/ours", ours, value_bytes);
    for (size_t done = 0; done < puts; done += kBlockPuts) {
      theirs.Fill(kBlockPuts);
      if (with_streams) with_streams->Fill(kBlockPuts);
    }
    if (!with_streams) {
      std::printf("%8zu %12.1f %12s %8s %12.1f\n", value_bytes, theirs.times.Median(), "-", "-", theirs.times.Mean());
      continue;
    }
    Filler& mine = *with_streams;
    const double their_median = theirs.times.Median(), my_median = mine.times.Median();
    std::printf("%8zu %12.1f %12.1f %7.1fx %12.1f %12.1f %7.1fx\n", value_bytes, their_median, my_median,
                their_median / my_median, theirs.times.Mean(), mine.times.Mean(), theirs.times.Mean() / mine.times.Mean());
    std::fflush(stdout);
  }
  for (const std::string& made : {ours.log.path, ours.log.nvram, ours.log.memory}) fs::remove_all(made);
  return 0;
}

}  // namespace onejournal
