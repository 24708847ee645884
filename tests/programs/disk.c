// A disk that fails: a library before a device's C library. The file DISK_FAULT names what is wrong just now: "sync"
// (syncs end with EIO), "write" (writes end with EIO), "full" (writes end with ENOSPC), "slow" (each write takes 200 ms
// more; "late": 60 ms), "stall" (both wait until the file says something else). Writes are those of the image: the
// ring has its room on the disk already. Each time that it happens, a byte is added to DISK_FAULT.fired.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
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

static int synced(const char *name, int fd) {
    stall();
    if (is("sync")) {
        errno = EIO;
        return -1;
    }
    int (*next)(int) = dlsym(RTLD_NEXT, name);
    return next(fd);
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
    return strstr(path, "/image") != 0;
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
    return next(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) { return put("pwrite64", fd, bytes, count, at); }

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return put("pwrite", fd, bytes, count, at); }
