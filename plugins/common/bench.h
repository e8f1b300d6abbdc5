// The benchmark of both plug-ins, fillsync: synchronous puts of random keys, in turns without and with the plug-in.

#ifndef ONEJOURNAL_PLUGINS_COMMON_BENCH_H_
#define ONEJOURNAL_PLUGINS_COMMON_BENCH_H_

namespace onejournal {

// The main function of a benchmark: bench DIR [--nvram DIR] [--puts COUNT].
int BenchMain(const char* title, int count, char** arguments);

}  // namespace onejournal

#endif
