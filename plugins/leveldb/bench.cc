// What a synchronous put costs with LevelDB's own files and with streams.

#include "../common/bench.h"

int main(int count, char** arguments) { return onejournal::BenchMain("LevelDB", count, arguments); }
