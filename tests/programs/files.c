// Writes to files in every way that the C library has, and says which syncs were done. What it does follows from a
// seed, so that a second run without files knows what every file must hold after every step.
//
//   files run FOLDER SEED FILES STEPS    each file has a thread, every other one in a process of its own; prints "FILE
//   STEP" after each sync files slowly FOLDER       renames a file, which takes a while, and writes it by a descriptor
//   from before and by one from then, which is synced files check FOLDER SEED FILE STEP STEPS   the file must be as
//   after a step from STEP on, the step behind it done in part
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/falloc.h>

enum { MOST = 100000 };

struct model {
    unsigned char bytes[MOST + 40000];
    size_t len;
};

struct random { uint64_t state; };

static uint64_t draw(struct random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void must(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(errno == EIO ? 5 : 9);
    }
}

static void put(struct model *model, size_t at, const unsigned char *bytes, size_t len) {
    if (at > model->len)
        memset(model->bytes + model->len, 0, at - model->len);
    memcpy(model->bytes + at, bytes, len);
    if (at + len > model->len)
        model->len = at + len;
}

static void cut(struct model *model, size_t len) {
    if (len > model->len)
        memset(model->bytes + model->len, 0, len - model->len);
    model->len = len;
}

struct file {
    const char *folder;
    unsigned number;
    int real, fd, appends;
    int renamed;
    int alone;  // Opened for writing alone, and not left to other programs: written where it stands.
    size_t stands;
    struct model *model;
};

static void path(const struct file *file, int renamed, char *to) {
    sprintf(to, "%s/%c%u", file->folder, renamed ? 'g' : 'f', file->number);
}

static void opened(struct file *file, int flags) {
    char name[4096];
    path(file, file->renamed, name);
    file->fd = open(name, O_RDWR | O_CREAT | flags, 0600);
    must(file->fd >= 0, "open");
}

static void opened_alone(struct file *file) {
    char name[4096];
    path(file, file->renamed, name);
    file->alone = open(name, O_WRONLY | O_CLOEXEC);
    must(file->alone >= 0, "open alone");
}

