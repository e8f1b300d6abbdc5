// The benchmark of both plug-ins; see bench.h.

#include "bench.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
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

enum class Order { kSequential, kRandom, kOverwrite };

struct Arguments {
  std::string directory, nvram, values;
  size_t puts = 20000;
  std::vector<size_t> sizes = {100, 400, 800, 1600};
  Order order = Order::kRandom;
  bool with_ours = true;
  bool is_asked = false;
};

class Filler {
 public:
  Filler(const std::string& path, const DatabaseOptions& options, const Arguments& arguments,
         size_t value_bytes)
      : path_(path),
        options_(options),
        order_(arguments.order),
        puts_(arguments.puts),
        values_(arguments.values),
        value_(value_bytes, 'v') {
    DestroyDatabase(path_, options_);
    database_ = OpenDatabase(path_, options_);
    if (order_ == Order::kOverwrite) Prefill();
  }
  ~Filler() {
    Close();
    DestroyDatabase(path_, options_);
  }

  void Fill(size_t count) {
    for (size_t number = 0; number < count; number++) {
      const std::vector<Change> changes = {NextChange()};
      const auto begin = std::chrono::steady_clock::now();
      database_->Write(changes, true);
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - begin;
      times.all.push_back(time.count());
    }
  }

  // Closes the database and its log, which brings all records to files.
  void Close() { database_.reset(); }

  Times times;

 private:
  // All keys that are overwritten later, in the database's tables.
  void Prefill() {
    std::vector<Change> changes;
    for (size_t number = 0; number < puts_; number++) changes.push_back({Key(number), NextValue()});
    database_->Write(changes, true);
    database_->Compact();
    Close();
    database_ = OpenDatabase(path_, options_);
  }

  Change NextChange() {
    switch (order_) {
      case Order::kSequential:
        return {Key(next_++), NextValue()};
      case Order::kOverwrite:
        return {Key(random_() % puts_), NextValue()};
      case Order::kRandom:
        break;
    }
    return {Key(random_()), NextValue()};
  }

  static std::string Key(uint64_t number) {
    char key[17];
    std::snprintf(key, sizeof key, "%016llx", static_cast<unsigned long long>(number));
    return key;
  }

  // The next piece of the given values, or random bytes: nothing compresses.
  const std::string& NextValue() {
    if (!values_.empty()) {
      for (char& byte : value_) byte = values_[next_byte_++ % values_.size()];
      return value_;
    }
    for (size_t at = 0; at < value_.size(); at += sizeof(uint64_t)) {
      const uint64_t random = random_();
      std::memcpy(&value_[at], &random, std::min(sizeof random, value_.size() - at));
    }
    return value_;
  }

  const std::string path_;
  const DatabaseOptions options_;
  const Order order_;
  const size_t puts_;
  const std::string values_;
  std::unique_ptr<Database> database_;
  std::string value_;
  uint64_t next_ = 0;
  size_t next_byte_ = 0;
  std::mt19937_64 random_{7};
};

bool ParseOrder(const std::string& name, Order* order) {
  if (name == "fillseq") *order = Order::kSequential;
  else if (name == "fillrandom") *order = Order::kRandom;
  else if (name == "overwrite") *order = Order::kOverwrite;
  else return false;
  return true;
}

// Whether the file is there and has any.
bool ReadValues(const char* path, std::string* values) {
  std::ifstream file(path, std::ios::binary);
  values->assign(std::istreambuf_iterator<char>(file), {});
  return !values->empty();
}

// Whether they are usable.
bool Parse(int count, char** words, Arguments* parsed) {
  for (int index = 1; index < count; index++) {
    const std::string word = words[index];
    const char* next = index + 1 < count ? words[index + 1] : nullptr;
    if (word == "--plain") {
      parsed->with_ours = false;
    } else if (word == "--asked") {
      parsed->is_asked = true;
    } else if (word[0] != '-' && parsed->directory.empty()) {
      parsed->directory = word;
    } else if (next == nullptr) {
      return false;
    } else if (word == "--nvram") {
      parsed->nvram = words[++index];
    } else if (word == "--puts") {
      parsed->puts = std::max<size_t>(std::stoul(words[++index]), kBlockPuts);
    } else if (word == "--bytes") {
      parsed->sizes = {std::stoul(words[++index])};
    } else if (word == "--values") {
      if (!ReadValues(words[++index], &parsed->values)) return false;
    } else if (word != "--order" || !ParseOrder(words[++index], &parsed->order)) {
      return false;
    }
  }
  return !parsed->directory.empty() && (!parsed->is_asked || parsed->sizes.size() == 1);
}

