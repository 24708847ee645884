/* Ends the program where something is not so: with the line, errno, and what the library said last. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidewater.h>

/* Milliseconds that anything is waited for at most, on any machine: only a hang takes as long. */
#define PATIENCE_MS 600000

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s; errno %d (%s), last message: %s\n", __LINE__, #what, errno, strerror(errno), \
                    tidewater_message());                                                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