// One step. Returns whether it was a sync.
static int step(struct file *file, struct random *random) {
    unsigned char bytes[30000];
    struct model *model = file->model;
    unsigned kind = draw(random) % 36;
    size_t at = draw(random) % (MOST / 2), len = 1 + draw(random) % (draw(random) % 8 ? 300 : sizeof bytes);
    unsigned seed = draw(random);
    for (size_t i = 0; i < len; i++)
        bytes[i] = seed + i * 7 + (i >> 8);
    if (draw(random) % 2 && at + len <= model->len) // Most of it is there already.
        memcpy(bytes, model->bytes + at, len - 1);
    int fd = file->fd, real = file->real;
    size_t half = len / 2;
    struct iovec parts[2] = {{bytes, half}, {bytes + half, len - half}};
    char name[4096], other[4096];
    path(file, file->renamed, name);
    path(file, !file->renamed, other);
    switch (kind) {
    case 0: case 1: case 2:
        if (real) must(pwrite(fd, bytes, len, at) == (ssize_t)len, "pwrite");
        put(model, at, bytes, len);
        break;
    case 3:
        if (real) must(pwrite64(fd, bytes, len, at) == (ssize_t)len, "pwrite64");
        put(model, at, bytes, len);
        break;
    case 4: case 5:
        if (real) must(lseek(fd, at, SEEK_SET) == (off_t)at && write(fd, bytes, len) == (ssize_t)len, "write");
        put(model, at, bytes, len);
        break;
    case 6:
        if (real) must(lseek(fd, at, SEEK_SET) == (off_t)at && writev(fd, parts, 2) == (ssize_t)len, "writev");
        put(model, at, bytes, len);
        break;
    case 7:
        if (real) must(pwritev(fd, parts, 2, at) == (ssize_t)len, "pwritev");
        put(model, at, bytes, len);
        break;
    case 8:
        if (real) must(pwritev2(fd, parts, 2, at, RWF_DSYNC) == (ssize_t)len, "pwritev2");
        put(model, at, bytes, len);
        return 1;
    case 9: // Appends, by a descriptor of its own.
    case 10:
        if (model->len + len > MOST) return 0;
        if (real) {
            int more = open(name, O_WRONLY | O_APPEND);
            must(more >= 0 && write(more, bytes, len) == (ssize_t)len, "append");
            close(more);
        }
        put(model, model->len, bytes, len);
        break;
    case 11:
        if (real) must(ftruncate(fd, at) == 0, "ftruncate");
        cut(model, at);
        break;
    case 12:
        if (real) must(truncate(name, at) == 0, "truncate");
        cut(model, at);
        break;
    case 13:
        if (real) must(posix_fallocate(fd, at, len) == 0, "posix_fallocate");
        if (at + len > model->len) cut(model, at + len);
        break;
    case 14:
        if (real) must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len) == 0, "punch");
        if (at < model->len) memset(model->bytes + at, 0, at + len < model->len ? len : model->len - at);
        break;
    case 15: { // By a copy of the descriptor.
        int copy = real ? dup(fd) : -1;
        if (real) must(copy >= 0 && pwrite(copy, bytes, len, at) == (ssize_t)len && close(copy) == 0, "dup");
        put(model, at, bytes, len);
        break;
    }
    case 16: { // By a copy that fcntl made, with O_APPEND set on the opening that both share.
        if (model->len + len > MOST) return 0;
        if (real) {
            int copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
            must(copy >= 100 && fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_APPEND) == 0, "fcntl");
            must(write(fd, bytes, len) == (ssize_t)len, "write that appends");
            must(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_APPEND) == 0 && close(copy) == 0, "fcntl back");
        }
        put(model, model->len, bytes, len);
        break;
    }
    case 17: // By a child.
        if (real) {
            pid_t child = fork();
            must(child >= 0, "fork");
            if (!child)
                _exit(pwrite(fd, bytes, len, at) != (ssize_t)len);
            int status;
            must(waitpid(child, &status, 0) == child && status == 0, "the child's write");
        }
        put(model, at, bytes, len);
        break;
    case 18: // The name changes.
        if (real) must(rename(name, other) == 0, "rename");
        file->renamed ^= 1;
        break;
    case 19: // Opened anew, and emptied by that now and then.
        if (real) {
            must(close(fd) == 0, "close");
            opened(file, seed % 4 ? 0 : O_TRUNC);
        }
        if (seed % 4 == 0) cut(model, 0);
        break;
    case 20: { // Every write is a sync.
        if (real) {
            int syncs = open(name, O_WRONLY | (seed % 2 ? O_DSYNC : O_SYNC));
            must(syncs >= 0 && (fcntl(syncs, F_GETFL) & O_DSYNC), "O_DSYNC");
            must(pwrite(syncs, bytes, len, at) == (ssize_t)len && close(syncs) == 0, "pwrite that syncs");
        }
        put(model, at, bytes, len);
        return 1;
    }
    case 21: // Removed and made anew.
        if (seed % 6) return 0;
        if (real) {
            must(close(fd) == 0 && close(file->alone) == 0 && unlink(name) == 0, "unlink");
            opened(file, 0);
            opened_alone(file);
        }
        file->stands = 0;
        cut(model, 0);
        break;
    case 22: case 23:
        if (real) must(fsync(fd) == 0, "fsync");
        return 1;
    case 24: case 25:
        if (real) must(fdatasync(fd) == 0, "fdatasync");
        return 1;
    case 26: // The one that syncs is not the one that wrote.
        if (real) {
            int reads = open(name, O_RDONLY);
            must(reads >= 0 && fsync(reads) == 0 && close(reads) == 0, "fsync by another");
        }
        return 1;
    case 27:
        if (real) must(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0, "sync_file_range");
        break;
    // Where it stands, in two writes: by itself, by a copy, by a child; or it is moved first.
    case 28: case 29: case 30: case 31: {
        size_t gap = 0;
        if (seed / 8 % 4 == 0 || file->stands + len > MOST) {
            if (real) {
                must(close(file->alone) == 0, "close");
                opened_alone(file);
            }
            file->stands = 0;
        }
        if (real) must(half == 0 || write(file->alone, bytes, half) == (ssize_t)half, "write where it stands");
        if (seed % 8 == 1 && real) {
            int copy = dup(file->alone);
            must(copy >= 0 && write(copy, bytes + half, len - half) == (ssize_t)(len - half) && close(copy) == 0,
                 "a copy's write");
        } else if (seed % 8 == 2 && real) {
            pid_t child = fork();
            must(child >= 0, "fork");
            if (!child)
                _exit(write(file->alone, bytes + half, len - half) != (ssize_t)(len - half));
            int status;
            must(waitpid(child, &status, 0) == child && status == 0, "the child's write where it stands");
        } else {
            if (seed % 8 == 3) {
                gap = 100;
                if (real) must(lseek(file->alone, gap, SEEK_CUR) == (off_t)(file->stands + half + gap), "lseek");
            }
            if (real) must(writev(file->alone, parts + 1, 1) == (ssize_t)(len - half), "writev where it stands");
        }
        put(model, file->stands, bytes, half);
        put(model, file->stands + half + gap, bytes + half, len - half);
        file->stands += len + gap;
        break;
    }
    case 32: // Sent back.
        if (real) must(lseek64(file->alone, 0, SEEK_SET) == 0, "lseek64");
        file->stands = 0;
        break;
    case 33: // Left to other programs from now on.
        if (real && seed % 8 == 0) must(fcntl(file->alone, F_SETFD, 0) == 0, "F_SETFD");
        break;
    case 34: // It appends for once.
        if (model->len + len > MOST) return 0;
        if (real) {
            must(fcntl(file->alone, F_SETFL, O_APPEND) == 0 && write(file->alone, bytes, len) == (ssize_t)len,
                 "appends for once");
            must(fcntl(file->alone, F_SETFL, 0) == 0, "F_SETFL");
        }
        put(model, model->len, bytes, len);
        file->stands = model->len;
        break;
    case 35: // Cut to half of where it stands, which stays where it is.
        if (real) must(ftruncate(file->alone, file->stands / 2) == 0, "ftruncate behind");
        cut(model, file->stands / 2);
        break;
    }
    return 0;
}

