/*
 * onejournal_log.h: durable appends from C and C++. Link with -lonejournal_log.
 *
 *   #include <onejournal_log.h>
 *   #include <stdio.h>
 *   int main(void) {
 *       onejournal_log *log = NULL; onejournal_stream *stream = NULL; uint64_t lsn;
 *       if (onejournal_log_open("/var/lib/app/log", NULL, &log) == 0 &&
 *           onejournal_stream_open(log, "app.wal", ONEJOURNAL_CREATE, &stream) == 0 &&
 *           onejournal_append(stream, "hello", 5, &lsn) == 0 && onejournal_sync(stream, lsn) == 0)
 *           puts("durable");
 *       else puts(onejournal_log_error());
 *       return onejournal_stream_close(stream), onejournal_log_close(log), 0;
 *   }
 *
 * RESULTS. Every function but onejournal_log_error() and onejournal_log_version() returns 0 or one
 * of the negative numbers below; onejournal_log_error() then says in words what was wrong. An
 * append that failed appended nothing.
 *
 * THREADS. Every function may be called from any thread at any time, also with the same handle, but
 * for closing a handle, which must be its last use. Appends to one stream from several threads
 * follow each other. What a cursor returned is valid until the next call with the same cursor.
 *
 * PROCESSES. Any number of processes may open the same log. A stream has one writing process at a
 * time: the first append takes its lease, onejournal_stream_release() or the end of the process
 * gives it back. After fork() the child must not use its parent's handles.
 *
 * POINTERS. NULL, misaligned handles, handles of another kind and, as long as their memory was not
 * used again, closed handles are refused with ONEJOURNAL_EUSAGE. Text is UTF-8 and ends with a NUL.
 * Out-parameters that are said to be optional may be NULL. No C++ exception and no signal comes out
 * of this library.
 */
#ifndef ONEJOURNAL_LOG_H
#define ONEJOURNAL_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can go wrong. The message of onejournal_log_error() says which of these it was. */
enum {
    ONEJOURNAL_EIO = -1,           /* the medium failed */
    ONEJOURNAL_ESYSTEM = -2,       /* the system refused a file, a directory, a lock, memory: the
                                      message has its words */
    ONEJOURNAL_EABORTED = -3,      /* an earlier write failed, the stream was removed, or its shared
                                      memory was changed */
    ONEJOURNAL_EBUSY = -4,         /* another process writes the stream */
    ONEJOURNAL_EFULL = -5,         /* the pool or the file system is full; nothing was appended */
    ONEJOURNAL_EDAMAGED = -6,      /* the stream has damaged bytes before valid records */
    ONEJOURNAL_EINCOMPATIBLE = -7, /* no log, another version, made with other media, or a part of
                                      it is missing */
    ONEJOURNAL_EUSAGE = -8,        /* an argument that cannot be: also a path whose parent directory
                                      does not exist, and a durability without nvram; too many
                                      processes or streams */
    ONEJOURNAL_ENOTFOUND = -9,     /* no such stream (any more), or a position that was truncated
                                      away */
    ONEJOURNAL_EDENIED = -10,      /* the user may not do that, or has reached a quota of the
                                      daemon */
    ONEJOURNAL_EDAEMON = -11,      /* the daemon is gone or does not understand, or serves the
                                      directory that was opened */
    ONEJOURNAL_ERANGE = -12,       /* the buffer is too small; *len says how large it must be */
    ONEJOURNAL_EBUG = -13          /* a bug of this library: please report the message */
};

/* What a synced append survives. */
enum {
    ONEJOURNAL_DURABILITY_DEFAULT = 0, /* in options: what the medium is found to be */
    ONEJOURNAL_DURABILITY_POWER = 1,   /* loss of power */
    ONEJOURNAL_DURABILITY_REBOOT = 2,  /* a restart of the operating system that keeps the memory */
    ONEJOURNAL_DURABILITY_PROCESS = 3  /* the end of every process, not of the machine */
};

/* Flags of onejournal_stream_open(). */
enum { ONEJOURNAL_CREATE = 1 /* make the stream when there is none */ };

/* Streams' names: 1 to 128 letters, digits, '.', '_', '-', the first of them no dot. */
enum { ONEJOURNAL_NAME_BYTES_MAX = 128 };

/* Bytes of a record: 1 to 16 MiB. */
enum { ONEJOURNAL_RECORD_BYTES_MAX = 16 << 20 };

typedef struct onejournal_log onejournal_log;
typedef struct onejournal_stream onejournal_stream;
typedef struct onejournal_cursor onejournal_cursor;

/* How a log is made; one that exists keeps what it was made with. 0 or NULL: the default. */
typedef struct onejournal_log_options {
    size_t struct_bytes;    /* sizeof(onejournal_log_options) */
    const char *nvram;      /* directory on NVRAM for the appends; default: shared memory and a
                               group log on disk */
    const char *memory;     /* directory of the shared memory when there is none yet: a tmpfs that
                               all processes see (/dev/shm) */
    uint64_t pool_bytes;    /* memory for what is not in log files yet (64 MiB) */
    uint64_t segment_bytes; /* largest log file (16 MiB) */
    uint64_t group_bytes;   /* size of the group log (16 MiB) */
    uint32_t full_wait_ms;  /* how long an append waits when the pool is full (10,000) */
    int32_t durability;     /* what the NVRAM is to be called, when that is less than power; refused
                               without nvram */
} onejournal_log_options;

