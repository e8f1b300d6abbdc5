// What must hold after a crash: the database is the one after some operation, none that was acknowledged is missing,
// and none was invented.
//
// A child process writes until it is killed at a random moment. Operation i of life L is one batch: a put or a deletion
// that follows from i and L, and "last" = i. So what is found says which operation was the last, and all of the
// contents follow. Two shared words say how far the child was acknowledged at all, and synced. After the end
// of the process everything acknowledged must be there; after the loss of all that was not durable (the log's shared
// memory is removed, which is what a power cut does to it), what was synced.

#ifndef ONEJOURNAL_PLUGINS_COMMON_CRASH_H_
#define ONEJOURNAL_PLUGINS_COMMON_CRASH_H_

namespace onejournal {

// The main function of a crash test: runs rounds, or, with arguments that only it knows, is the child.
int CrashMain(int count, char** arguments);

}  // namespace onejournal

#endif
