/* Appends to a log of PMDK's libpmemlog: argv[1] is a file that may be made, then come sizes. For each, prints the
   nanoseconds of one append: the mean of a burst into an empty log. PMEM_IS_PMEM_FORCE and PMEM_NO_FLUSH say how stores
   are made durable. */
#include <libpmemlog.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
    static char payload[1 << 16];
    memset(payload, 0x5a, sizeof payload);
    PMEMlogpool *log = pmemlog_create(argv[1], 24 << 20, 0600);
    if (log == NULL)
        return 1;
    for (int i = 2; i < argc; i++) {
        size_t size = (size_t)atol(argv[i]), count = (4 << 20) / (size < 128 ? 128 : size);
        for (int turn = 0; turn < 2; turn++) { /* The first one brings the pages in. */
            pmemlog_rewind(log);
            double start = now();
            for (size_t n = 0; n < count; n++)
                if (pmemlog_append(log, payload, size) != 0)
                    return 2;
            if (turn == 1)
                printf("%s %.1f\n", argv[i], (now() - start) / count);
        }
    }
    pmemlog_close(log);
    remove(argv[1]);
    return 0;
}
