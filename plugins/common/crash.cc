// The crash test of both plug-ins; see crash.h.

#include "crash.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>

#include "database.h"

namespace onejournal {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kKeyCount = 3000;

// What the child tells, in a file that both map.
struct Shared {
  std::atomic<uint64_t> acknowledged;
  std::atomic<uint64_t> synced;
};

Shared* MapShared(const std::string& path) {
  int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  MUST(fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0, path);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  MUST(memory != MAP_FAILED, path);
  close(fd);
  return static_cast<Shared*>(memory);
}

uint64_t Hash(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 29;
  value *= 0xc4ceb9fe1a85ec53ULL;
  return value ^ value >> 32;
}

Change ChangeOf(uint64_t number, uint64_t life) {
  const uint64_t random = Hash(number * 1000 + life);
  Change change{"key" + std::to_string(random % kKeyCount), std::nullopt};
  if (random >> 20 & 7) {
    change.value = std::to_string(number) + "/" + std::to_string(life) + ":";
    change.value->resize(change.value->size() + (random >> 24) % 2000,
                         static_cast<char>('a' + number % 26));
  }
  return change;
}

struct Place {
  fs::path root;
  fs::path memory;
  bool is_nvram;

  DatabaseOptions Options() const {
    DatabaseOptions options;
    options.write_buffer_bytes = 64 << 10;
    options.log.path = root / "log";
    options.log.memory = memory;
    options.log.pool_bytes = 4 << 20;
    if (is_nvram) {
      options.log.nvram = memory / "nvram";
      options.log.durability = ONEJOURNAL_DURABILITY_PROCESS;
    }
    return options;
  }

  std::string Path() const { return root / "db"; }

  // Everything that is not durable goes.
  void LoseMemory() const {
    for (const auto& entry : fs::directory_iterator(memory)) {
      if (entry.path().filename() != "nvram") fs::remove_all(entry.path());
    }
  }
};

// Writes until it is killed. A liar says synced of what it did not sync.
[[noreturn]] void RunChild(const Place& place, const std::string& shared_path, uint64_t first,
                           uint64_t life, bool is_liar) {
  Shared* shared = MapShared(shared_path);
  std::unique_ptr<Database> database = OpenDatabase(place.Path(), place.Options());
  for (uint64_t number = first;; number++) {
    const bool sync = number % 3 == 0;
    database->Write({ChangeOf(number, life), {"last", std::to_string(number)}}, sync && !is_liar);
    shared->acknowledged.store(number, std::memory_order_release);
    if (sync) shared->synced.store(number, std::memory_order_release);
  }
}

// The rounds of one place.
class Rounds {
 public:
  Rounds(const char* program, Place place, uint64_t seed, bool is_liar)
      : program_(program), place_(std::move(place)), is_liar_(is_liar), random_(seed) {}

  // Kills a child; whether the database is what it must be. Ends the program when it is wrong in a
  // way that no liar explains.
  bool Run(bool loses_memory) {
    const std::string shared_path = place_.root / "shared";
    Shared* shared = MapShared(shared_path);
    shared->acknowledged = shared->synced = last_;
    life_++;
    const pid_t child = Start(shared_path);
    // A third of them while the database is opened, or shortly after.
    if (random_() % 3 != 0) {
      for (int tries = 0; shared->acknowledged == last_; tries++) {
        MUST(tries < 120000 && waitpid(child, nullptr, WNOHANG) == 0, "the child does not write");
        usleep(1000);
      }
    }
    usleep(static_cast<useconds_t>(random_() % 100000));
    kill(child, SIGKILL);
    int status;
    MUST(waitpid(child, &status, 0) == child, "wait");
    MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child ended by itself");
    if (loses_memory) place_.LoseMemory();
    const uint64_t least = loses_memory && !place_.is_nvram ? shared->synced : shared->acknowledged;
    const uint64_t most = shared->acknowledged + 1;
    munmap(shared, sizeof(Shared));
    return Check(least, most);
  }

  uint64_t last() const { return last_; }

