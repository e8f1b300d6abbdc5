/* Every function once, from C: `program LOG MEMORY NVRAM`, a directory or socket, a directory, a
 * directory or "". */
#include <onejournal_log.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, onejournal_log_error());   \
        }                                                                                          \
    } while (0)

static void check_arguments(onejournal_log *log, onejournal_stream *stream)
{
    onejournal_stream *other = stream;
    onejournal_log *none = log;
    onejournal_cursor *cursor;
    onejournal_log_options wrong = ONEJOURNAL_LOG_OPTIONS;
    struct iovec records[1];
    char small[4] = "abc";
    size_t len = 0;
    uint64_t lsn;

    CHECK(onejournal_log_open(NULL, NULL, &none) == ONEJOURNAL_EUSAGE && none == NULL);
    CHECK(onejournal_log_open("/tmp", NULL, NULL) == ONEJOURNAL_EUSAGE);
    wrong.struct_bytes = 3;
    CHECK(onejournal_log_open("/nowhere/log", &wrong, &none) == ONEJOURNAL_EUSAGE);
    wrong.struct_bytes = sizeof wrong;
    wrong.durability = 9;
    CHECK(onejournal_log_open("/nowhere/log", &wrong, &none) == ONEJOURNAL_EUSAGE);
    wrong.durability = ONEJOURNAL_DURABILITY_PROCESS;
    CHECK(onejournal_log_open("/nowhere/log", &wrong, &none) == ONEJOURNAL_EUSAGE);
    CHECK(strstr(onejournal_log_error(), "without an NVRAM directory") != NULL);
    CHECK(onejournal_log_open("/proc/nowhere/log", NULL, &none) == ONEJOURNAL_EUSAGE);
    CHECK(strstr(onejournal_log_error(), "/proc/nowhere/log") != NULL);
    CHECK(onejournal_stream_open(log, "\xff", ONEJOURNAL_CREATE, &other) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_stream_open(log, "a/b", ONEJOURNAL_CREATE, &other) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_stream_open(log, "x", 64, &other) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_stream_open(log, "nothing", 0, &other) == ONEJOURNAL_ENOTFOUND &&
          other == NULL);
    CHECK(onejournal_append(stream, NULL, 5, &lsn) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_append(stream, "x", (size_t)-1, &lsn) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_append(stream, "x", 0, &lsn) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_append(NULL, "x", 1, &lsn) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_append((const onejournal_stream *)(const void *)log, "x", 1, &lsn) ==
          ONEJOURNAL_EUSAGE);
    CHECK(onejournal_append((const onejournal_stream *)((const char *)stream + 1), "x", 1, &lsn) ==
          ONEJOURNAL_EUSAGE);
    CHECK(onejournal_append_batch(stream, NULL, 2, &lsn) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_append_batch(stream, NULL, 0, &lsn) == ONEJOURNAL_EUSAGE);
    records[0].iov_base = NULL;
    records[0].iov_len = 7;
    CHECK(onejournal_append_batch(stream, records, 1, &lsn) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_sync(stream, 1 << 30) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_cursor_open(stream, 1 << 30, &cursor) == ONEJOURNAL_EUSAGE && cursor == NULL);
    CHECK(onejournal_truncate_before(stream, 1 << 30) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_log_stat(log, small, sizeof small, &len) == ONEJOURNAL_ERANGE);
    CHECK(len > sizeof small && strcmp(small, "abc") == 0);
    CHECK(onejournal_log_stat(log, NULL, 0, NULL) == ONEJOURNAL_ERANGE);
    CHECK(onejournal_log_stat(log, NULL, 1 << 20, NULL) == ONEJOURNAL_EUSAGE);
    CHECK(onejournal_log_remove(log, "nothing") == ONEJOURNAL_ENOTFOUND);
    CHECK(onejournal_log_close(NULL) == 0 && onejournal_stream_close(NULL) == 0 &&
          onejournal_cursor_close(NULL) == 0);
}

