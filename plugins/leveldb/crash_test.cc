// LevelDB killed at random moments: crash_test [ROUNDS [SEED]].

#include "../common/crash.h"

int main(int count, char** arguments) { return onejournal::CrashMain(count, arguments); }
