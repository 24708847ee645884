// Does a list of operations on files, one after another, by several processes, and says each that is done: the lines of
// the list are numbered from 0.
//
//   operations LIST           in a folder with the folders `set` and `out`; ends behind the last line, or waits there
// with OPERATIONS_STAY
//   operations unseen NAME OFFSET NUMBER LENGTH     writes as the line of that number does, for the call "unseen"
//
// A line: PROCESS CALL ARGUMENTS. Descriptors are numbered by each process.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tick.h"

enum { ANSWERS = 9, SLOTS = 16, LINES = 4096, MOST = 1 << 16 };

static unsigned char bytes[MOST];
static int slots[SLOTS];
static unsigned at_line;

static void must(int ok, const char *what) {
    if (ok)
        return;
    fprintf(stderr, "line %u: %s: %s\n", at_line, what, strerror(errno));
    _exit(9);
}

static const unsigned char *content(unsigned number, size_t length) {
    for (size_t at = 0; at < length; at++)
        bytes[at] = (unsigned char)(number * 31 + at * 7 + at / 251);
    return bytes;
}

static int flags_of(const char *letters) {
    int flags = O_CREAT | O_RDWR;
    for (; *letters; letters++)
        switch (*letters) {
        case 'w': flags = (flags & ~O_ACCMODE) | O_WRONLY | O_CLOEXEC; break;
        case 'a': flags |= O_APPEND; break;
        case 't': flags |= O_TRUNC; break;
        case 'd': flags |= O_DSYNC; break;
        }
    return flags;
}

// By a process of its own, whose environment is empty.
static void unseen(char *name, char *offset, char *length) {
    char number[16];
    int status = 1;
    snprintf(number, sizeof number, "%u", at_line);
    next_tick();
    pid_t child = fork();
    if (!child) {
        char *line[] = {"operations", "unseen", name, offset, number, length, NULL}, *none[] = {NULL};
        execve("/proc/self/exe", line, none);
        _exit(1);
    }
    must(waitpid(child, &status, 0) == child && status == 0, "unseen");
    next_tick();
}

// Returns the number of the child that it is from now on; 0: it is no other than before.
static unsigned done(char *line) {
    char *word[8] = {0}, *rest = line;
    for (unsigned i = 0; i < 8 && (word[i] = strsep(&rest, " ")); i++)
        ;
    const char *call = word[1];
    int slot = word[2] ? atoi(word[2]) : 0;
    long one = word[3] ? atol(word[3]) : 0, two = word[3] && word[4] ? atol(word[4]) : 0;
    if (!strcmp(call, "open")) {
        slots[slot] = open(word[3], flags_of(word[4]), 0600);
        must(slots[slot] >= 0, "open");
    } else if (!strcmp(call, "write")) {
        must(write(slots[slot], content(at_line, one), one) == one, "write");
    } else if (!strcmp(call, "pwrite")) {
        must(pwrite(slots[slot], content(at_line, two), two, one) == two, "pwrite");
    } else if (!strcmp(call, "cut")) {
        must(ftruncate(slots[slot], one) == 0, "ftruncate");
    } else if (!strcmp(call, "cut_name")) {
        must(truncate(word[2], one) == 0, "truncate");
    } else if (!strcmp(call, "sync")) {
        must((one ? fdatasync(slots[slot]) : fsync(slots[slot])) == 0, "fsync");
    } else if (!strcmp(call, "close")) {
        must(close(slots[slot]) == 0, "close");
    } else if (!strcmp(call, "dup")) {
        must((slots[one] = dup(slots[slot])) >= 0, "dup");
    } else if (!strcmp(call, "link")) {
        must(link(word[2], word[3]) == 0, "link");
    } else if (!strcmp(call, "rename")) {
        must(rename(word[2], word[3]) == 0, "rename");
    } else if (!strcmp(call, "unlink")) {
        must(unlink(word[2]) == 0, "unlink");
    } else if (!strcmp(call, "unseen")) {
        unseen(word[2], word[3], word[4]);
        must(fsync(slots[atoi(word[5])]) == 0, "fsync");
    } else if (!strcmp(call, "fork")) {
        pid_t child = fork();
        must(child >= 0, "fork");
        return child ? 0 : (unsigned)slot;
    } else {
        errno = EINVAL;
        must(0, call);
    }
    return 0;
}

int main(int argc, char **argv) {
    static char text[1 << 20];
    static char *lines[LINES];
    if (argc == 6) {
        long length = atol(argv[5]);
        int fd = open(argv[2], O_WRONLY);
        return fd < 0 || pwrite(fd, content(atoi(argv[4]), length), length, atol(argv[3])) != length;
    }
    FILE *list = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!list || fread(text, 1, sizeof text - 1, list) == 0)
        return 2;
    fclose(list);
    dup2(1, ANSWERS);
    unsigned count = 0, me = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && *line && count < LINES;)
        lines[count++] = line;
    _Atomic unsigned *turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(turn != MAP_FAILED, "mmap");
    while (at_line < count) {
        if ((unsigned)atoi(lines[at_line]) != me) {
            while (atomic_load(turn) <= at_line)
                usleep(20);
            at_line++;
            continue;
        }
        while (atomic_load(turn) < at_line)
            usleep(20);
        unsigned child = done(lines[at_line]);
        if (child) {
            me = child;
            at_line++;
            continue;
        }
        char said[16];
        int len = snprintf(said, sizeof said, "%u\n", at_line);
        must(write(ANSWERS, said, len) == len, "say");
        atomic_store(turn, ++at_line);
    }
    if (getenv("OPERATIONS_STAY"))
        for (;;)
            pause();
    while (wait(NULL) > 0)
        ;
    return 0;
}
