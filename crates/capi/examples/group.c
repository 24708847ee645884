/* Commits each line of standard input on a group of devices, and goes on when the primary is another one.
 *
 *     cc group.c $(pkg-config --cflags --libs tidewater) -o group
 *     ./group vfio-user:a/vfio.sock,vfio-user:b/vfio.sock,vfio-user:c/vfio.sock
 *     ./group cluster:etcd=127.0.0.1:2379/tidewater */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tidewater.h>

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct tidewater_options options;
    tidewater_options_init(&options);
    options.level = TIDEWATER_REMOTE_RING;
    struct tidewater_recovered found;
    struct tidewater_group *group = argc > 1 ? tidewater_group_open(argv[1], &options, &found) : NULL;
    if (group == NULL)
        err(1, "%s", argc > 1 ? tidewater_message() : "usage: group vfio-user:SOCKET,...|cluster:etcd=HOST:PORT/NAME");
    printf("the log goes on at %" PRId64 "\n", found.tail);
    static char line[4096];
    int64_t moves = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        int64_t end, lsn = tidewater_group_append(group, line, strlen(line), &end);
        if (lsn < 0 || tidewater_group_x_fsync(group) < end)
            err(1, "%s", tidewater_message());
        printf("%" PRId64 ": committed\n", lsn);
        if (tidewater_group_moves(group) != moves)
            printf("on another primary, %" PRId64 ". time\n", moves = tidewater_group_moves(group));
    }
    tidewater_group_close(group);
    return 0;
}