// One side, at the word of the caller, which counts what a disk is asked for. When the times are
// printed, all records are in files.
void FillWhenAsked(const Arguments& arguments, const DatabaseOptions& options) {
  const size_t value_bytes = arguments.sizes.front();
  const std::string path = arguments.directory + (arguments.with_ours ? "/ours" : "/plain");
  Filler filler(path, options, arguments, value_bytes);
  const auto wait = [] {
    int next;
    do next = std::getchar();
    while (next != '\n' && next != EOF);
  };
  std::printf("ready\n");
  std::fflush(stdout);
  wait();
  filler.Fill(arguments.puts);
  filler.Close();
  std::printf("%.1f %.1f\n", filler.times.Median(), filler.times.Mean());
  std::fflush(stdout);
  wait();
}

// Both sides in turns.
void FillInTurns(const char* title, const Arguments& arguments, const DatabaseOptions& ours) {
  std::printf("%s, synchronous, %zu puts a side, logs %s\n", title, arguments.puts,
              arguments.nvram.empty() ? "through the group log on the same disk"
                                      : "on an NVRAM lane");
  std::printf("%8s %12s %12s %8s %12s %12s %8s\n", "bytes", "plain us", "ours us", "median",
              "plain mean", "ours mean", "mean");
  for (size_t value_bytes : arguments.sizes) {
    Filler theirs(arguments.directory + "/plain", {}, arguments, value_bytes);
    std::optional<Filler> with_streams;
    if (arguments.with_ours) {
      with_streams.emplace(arguments.directory + "/ours", ours, arguments, value_bytes);
    }
    for (size_t done = 0; done < arguments.puts; done += kBlockPuts) {
      theirs.Fill(kBlockPuts);
      if (with_streams) with_streams->Fill(kBlockPuts);
    }
    if (!with_streams) {
      std::printf("%8zu %12.1f %12s %8s %12.1f\n", value_bytes, theirs.times.Median(), "-", "-",
                  theirs.times.Mean());
      continue;
    }
    Filler& mine = *with_streams;
    const double their_median = theirs.times.Median(), my_median = mine.times.Median();
    std::printf("%8zu %12.1f %12.1f %7.1fx %12.1f %12.1f %7.1fx\n", value_bytes, their_median,
                my_median, their_median / my_median, theirs.times.Mean(), mine.times.Mean(),
                theirs.times.Mean() / mine.times.Mean());
    std::fflush(stdout);
  }
}

}  // namespace

int BenchMain(const char* title, int count, char** words) {
  Arguments arguments;
  if (!Parse(count, words, &arguments)) {
    std::fprintf(stderr,
                 "usage: bench DIR [--nvram DIR] [--puts COUNT] [--bytes VALUE_SIZE] [--plain]\n"
                 "                 [--order fillseq|fillrandom|overwrite] [--values FILE] "
                 "[--asked]\n");
    return 2;
  }
  char memory[] = "/dev/shm/onejournal-bench-XXXXXX";
  MUST(mkdtemp(memory) != nullptr, memory);
  DatabaseOptions ours;
  ours.log.path = arguments.directory + "/log";
  ours.log.memory = memory;
  fs::create_directories(arguments.directory);
  if (!arguments.nvram.empty()) {
    ours.log.nvram = arguments.nvram + "/onejournal-bench";
    ours.log.durability = ONEJOURNAL_DURABILITY_PROCESS;
    fs::create_directories(ours.log.nvram);
  }
  if (arguments.is_asked) {
    FillWhenAsked(arguments, arguments.with_ours ? ours : DatabaseOptions{});
  } else {
    FillInTurns(title, arguments, ours);
  }
  for (const std::string& made : {ours.log.path, ours.log.nvram, ours.log.memory}) {
    fs::remove_all(made);
  }
  return 0;
}

}  // namespace onejournal
