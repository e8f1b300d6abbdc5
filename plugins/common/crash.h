// The crash test of both plug-ins: after a crash the database is in the state after some operation,
// no acknowledged operation is missing, and none was invented.
//
// A child process writes until it is killed at a random moment. Operation i of life L is one batch:
// a put or a deletion that is computed from i and L, and "last" = i. So "last" tells which
// operation was the last, and the whole contents can be computed from it. The child shares two
// words with its parent: the last acknowledged and the last synced operation. After the end of the
// process every acknowledged operation must be there. After a power cut, which is simulated by
// removing the log's shared memory, every synced one must be.

#ifndef ONEJOURNAL_PLUGINS_COMMON_CRASH_H_
#define ONEJOURNAL_PLUGINS_COMMON_CRASH_H_

namespace onejournal {

// The main function of a crash test: runs rounds, or, with arguments that only it knows, is the
// child.
int CrashMain(int count, char** arguments);

}  // namespace onejournal

#endif