static struct random seeded(uint64_t seed, unsigned file) {
    struct random random = {seed * 1000003 + file};
    return random;
}

static const char *folder;
static uint64_t seed;
static unsigned steps;

static void *work(void *number) {
    struct file file = {.folder = folder, .number = (unsigned)(uintptr_t)number, .real = 1, .fd = -1};
    file.model = calloc(1, sizeof *file.model);
    struct random random = seeded(seed, file.number);
    opened(&file, 0);
    opened_alone(&file);
    for (unsigned i = 1; i <= steps; i++)
        if (step(&file, &random)) {
            char line[64];
            int len = sprintf(line, "%u %u\n", file.number, i);
            must(write(1, line, len) == len, "say so");
        }
    close(file.fd);
    close(file.alone);
    free(file.model);
    return NULL;
}

static int check(unsigned number, unsigned from) {
    struct file file = {.folder = folder, .number = number, .fd = -1};
    struct model *before = calloc(1, sizeof *before), *model = calloc(1, sizeof *model);
    file.model = model;
    struct random random = seeded(seed, number);
    static unsigned char bytes[MOST + 40000];
    size_t len = 0;
    char name[4096];
    for (int renamed = 0; renamed < 2; renamed++) {
        path(&file, renamed, name);
        FILE *there = fopen(name, "rb");
        if (there) {
            len = fread(bytes, 1, sizeof bytes, there);
            fclose(there);
        }
    }
    unsigned at = 0, closest = 0;
    size_t wrong = SIZE_MAX, first = 0, closest_len = 0;
    for (; at < from; at++)
        step(&file, &random);
    for (;; at++) {
        memcpy(before, model, sizeof *model);
        if (at < steps)
            step(&file, &random);
        // A step that was under way: its records may be there in part.
        size_t most = before->len > model->len ? before->len : model->len;
        int fits = len <= most;
        int is_before = len == before->len && !memcmp(bytes, before->bytes, len);
        int is_after = len == model->len && !memcmp(bytes, model->bytes, len);
        size_t others = 0, other = 0;
        for (size_t i = 0; i < len; i++) {
            int old = i < before->len ? before->bytes[i] : 0, new = i < model->len ? model->bytes[i] : 0;
            if (bytes[i] != old && bytes[i] != new && !others++)
                other = i;
        }
        fits &= !others;
        if (others < wrong)
            wrong = others, first = other, closest = at, closest_len = model->len;
        if (is_before || is_after || (fits && (len == before->len || len == model->len || len > before->len))) {
            printf("file %u is as after step %u, synced at %u\n", number, at, from);
            return 0;
        }
        // It syncs every few steps: it can't have come far behind the last one.
        if (at == steps || at == from + 2000)
            break;
    }
    printf("file %u of %zu bytes is as after no step from %u on; closest is step %u, of %zu bytes: %zu are others, "
           "from %zu on\n",
           number, len, from, closest, closest_len, wrong, first);
    return 1;
}

static void slowly(void) {
    struct file file = {.folder = folder};
    char name[4096], other[4096], bytes[300];
    path(&file, 0, name);
    path(&file, 1, other);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = "abc"[i / 100];
    opened(&file, 0);
    must(write(file.fd, bytes, 100) == 100 && fsync(file.fd) == 0 && rename(name, other) == 0, "rename");
    int later = open(other, O_WRONLY);
    // Meanwhile all files are synced, and not again for a second.
    usleep(300 * 1000);
    must(later >= 0 && pwrite(file.fd, bytes + 100, 100, 100) == 100, "by the descriptor from before");
    must(pwrite(later, bytes + 200, 100, 200) == 100 && fsync(later) == 0, "by the later one");
    must(write(1, "0 1\n", 4) == 4, "say so");
    pause();
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    folder = argv[2];
    if (!strcmp(argv[1], "slowly"))
        slowly();
    if (argc < 6)
        return 2;
    seed = strtoull(argv[3], NULL, 10);
    if (!strcmp(argv[1], "check")) {
        steps = atoi(argv[6]);
        return check(atoi(argv[4]), atoi(argv[5]));
    }
    unsigned files = atoi(argv[4]);
    steps = atoi(argv[5]);
    pthread_t threads[64];
    pid_t children[64];
    for (unsigned i = 0; i < files; i++) {
        if (i % 2) {
            children[i] = fork();
            if (!children[i]) {
                work((void *)(uintptr_t)i);
                _exit(0);
            }
        }
    }
    for (unsigned i = 0; i < files; i += 2)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
    int bad = 0;
    for (unsigned i = 0; i < files; i++) {
        int status = 0;
        if (i % 2)
            bad |= waitpid(children[i], &status, 0) < 0 || status;
        else
            pthread_join(threads[i], NULL);
    }
    return bad;
}
