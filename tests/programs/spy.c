// A library that stands below the shim and beside the supervisor: what is really synced is copied into a folder, by
// inode and birth: an inode that is used again is another file's. After a "loss of power" each file gets back what was
// copied last, or nothing. Renames take SPY_RENAMES milliseconds. With SPY_RAISES a write is interrupted by SIGUSR1.
// Where the file SPY_FAILS is there, it is removed, and the next sync of a regular file fails: as the system says it
// once, and takes the bytes for clean. Where SPY_NO_ROOM is there, no marker can be written in place.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy(int fd) {
    const char *folder = getenv("SPY_FOLDER");
    struct statx about;
    if (!folder || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &about) || !S_ISREG(about.stx_mode))
        return;
    char from[64], to[4096], last[4096];
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    snprintf(last, sizeof last, "%s/%llu-%lld.%09u", folder, (unsigned long long)about.stx_ino,
             (long long)about.stx_btime.tv_sec, about.stx_btime.tv_nsec);
    snprintf(to, sizeof to, "%s.%d.%lx", last, getpid(), (unsigned long)&about);
    // By the next library: the shim has nothing to do with these.
    int (*next_open)(const char *, int, mode_t) = dlsym(RTLD_NEXT, "open");
    ssize_t (*next_write)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    int (*next_close)(int) = dlsym(RTLD_NEXT, "close");
    int (*next_rename)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    // One after the other: of two copies at once the older could come last.
    char lock[4096];
    snprintf(lock, sizeof lock, "%s/lock", folder);
    int turn = next_open(lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    // Who can't open it, for want of descriptors or of rights, can't open the copy either.
    if (turn < 0)
        return;
    while (flock(turn, LOCK_EX) != 0)
        if (errno != EINTR)
            abort();
    int in = next_open(from, O_RDONLY, 0), out = next_open(to, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    char bytes[65536];
    for (ssize_t got; in >= 0 && out >= 0 && (got = read(in, bytes, sizeof bytes)) > 0;)
        if (next_write(out, bytes, got) != got)
            abort();
    next_close(in);
    next_close(out);
    next_rename(to, last);
    // Not by the close alone: a process that was forked meanwhile has the descriptor, too.
    flock(turn, LOCK_UN);
    next_close(turn);
}

static int fails(int fd) {
    const char *name = getenv("SPY_FAILS");
    struct stat about;
    if (!name || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || unlinkat(AT_FDCWD, name, 0) != 0)
        return 0;
    errno = EIO;
    return 1;
}

int fsync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
    if (fails(fd))
        return -1;
    int done = next(fd);
    if (done == 0)
        copy(fd);
    return done;
}

int fdatasync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fdatasync");
    if (fails(fd))
        return -1;
    int done = next(fd);
    if (done == 0)
        copy(fd);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    const char *name = getenv("SPY_NO_ROOM");
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int is_known = name && access(name, F_OK) == 0 && readlink(link, path, sizeof path - 1) > 0;
    if (is_known && strstr(path, "/.tidewater-log-")) {
        errno = ENOSPC;
        return -1;
    }
    return next(fd, bytes, len, at);
}

// For the layer above, the signal comes amid the real call.
ssize_t write(int fd, const void *bytes, size_t len) {
    static __thread volatile int raises;
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (!raises && getenv("SPY_RAISES")) {
        raises = 1;
        raise(SIGUSR1);
        raises = 0;
    }
    return next(fd, bytes, len);
}

int rename(const char *old, const char *new) {
    int (*next)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    const char *time = getenv("SPY_RENAMES");
    if (time)
        usleep(atoi(time) * 1000);
    return next(old, new);
}

static int copy_one(const char *path, const struct stat *about, int kind, struct FTW *at) {
    int (*next_open)(const char *, int, mode_t) = dlsym(RTLD_NEXT, "open");
    int (*next_close)(int) = dlsym(RTLD_NEXT, "close");
    (void)about, (void)at;
    int file = kind == FTW_F ? next_open(path, O_RDONLY | O_NOFOLLOW, 0) : -1;
    if (file >= 0) {
        copy(file);
        next_close(file);
    }
    return 0;
}

// The supervisor calls it for a file whose name it does not find: a rename of the file, or of its folder, is under way.
// All files are somewhere below the folder that it runs in.
int syncfs(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "syncfs");
    int done = next(fd);
    if (done == 0 && getenv("SPY_FOLDER"))
        nftw(".", copy_one, 16, FTW_PHYS);
    return done;
}