#define ONEJOURNAL_LOG_OPTIONS { sizeof(onejournal_log_options), NULL, NULL, 0, 0, 0, 0, 0 }

/* One record; data is NULL at the end of what is durable. */
typedef struct onejournal_record {
    uint64_t lsn; /* where it begins in its stream */
    uint64_t usn; /* orders it among the records of all streams */
    const void *data;
    size_t len;
} onejournal_record;

/* Words for the last failure in this thread; "" when there was none. Valid until the next failure
 * in this thread. */
const char *onejournal_log_error(void);

/* The version of this library, as in "0.1.0". */
const char *onejournal_log_version(void);

/* Opens the log at path: a directory, where a log is made with these options when there is none, or
 * the socket of a daemon (`onejournal logd`), which has options of its own. options may be NULL.
 * While a daemon serves a directory, the directory is refused with ONEJOURNAL_EDAEMON and the
 * message names the socket. */
int onejournal_log_open(const char *path, const onejournal_log_options *options,
                        onejournal_log **log);

/* Closes it; NULL is allowed. When its streams were closed before, all that was appended is brought
 * to the log files, and the last process to close a log leaves nothing in shared memory; an error
 * says that this failed, and what was appended stays in shared memory. The handle is closed in any
 * case. Streams and cursors that are open stay so, and keep what they need. */
int onejournal_log_close(onejournal_log *log);

/* What a synced append survives: ONEJOURNAL_DURABILITY_POWER, _REBOOT or _PROCESS. */
int onejournal_log_durability(const onejournal_log *log, int *durability);

/* The log's own identity, 32 hexadecimal digits and a NUL. */
int onejournal_log_uuid(const onejournal_log *log, char uuid[33]);

/* Counters as JSON, into text, which has room for capacity bytes. *len (optional): bytes with the
 * NUL; when they are more than capacity, ONEJOURNAL_ERANGE is returned and nothing was stored. */
int onejournal_log_stat(const onejournal_log *log, char *text, size_t capacity, size_t *len);

/* The names of all streams, sorted, each followed by a newline; capacity and len as above. */
int onejournal_log_list(const onejournal_log *log, char *text, size_t capacity, size_t *len);

/* Removes a stream and all it holds, durably. ONEJOURNAL_EBUSY while another process writes it. */
int onejournal_log_remove(const onejournal_log *log, const char *name);

/* Opens a stream. Without ONEJOURNAL_CREATE it must be there. */
int onejournal_stream_open(const onejournal_log *log, const char *name, unsigned flags,
                           onejournal_stream **stream);

/* Closes it; NULL is allowed. The lease stays with the process. */
int onejournal_stream_close(onejournal_stream *stream);

/* Lets another process write the stream. */
int onejournal_stream_release(const onejournal_stream *stream);

/* Appends one record, durable after onejournal_sync(), on NVRAM at once. It survives the end of the
 * process from now on. *lsn (optional): where it begins. */
int onejournal_append(const onejournal_stream *stream, const void *data, size_t len, uint64_t *lsn);

/* Appends count records one after the other, half a pool of bytes at most. A crash in the middle
 * leaves any number of the first ones. *lsn (optional): where the last one begins. */
int onejournal_append_batch(const onejournal_stream *stream, const struct iovec *records,
                            size_t count, uint64_t *lsn);

/* Returns when the record at lsn and all before it are durable; one device write for everybody who
 * waits. */
int onejournal_sync(const onejournal_stream *stream, uint64_t lsn);

/* Makes all that was appended durable, and visible to cursors, by bringing it to the log files. */
int onejournal_flush(const onejournal_stream *stream);

/* Gives back the room of the records before lsn, by whole log files. */
int onejournal_truncate_before(const onejournal_stream *stream, uint64_t lsn);

/* head: where the first record begins that was not truncated away. end: where the durable records
 * end. appended: where the appended records end. Each is optional. */
int onejournal_positions(const onejournal_stream *stream, uint64_t *head, uint64_t *end,
                         uint64_t *appended);

/* Counters of a stream as JSON; as onejournal_log_stat(). */
int onejournal_stream_stat(const onejournal_stream *stream, char *text, size_t capacity,
                           size_t *len);

/* A cursor at lsn, which must be where a record begins, or the end. */
int onejournal_cursor_open(const onejournal_stream *stream, uint64_t lsn,
                           onejournal_cursor **cursor);

/* Closes it; NULL is allowed. */
int onejournal_cursor_close(onejournal_cursor *cursor);

/* The next durable record; record->data is NULL when there is none (yet: a later call may find
 * one). */
int onejournal_cursor_next(const onejournal_cursor *cursor, onejournal_record *record);

#ifdef __cplusplus
}
#endif

#endif
