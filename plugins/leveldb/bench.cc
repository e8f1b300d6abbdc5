// Measures the cost of a synchronous put with LevelDB's own files and with streams.

#include "../common/bench.h"

int main(int count, char** arguments) { return onejournal::BenchMain("LevelDB", count, arguments); }
