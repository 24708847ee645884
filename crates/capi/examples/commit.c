/* Commits each line of standard input: it is acknowledged when it survives what the level says.
 *
 *     cc commit.c $(pkg-config --cflags --libs tidewater) -o commit
 *     ./commit vfio-user:vfio.sock [ring|destaged|remote-ring]
 *
 * On several devices (vfio-user:a/vfio.sock,vfio-user:b/vfio.sock, or cluster:etcd=HOST:PORT/NAME) it goes on when the
 * primary is another one. */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tidewater.h>

int main(int argc, char **argv) {
    struct tidewater_options options;
    tidewater_options_init(&options);
    if (argc > 2)
        options.level = strcmp(argv[2], "ring") == 0       ? TIDEWATER_RING
                        : strcmp(argv[2], "destaged") == 0 ? TIDEWATER_DESTAGED
                                                           : TIDEWATER_REMOTE_RING;
    struct tidewater_recovered found;
    struct tidewater_log *log = argc > 1 ? tidewater_open(argv[1], &options, &found) : NULL;
    if (log == NULL)
        err(1, "%s", argc > 1 ? tidewater_message() : "usage: commit TARGET [ring|destaged|remote-ring]");
    printf("the log goes on at %" PRId64 "; a commit survives %s\n", found.tail,
           tidewater_survives(log, TIDEWATER_DEFAULT));
    fflush(stdout);
    static char line[4096];
    int64_t moves = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        int64_t end, lsn = tidewater_append(log, line, strlen(line), &end);
        if (lsn < 0 || tidewater_x_fsync(log) < end)
            err(1, "%s", tidewater_message());
        if (tidewater_moves(log) != moves)
            printf("on another primary, %" PRId64 ". time\n", moves = tidewater_moves(log));
        printf("%" PRId64 ": committed\n", lsn);
        fflush(stdout);
    }
    tidewater_close(log);
    return 0;
}
