// A disk that fails: a library before a device's C library. The file DISK_FAULT names what is wrong just now: "sync"
// (syncs end with EIO), "lost" (so do they, and what was written to the image since the last one is gone), "write"
// (writes end with EIO), "full" (writes end with ENOSPC), "slow" (each write takes 200 ms more; "late": 60 ms), "stall"
// (both wait until the file says something else), "leave" (the control socket's removal waits likewise). Writes are
// those of the image: the ring has its room on the disk already. Each time that it happens, a byte is added to
// DISK_FAULT.fired.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *what) {
    const char *path = getenv("DISK_FAULT");
    char word[16] = "", fired[4096];
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, word, sizeof word - 1);
    close(fd);
    if (got <= 0 || strcmp(word, what))
        return 0;
    snprintf(fired, sizeof fired, "%s.fired", path);
    if ((fd = open(fired, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) >= 0) {
        if (write(fd, ".", 1) != 1)
            abort();
        close(fd);
    }
    return 1;
}

static void stall(void) {
    while (is("stall"))
        usleep(20000);
}

// What the image had where it was written since it was synced: the last first.
struct before {
    struct before *next;
    off64_t at;
    ssize_t count;
    char bytes[];
};
static struct before *unsynced;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void remember(int fd, size_t count, off64_t at) {
    struct before *was = malloc(sizeof *was + count);
    if (!was)
        abort();
    *was = (struct before){ unsynced, at, pread64(fd, was->bytes, count, at) };
    unsynced = was;
}

static int synced(const char *name, int fd) {
    stall();
    int is_lost = is("lost");
    if (is_lost || is("sync")) {
        ssize_t (*put)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
        pthread_mutex_lock(&lock);
        for (struct before *was = unsynced; is_lost && was; was = unsynced = was->next)
            if (was->count > 0 && put(fd, was->bytes, was->count, was->at) < 0)
                abort();
        pthread_mutex_unlock(&lock);
        errno = EIO;
        return -1;
    }
    int (*next)(int) = dlsym(RTLD_NEXT, name);
    pthread_mutex_lock(&lock);
    struct before *safe = unsynced;
    pthread_mutex_unlock(&lock);
    int result = next(fd);
    pthread_mutex_lock(&lock);
    if (unsynced == safe)
        unsynced = 0;
    for (struct before *was = unsynced; result == 0 && was; was = was->next)
        if (was->next == safe)
            was->next = 0;
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return synced("fsync", fd); }

int fdatasync(int fd) { return synced("fdatasync", fd); }

static int of_image(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0)
        return 0;
    path[len] = 0;
    return strstr(path, "/image") != 0 || strstr(path, "/drive") != 0;
}

static ssize_t put(const char *name, int fd, const void *bytes, size_t count, off64_t at) {
    stall();
    int is_image = of_image(fd);
    if (is_image && is("full")) {
        errno = ENOSPC;
        return -1;
    }
    if (is_image && is("write")) {
        errno = EIO;
        return -1;
    }
    if (is_image && is("slow"))
        usleep(200000);
    if (is_image && is("late"))
        usleep(60000);
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, name);
    pthread_mutex_lock(&lock);
    if (is_image)
        remember(fd, count, at);
    ssize_t put = next(fd, bytes, count, at);
    pthread_mutex_unlock(&lock);
    return put;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) { return put("pwrite64", fd, bytes, count, at); }

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return put("pwrite", fd, bytes, count, at); }

int unlink(const char *path) {
    while (strstr(path, "control.sock") && is("leave"))
        usleep(20000);
    int (*next)(const char *) = dlsym(RTLD_NEXT, "unlink");
    return next(path);
}
