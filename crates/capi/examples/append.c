/*
 * append.c: appends records to a log, syncs once for all of them, and reads them back.
 *
 *   cc append.c -I crates/capi/include -L target/release -lonejournal_log
 *       -Wl,-rpath,target/release -o append
 *   ./append DIR
 */
#include <onejournal_log.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, onejournal_log_error());
    return 1;
}

/* Appends three records. They are durable when this returns 0. */
static int append_records(const onejournal_stream *stream)
{
    static const char *const text[] = {"first", "second", "third"};
    uint64_t lsn = 0;

    for (int i = 0; i < 3; i++)
        if (onejournal_append(stream, text[i], strlen(text[i]), &lsn) != 0)
            return fail("append");
    return onejournal_sync(stream, lsn) != 0 ? fail("sync") : 0;
}

/* Prints all durable records of the stream, from the first that was not truncated away. */
static int print_records(const onejournal_stream *stream)
{
    onejournal_cursor *cursor = NULL;
    onejournal_record record;
    uint64_t head = 0;
    int rc;

    if (onejournal_positions(stream, &head, NULL, NULL) != 0 ||
        onejournal_cursor_open(stream, head, &cursor) != 0)
        return fail("cursor");
    while ((rc = onejournal_cursor_next(cursor, &record)) == 0 && record.data != NULL)
        printf("%" PRIu64 ": %.*s\n", record.lsn, (int)record.len, (const char *)record.data);
    if (rc != 0)
        fail("read");
    onejournal_cursor_close(cursor);
    return rc != 0;
}

int main(int argc, char **argv)
{
    onejournal_log *log = NULL;
    onejournal_stream *stream = NULL;
    int failed;

    if (argc != 2) {
        fprintf(stderr, "usage: append DIR\n");
        return 2;
    }
    if (onejournal_log_open(argv[1], NULL, &log) != 0)
        return fail("open");
    if (onejournal_stream_open(log, "events", ONEJOURNAL_CREATE, &stream) != 0)
        failed = fail("stream");
    else
        failed = append_records(stream) || print_records(stream);
    onejournal_stream_close(stream);
    if (onejournal_log_close(log) != 0)
        return fail("close");
    return failed;
}