static void check_reading(onejournal_stream *stream, uint64_t third)
{
    onejournal_cursor *cursor = NULL;
    onejournal_record record;
    uint64_t head, end, appended, usn = 0;
    int count;

    CHECK(onejournal_positions(stream, &head, &end, &appended) == 0);
    CHECK(head == 0 && end == appended && end > third);
    CHECK(onejournal_cursor_open(stream, head, &cursor) == 0);
    for (count = 0; count < 4; count++) {
        static const char *const expected[] = {"one", "two", "three", "four!"};
        CHECK(onejournal_cursor_next(cursor, &record) == 0 && record.data != NULL);
        CHECK(record.len == strlen(expected[count]) &&
              memcmp(record.data, expected[count], record.len) == 0);
        CHECK(record.usn > usn);
        usn = record.usn;
    }
    CHECK(onejournal_cursor_next(cursor, &record) == 0 && record.data == NULL && record.lsn == end);
    CHECK(onejournal_append(stream, "five", 4, NULL) == 0 && onejournal_flush(stream) == 0);
    CHECK(onejournal_cursor_next(cursor, &record) == 0 && record.len == 4 &&
          memcmp(record.data, "five", 4) == 0);
    CHECK(onejournal_truncate_before(stream, third) == 0);
    CHECK(onejournal_positions(stream, &head, NULL, NULL) == 0 && head == third);
    CHECK(onejournal_cursor_close(cursor) == 0);
    CHECK(onejournal_cursor_open(stream, 0, &cursor) == ONEJOURNAL_ENOTFOUND);
}

static void *append_many(void *stream)
{
    int number;
    uint64_t lsn;

    for (number = 0; number < 500; number++)
        CHECK(onejournal_append(stream, "from a thread", 13, &lsn) == 0 &&
              onejournal_sync(stream, lsn) == 0);
    return NULL;
}

static void check_threads(onejournal_stream *stream)
{
    pthread_t threads[3];
    size_t index;
    char text[1000];

    for (index = 0; index < 3; index++)
        CHECK(pthread_create(&threads[index], NULL, append_many, stream) == 0);
    for (index = 0; index < 3; index++)
        CHECK(pthread_join(threads[index], NULL) == 0);
    CHECK(onejournal_stream_stat(stream, text, sizeof text, NULL) == 0);
    CHECK(strstr(text, "\"record_count\":1500") != NULL);
}

int main(int count, char **arguments)
{
    onejournal_log_options options = ONEJOURNAL_LOG_OPTIONS;
    onejournal_log *log = NULL;
    onejournal_stream *stream = NULL, *threaded = NULL;
    struct iovec batch[2] = {{(void *)"three", 5}, {(void *)"four!", 5}};
    uint64_t lsn = 99, third = 0;
    char text[1000];
    int durability = 0, refused = 0;

    if (count != 4)
        return 2;
    options.memory = arguments[2];
    options.pool_bytes = 2 << 20;
    if (arguments[3][0] != '\0') {
        options.nvram = arguments[3];
        options.durability = ONEJOURNAL_DURABILITY_PROCESS;
    }
    CHECK(strcmp(onejournal_log_error(), "") == 0 && strlen(onejournal_log_version()) >= 5);
    CHECK(onejournal_log_open(arguments[1], &options, &log) == 0);
    CHECK(onejournal_log_durability(log, &durability) == 0 &&
          durability >= ONEJOURNAL_DURABILITY_POWER);
    CHECK(onejournal_log_uuid(log, text) == 0 && strlen(text) == 32);
    CHECK(onejournal_stream_open(log, "app.wal", ONEJOURNAL_CREATE, &stream) == 0);
    CHECK(onejournal_append(stream, "one", 3, &lsn) == 0 && lsn == 0);
    CHECK(onejournal_append(stream, "two", 3, &lsn) == 0 && onejournal_sync(stream, lsn) == 0);
    third = lsn + 24 + 4;
    CHECK(onejournal_append_batch(stream, batch, 2, &lsn) == 0 &&
          onejournal_sync(stream, lsn) == 0);
    check_reading(stream, third);
    check_arguments(log, stream);
    CHECK(onejournal_stream_open(log, "threads", ONEJOURNAL_CREATE, &threaded) == 0);
    check_threads(threaded);
    CHECK(onejournal_stream_release(threaded) == 0);
    CHECK(onejournal_log_list(log, text, sizeof text, NULL) == 0 &&
          strcmp(text, "app.wal\nthreads\n") == 0);
    CHECK(onejournal_log_remove(log, "threads") == 0);
    refused = onejournal_append(threaded, "x", 1, NULL);
    CHECK(refused == ONEJOURNAL_EABORTED || refused == ONEJOURNAL_ENOTFOUND);
    CHECK(onejournal_log_list(log, text, sizeof text, NULL) == 0 && strcmp(text, "app.wal\n") == 0);
    CHECK(onejournal_log_stat(log, text, sizeof text, NULL) == 0 &&
          strstr(text, "\"pool_bytes\":2097152") != NULL);
    /* In any order. */
    CHECK(onejournal_log_close(log) == 0);
    CHECK(onejournal_append(stream, "six", 3, NULL) == 0);
    CHECK(onejournal_stream_close(stream) == 0 && onejournal_stream_close(threaded) == 0);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
