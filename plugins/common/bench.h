// The benchmark of both plug-ins: synchronous puts of sequential, random or existing keys, in
// turns without and with the plug-in; or one of the two, when the caller says so (--asked).

#ifndef ONEJOURNAL_PLUGINS_COMMON_BENCH_H_
#define ONEJOURNAL_PLUGINS_COMMON_BENCH_H_

namespace onejournal {

// The main function of a benchmark; without arguments it prints its usage.
int BenchMain(const char* title, int count, char** words);

}  // namespace onejournal

#endif
