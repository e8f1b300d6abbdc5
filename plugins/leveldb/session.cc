// LevelDB for a program that judges what a power cut leaves of it.

#include "../common/session.h"

int main(int count, char** arguments) { return onejournal::SessionMain(count, arguments); }
