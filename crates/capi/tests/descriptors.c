/*
 * descriptors.c: a program that closed its standard descriptors, as daemons do, and goes on to
 * write to their numbers. All records that were acknowledged are read back. Arguments: the log's
 * directory or socket, and a directory for its shared memory.
 */
#include <onejournal_log.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORDS = 300 };

static FILE *said;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(said, "line %d: %s: %s\n", __LINE__, #condition, onejournal_log_error());      \
            fflush(said);                                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The numbers may have "/" without access, which takes no write. */
static void write_garbage(void)
{
    static const char garbage[65536];

    for (int number = 0; number < 3; number++)
        CHECK(write(number, garbage, sizeof garbage) < 0);
}

static void close_standard(void)
{
    for (int number = 0; number < 3; number++)
        close(number);
}

static void append(onejournal_stream *stream, int count)
{
    char text[64];
    uint64_t lsn = 0;

    for (int number = 0; number < count; number++) {
        int len = snprintf(text, sizeof text, "record %d", number);
        CHECK(onejournal_append(stream, text, (size_t)len, &lsn) == 0);
        CHECK(onejournal_sync(stream, lsn) == 0);
    }
}

static int count_records(onejournal_stream *stream)
{
    onejournal_cursor *cursor = NULL;
    onejournal_record record;
    int count = 0;

    CHECK(onejournal_cursor_open(stream, 0, &cursor) == 0);
    while (onejournal_cursor_next(cursor, &record) == 0 && record.data != NULL)
        count++;
    CHECK(onejournal_cursor_close(cursor) == 0);
    return count;
}

int main(int count, char **arguments)
{
    onejournal_log_options options = ONEJOURNAL_LOG_OPTIONS;
    onejournal_log *log = NULL, *other = NULL;
    onejournal_stream *stream = NULL, *new_one = NULL;

    if (count != 3)
        return 2;
    said = fdopen(fcntl(2, F_DUPFD, 100), "w");
    options.memory = arguments[2];
    options.pool_bytes = 2 << 20;
    close_standard();
    CHECK(onejournal_log_open(arguments[1], &options, &log) == 0);
    CHECK(onejournal_stream_open(log, "first", ONEJOURNAL_CREATE, &stream) == 0);
    append(stream, RECORDS / 2);
    write_garbage();
    /* What is made later gets no such number either. */
    close_standard();
    CHECK(onejournal_log_open(arguments[1], &options, &other) == 0);
    CHECK(onejournal_stream_open(other, "second", ONEJOURNAL_CREATE, &new_one) == 0);
    append(new_one, 10);
    append(stream, RECORDS / 2);
    write_garbage();
    CHECK(onejournal_flush(stream) == 0);
    CHECK(count_records(stream) == RECORDS && count_records(new_one) == 10);
    CHECK(onejournal_stream_close(stream) == 0 && onejournal_stream_close(new_one) == 0);
    CHECK(onejournal_log_close(log) == 0 && onejournal_log_close(other) == 0);
    return 0;
}
