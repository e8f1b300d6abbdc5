// Kills LevelDB at random moments and checks what is left: crash_test [ROUNDS [SEED]].

#include "../common/crash.h"

int main(int count, char** arguments) { return onejournal::CrashMain(count, arguments); }
