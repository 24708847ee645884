/*
 * Errors that a log in order never gives, as C sees them: ENOSPC, EBUSY, EIO. argv: the target of a device that waits
 * for trims; its ring's file; where in that is the lock of lane 0; where is the tail that lane 0 has published; the
 * ring's bytes. Prints "ok", or where it is not so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidewater.h>
#include <unistd.h>

#include "check.h"

static char payload[2000];

/* Opens lane 0 at RING. A client that has just gone may still be there for a moment: EPIPE. */
static struct tidewater_log *open_log(const char *target) {
    struct tidewater_options options;
    tidewater_options_init(&options);
    options.level = TIDEWATER_RING;
    options.full_ms = 300;
    struct tidewater_log *log;
    for (int i = 0; (log = tidewater_open(target, &options, NULL)) == NULL && errno == EPIPE
         && i < PATIENCE_MS / 10; i++)
        usleep(10000);
    return log;
}

/* Without a trim the log gets full, and says so. A trim makes room. */
static void full(struct tidewater_log *log) {
    int64_t end = 0, last = 0, result;
    /* EAGAIN: the device has not seen yet that nothing more fits. */
    for (int late = 0; late < PATIENCE_MS / 300;)
        if ((result = tidewater_append(log, payload, sizeof payload, &end)) >= 0)
            last = end;
        else if (errno == EAGAIN)
            late++;
        else
            break;
    CHECK(errno == ENOSPC && strstr(tidewater_message(), "trim"));
    CHECK(tidewater_append(log, payload, sizeof payload, NULL) == -1 && errno == ENOSPC);
    CHECK(last > 0 && tidewater_trim(log, last / 2) == 0);
    /* What was in the ring gets out of it, and then this gets in. */
    for (int i = 0; (result = tidewater_append(log, payload, sizeof payload, &end)) == -1 && i < PATIENCE_MS / 300; i++)
        CHECK(errno == ENOSPC || errno == EAGAIN);
    CHECK(result >= last && tidewater_wait(log, end, TIDEWATER_DESTAGED, PATIENCE_MS) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 6);
    int ring = open(argv[2], O_RDWR | O_CLOEXEC);
    CHECK(ring >= 0);
    struct tidewater_log *log = open_log(argv[1]);
    CHECK(log != NULL);
    full(log);
    tidewater_close(log);

    /* As if another process wrote the lane. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = atoll(argv[3]), .l_len = 1};
    CHECK(fcntl(ring, F_OFD_SETLK, &lock) == 0);
    CHECK(open_log(argv[1]) == NULL && errno == EBUSY && strstr(tidewater_message(), "another"));
    lock.l_type = F_UNLCK;
    CHECK(fcntl(ring, F_OFD_SETLK, &lock) == 0);
    log = open_log(argv[1]);
    CHECK(log != NULL);

    /* A tail that no writer can have published: the device marks the stream broken, and that is for good. */
    int64_t end;
    CHECK(tidewater_append(log, "whole", 5, &end) >= 0
          && tidewater_wait(log, end, TIDEWATER_DESTAGED, PATIENCE_MS) == 0);
    int64_t tail = end + atoll(argv[5]) + 1;
    CHECK(pwrite(ring, &tail, sizeof tail, atoll(argv[4])) == sizeof tail);
    struct tidewater_status status;
    for (int i = 0; tidewater_status(log, &status) == 0 && !status.broken && i < PATIENCE_MS / 10; i++)
        usleep(10000);
    CHECK(status.broken);
    CHECK(tidewater_wait(log, end + 1000000, TIDEWATER_DESTAGED, PATIENCE_MS) == -1 && errno == EIO);
    /* A writer notices at the latest when the ring is full of bytes that are not taken. */
    while (tidewater_append(log, payload, sizeof payload, NULL) >= 0) {
    }
    CHECK(errno == EIO && strstr(tidewater_message(), "broken"));
    tidewater_close(log);
    puts("ok");
    return 0;
}
