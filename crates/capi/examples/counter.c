/* A program whose state is its log alone: it counts on from the last number that the log holds, and prints a number
 * once replicas have it. Wherever the primary is, it goes on.
 *
 *     cc counter.c $(pkg-config --cflags --libs tidewater) -o counter
 *     ./counter vfio-user:vfio.sock */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidewater.h>
#include <time.h>

/* The last number of the log; 0: it has none. */
static int64_t last(struct tidewater_log *log) {
    struct tidewater_status status;
    if (tidewater_status(log, &status) != 0)
        errx(1, "%s", tidewater_message());
    int64_t at = status.oldest, number = 0;
    size_t len = status.ring > at ? (size_t)(status.ring - at) : 0;
    char *bytes = malloc(len + 1);
    if (bytes == NULL || tidewater_x_pread(log, bytes, len, at, 10000) != (ssize_t)len)
        errx(1, "%s", bytes == NULL ? "memory" : tidewater_message());
    struct tidewater_entry entry;
    for (int64_t lsn = at; tidewater_next(bytes + (lsn - at), len - (size_t)(lsn - at), lsn, &entry) == 1;
         lsn = entry.end)
        if (entry.kind == TIDEWATER_RECORD && entry.payload_bytes == sizeof number)
            memcpy(&number, entry.payload, sizeof number);
    free(bytes);
    return number;
}

int main(int argc, char **argv) {
    struct tidewater_options options;
    tidewater_options_init(&options);
    options.level = TIDEWATER_REMOTE_RING;
    struct tidewater_log *log = argc > 1 ? tidewater_open(argv[1], &options, NULL) : NULL;
    if (log == NULL)
        errx(1, "%s", argc > 1 ? tidewater_message() : "usage: counter vfio-user:SOCKET");
    for (int64_t number = last(log) + 1;; number++) {
        int64_t end;
        if (tidewater_append(log, &number, sizeof number, &end) < 0 || tidewater_x_fsync(log) < end)
            errx(1, "%s", tidewater_message());
        printf("%" PRId64 "\n", number);
        fflush(stdout);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}