 private:
  pid_t Start(const std::string& shared_path) {
    const std::string first = std::to_string(last_ + 1), life = std::to_string(life_);
    const pid_t child = fork();
    MUST(child >= 0, "fork");
    if (child == 0) {
      execl(program_, program_, "--child", place_.root.c_str(), place_.memory.c_str(),
            place_.is_nvram ? "1" : "0", shared_path.c_str(), first.c_str(), life.c_str(),
            is_liar_ ? "1" : "0", nullptr);
      _exit(127);
    }
    return child;
  }

  bool Check(uint64_t least, uint64_t most) {
    std::map<std::string, std::string> found;
    std::unique_ptr<Database> database = OpenDatabase(place_.Path(), place_.Options());
    database->ForEach(
        [&](const std::string& key, const std::string& value) { found[key] = value; });
    const auto at = found.find("last");
    const uint64_t last = at == found.end() ? 0 : std::stoull(at->second);
    if (at != found.end()) found.erase(at);
    const std::string range =
        std::to_string(last) + " of " + std::to_string(least) + " to " + std::to_string(most);
    MUST(last <= most, "invented: " + range);
    if (last < least) {
      MUST(is_liar_, "lost what was acknowledged: " + range);
      return false;
    }
    for (uint64_t number = last_ + 1; number <= last; number++) {
      Change change = ChangeOf(number, life_);
      if (change.value) {
        model_[change.key] = *change.value;
      } else {
        model_.erase(change.key);
      }
    }
    MUST(found == model_, "other contents than after operation " + range);
    last_ = last;
    if (random_() % 8 == 0) database->Compact();
    return true;
  }

  const char* const program_;
  const Place place_;
  const bool is_liar_;
  std::mt19937_64 random_;
  std::map<std::string, std::string> model_;
  uint64_t last_ = 0;
  uint64_t life_ = 0;
};

// A place of its own for each test; the memory is a tmpfs.
class Scratch {
 public:
  explicit Scratch(bool is_nvram) {
    char root[] = "/tmp/onejournal-crash-XXXXXX", memory[] = "/dev/shm/onejournal-crash-XXXXXX";
    MUST(mkdtemp(root) != nullptr && mkdtemp(memory) != nullptr, "mkdtemp");
    place = {root, memory, is_nvram};
    fs::create_directory(place.memory / "nvram");
  }
  ~Scratch() {
    fs::remove_all(place.root);
    fs::remove_all(place.memory);
  }

  Place place;
};

void RunPlace(const char* program, bool is_nvram, bool loses_memory, int round_count,
              uint64_t seed) {
  Scratch scratch(is_nvram);
  Rounds rounds(program, scratch.place, seed, false);
  for (int round = 0; round < round_count; round++) MUST(rounds.Run(loses_memory), "no liar");
  MUST(rounds.last() > 0, "nothing was written");
  std::printf("%s, %s: %d kills, %llu operations, seed %llu: nothing acknowledged was lost, "
              "nothing invented\n",
              is_nvram ? "NVRAM lane" : "block media",
              loses_memory ? "memory lost" : "process ended", round_count,
              static_cast<unsigned long long>(rounds.last()),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
}

// The check must find that a child lies.
void RunCanary(const char* program, uint64_t seed) {
  Scratch scratch(false);
  Rounds rounds(program, scratch.place, seed, true);
  for (int round = 0; round < 50; round++) {
    if (!rounds.Run(true)) {
      std::printf("canary: a sync that was left out is found in round %d\n", round + 1);
      return;
    }
  }
  MUST(false, "canary: puts that were not synced were never lost");
}

}  // namespace

int CrashMain(int count, char** arguments) {
  if (count == 9 && std::string(arguments[1]) == "--child") {
    const Place place = {arguments[2], arguments[3], std::string(arguments[4]) == "1"};
    RunChild(place, arguments[5], std::stoull(arguments[6]), std::stoull(arguments[7]),
             std::string(arguments[8]) == "1");
  }
  const int round_count = count > 1 ? std::atoi(arguments[1]) : 40;
  const uint64_t seed = count > 2 ? std::stoull(arguments[2]) : std::random_device()();
  const char* program = "/proc/self/exe";
  for (bool is_nvram : {false, true}) {
    for (bool loses_memory : {false, true}) {
      RunPlace(program, is_nvram, loses_memory, round_count, seed);
    }
  }
  RunCanary(program, seed);
  return 0;
}

}  // namespace onejournal
