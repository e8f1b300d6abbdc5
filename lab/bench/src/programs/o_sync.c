// LD_PRELOAD for programs that cannot be told to write synchronously: every file that is opened for
// writing is opened with O_SYNC.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

int open(const char *path, int flags, ...) {
  // What comes after this library may take O_SYNC away again: libeatmydata does.
  int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
  mode_t mode = 0;
  if (flags & (O_CREAT | __O_TMPFILE)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if ((flags & O_ACCMODE) != O_RDONLY) flags |= O_SYNC;
  return next(path, flags, mode);
}
