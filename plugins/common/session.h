// A database for a program that judges what a power cut leaves of it.

#ifndef ONEJOURNAL_PLUGINS_COMMON_SESSION_H_
#define ONEJOURNAL_PLUGINS_COMMON_SESSION_H_

namespace onejournal {

// The main function of a session: session DIR [--log LOG].
//
// It first prints how many records the database counts, then the records in order, each on a line,
// and "end". After that it reads lines "NUMBER sync|lazy RECORD", adds the record and its count as
// one batch, with or without a sync, and prints "done NUMBER". After the last line it closes the
// database.
int SessionMain(int count, char** arguments);

}  // namespace onejournal

#endif
