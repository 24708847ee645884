/* Commits each line of standard input: it is acknowledged when it survives what the level says.
 *
 *     cc commit.c $(pkg-config --cflags --libs tidewater) -o commit
 *     ./commit vfio-user:vfio.sock [ring|destaged] */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tidewater.h>

int main(int argc, char **argv) {
    struct tidewater_options options;
    tidewater_options_init(&options);
    if (argc > 2)
        options.level = strcmp(argv[2], "ring") == 0 ? TIDEWATER_RING : TIDEWATER_DESTAGED;
    struct tidewater_recovered found;
    struct tidewater_log *log = argc > 1 ? tidewater_open(argv[1], &options, &found) : NULL;
    if (log == NULL)
        err(1, "%s", argc > 1 ? tidewater_message() : "usage: commit vfio-user:SOCKET [ring|destaged]");
    printf("the log goes on at %" PRId64 "; a commit survives %s\n", found.tail,
           tidewater_survives(log, TIDEWATER_DEFAULT));
    static char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int64_t end, lsn = tidewater_append(log, line, strlen(line), &end);
        if (lsn < 0 || tidewater_x_fsync(log) < end)
            err(1, "%s", tidewater_message());
        printf("%" PRId64 ": committed\n", lsn);
    }
    tidewater_close(log);
    return 0;
}
