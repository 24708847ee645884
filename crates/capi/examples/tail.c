/* Prints the records of a log from a place on (the oldest that is there), up to its end.
 *
 *     cc tail.c $(pkg-config --cflags --libs tidewater) -o tail
 *     ./tail vfio-user:vfio.sock [LSN] */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tidewater.h>

int main(int argc, char **argv) {
    struct tidewater_log *log = argc > 1 ? tidewater_open(argv[1], NULL, NULL) : NULL;
    struct tidewater_status status;
    if (log == NULL || tidewater_status(log, &status) != 0)
        err(1, "%s", argc > 1 ? tidewater_message() : "usage: tail vfio-user:SOCKET [LSN]");
    int64_t at = argc > 2 ? strtoll(argv[2], NULL, 10) : status.oldest;
    size_t len = status.ring > at ? (size_t)(status.ring - at) : 0;
    char *bytes = malloc(len + 1);
    if (bytes == NULL || tidewater_x_pread(log, bytes, len, at, 1000) != (ssize_t)len)
        err(1, "%s", bytes == NULL ? "memory" : tidewater_message());
    struct tidewater_entry entry;
    for (int64_t lsn = at; tidewater_next(bytes + (lsn - at), len - (size_t)(lsn - at), lsn, &entry) == 1;
         lsn = entry.end)
        if (entry.kind == TIDEWATER_RECORD)
            printf("%" PRId64 ": %.*s", entry.lsn, (int)entry.payload_bytes, (const char *)entry.payload);
    free(bytes);
    tidewater_close(log);
    return 0;
}
