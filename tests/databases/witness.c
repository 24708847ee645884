/*
 * What a disk would keep over a loss of power, as far as a process can tell from outside.
 *
 * As a library (preloaded): each fsync, fdatasync, sync, syncfs and O_(D)SYNC write keeps a copy of what it made
 * durable, in the folder TIDEWATER_WITNESS, by the file's handle: its generation is part of it, so that a reused inode
 * is another file. The copy is taken before the real call: it holds what was written before the call, and nothing later
 * that the call may miss. Where TIDEWATER_WITNESS_TRACK is set, the process is taken to be the only writer of what it
 * syncs, and only what it wrote since is compared: for large files, such as a drive's image.
 *
 * As a program:  witness keep SHADOWS ROOT...   everything below the roots is durable as it is now
 *                witness reset SHADOWS ROOT...  every file below the roots is, in place, what was durable last, or
 *                                               empty
 *
 * Assumed: names are durable at once (creation, rename, unlink), and nothing reaches the disk but by these calls: what
 * is kept is the least that a disk may keep. Not seen: msync of a mapping, and calls past the C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK 65536

/* The C library's own, below every other preloaded library. */
#define REAL(type, name, ...)                               \
    static type (*real_##name)(__VA_ARGS__);                \
    static type (*get_##name(void))(__VA_ARGS__) {          \
        if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name); \
        return real_##name;                                 \
    }
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(void, sync, void)
REAL(int, syncfs, int)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
REAL(ssize_t, pread, int, void *, size_t, off_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t)
REAL(ssize_t, pwritev2, int, const struct iovec *, int, off_t, int)
REAL(int, fallocate, int, int, off_t, off_t)
REAL(int, ftruncate, int, off_t)
REAL(int, open, const char *, int, ...)
REAL(int, close, int)

static void broken(const char *what) {
    /* A witness that misses something would accuse the innocent. */
    fprintf(stderr, "witness: %s: %s\n", what, strerror(errno));
    abort();
}

/* Where the copy of this file is. */
static void shadow_of(const char *shadows, int fd, char *path) {
    union {
        struct file_handle head;
        char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } handle;
    struct stat is;
    int mount, at;
    if (fstat(fd, &is)) broken("fstat");
    at = snprintf(path, PATH_MAX, "%s/%lx", shadows, (unsigned long)is.st_dev);
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    if (name_to_handle_at(fd, "", &handle.head, &mount, AT_EMPTY_PATH) == 0) {
        for (unsigned i = 0; i < handle.head.handle_bytes; i++)
            at += snprintf(path + at, PATH_MAX - at, "%s%02x", i ? "" : "-", handle.head.f_handle[i]);
    } else {
        struct statx born;
        if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME | STATX_INO, &born)) broken("statx");
        snprintf(path + at, PATH_MAX - at, "-%llx-%llx.%x", (unsigned long long)born.stx_ino,
                 (unsigned long long)born.stx_btime.tv_sec, born.stx_btime.tv_nsec);
    }
}

static off_t next_data(int fd, off_t at) {
    off_t data = lseek(fd, at, SEEK_DATA);
    return data < 0 ? LLONG_MAX : data;
}

/* By stores: tests count what a process writes by calls (proc(5), `io`), and a copy is none of its own. */
static void store(int to, const char *bytes, size_t len, off_t at) {
    struct stat is;
    if (fstat(to, &is)) broken("look at a copy");
    if (is.st_size < at + (off_t)len && get_ftruncate()(to, at + len)) broken("set a copy's length");
    off_t page = at - at % sysconf(_SC_PAGESIZE);
    char *mapped = mmap(NULL, len + (at - page), PROT_READ | PROT_WRITE, MAP_SHARED, to, page);
    if (mapped == MAP_FAILED) broken("map a copy");
    memcpy(mapped + (at - page), bytes, len);
    munmap(mapped, len + (at - page));
}

/* Makes [at, end) of `to` what it is in `from`; bytes beyond the end of `from` are left. */
static void copy_range(int from, int to, off_t at, off_t end) {
    char mine[BLOCK], theirs[BLOCK];
    while (at < end) {
        size_t len = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
        ssize_t got = get_pread()(from, mine, len, at), had = get_pread()(to, theirs, len, at);
        if (got < 0 || had < 0) broken("read a file");
        if (got == 0) return;
        if (had < got || memcmp(mine, theirs, got)) {
            store(to, mine, got, at);
        }
        at += got;
    }
}

/* Makes `to` what `from` is, and leaves holes alone. Neither's offset is used by others: both are this function's. */
static void copy_all(int from, int to, off_t len) {
    off_t at = 0;
    while (at < len) {
        off_t one = next_data(from, at), other = next_data(to, at);
        off_t data = one < other ? one : other;
        if (data >= len) break;
        at = data - data % BLOCK > at ? data - data % BLOCK : at;
        copy_range(from, to, at, at + BLOCK < len ? at + BLOCK : len);
        at += BLOCK;
    }
    if (get_ftruncate()(to, len)) broken("set a copy's length");
}

static int open_shadow(const char *path, int flags) {
    int fd = get_open()(path, flags | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0 && flock(fd, LOCK_EX)) broken("lock a copy");
    return fd;
}

/* --- what this process wrote and did not sync, where it is the only writer --- */

struct range { off_t at, end; };
struct dirty {
    dev_t device;
    ino_t inode;
    int seen; /* compared as a whole: what a process before this one left was not tracked */
    size_t count, room;
    struct range *ranges;
};
static struct dirty *dirties;
static size_t dirties_count;
static pthread_mutex_t tracked = PTHREAD_MUTEX_INITIALIZER;
static const char *shadows_folder;
static int tracks;

static struct dirty *dirty_of(const struct stat *is) {
    for (size_t i = 0; i < dirties_count; i++)
        if (dirties[i].device == is->st_dev && dirties[i].inode == is->st_ino) return &dirties[i];
    dirties = realloc(dirties, (dirties_count + 1) * sizeof *dirties);
    if (!dirties) broken("memory");
    dirties[dirties_count] = (struct dirty){.device = is->st_dev, .inode = is->st_ino};
    return &dirties[dirties_count++];
}

static void note(int fd, off_t at, off_t len) {
    struct stat is;
    if (!tracks || len <= 0 || fstat(fd, &is) || !S_ISREG(is.st_mode)) return;
    pthread_mutex_lock(&tracked);
    struct dirty *dirty = dirty_of(&is);
    struct range *last = dirty->count ? &dirty->ranges[dirty->count - 1] : NULL;
    if (last && last->end == at) {
        last->end = at + len;
    } else {
        if (dirty->count == dirty->room) {
            dirty->room = dirty->room ? dirty->room * 2 : 64;
            dirty->ranges = realloc(dirty->ranges, dirty->room * sizeof *dirty->ranges);
            if (!dirty->ranges) broken("memory");
        }
        dirty->ranges[dirty->count++] = (struct range){at, at + len};
    }
    pthread_mutex_unlock(&tracked);
}

/* --- keeping --- */

static void start(void) __attribute__((constructor));
static void start(void) {
    /* Servers write their title over their environment. */
    const char *folder = getenv("TIDEWATER_WITNESS");
    if (folder && !(shadows_folder = strdup(folder))) broken("memory");
    tracks = getenv("TIDEWATER_WITNESS_TRACK") != NULL;
}

static int own_descriptor(int fd) {
    /* SEEK_DATA moves the offset of all that share the open file description: only on a descriptor of our own. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return get_open()(path, O_RDONLY | O_CLOEXEC);
}

static void keep(int fd) {
    char path[PATH_MAX];
    struct stat is;
    int error = errno;
    if (!shadows_folder || fstat(fd, &is) || !S_ISREG(is.st_mode)) return;
    shadow_of(shadows_folder, fd, path);
    if (tracks) {
        struct dirty mine;
        pthread_mutex_lock(&tracked);
        struct dirty *dirty = dirty_of(&is);
        mine = *dirty;
        dirty->seen = 1;
        dirty->count = dirty->room = 0;
        dirty->ranges = NULL;
        pthread_mutex_unlock(&tracked);
        int shadow = open_shadow(path, O_CREAT), own = own_descriptor(fd);
        if (shadow < 0 || own < 0 || fstat(own, &is)) broken(path);
        if (!mine.seen) copy_all(own, shadow, is.st_size);
        else {
            for (size_t i = 0; i < mine.count; i++) copy_range(own, shadow, mine.ranges[i].at, mine.ranges[i].end);
            if (get_ftruncate()(shadow, is.st_size)) broken("set a copy's length");
        }
        free(mine.ranges);
        get_close()(own);
        get_close()(shadow);
    } else {
        int shadow = open_shadow(path, O_CREAT), own = fd;
        if (shadow < 0) broken(path);
        /* A descriptor opened and closed here would drop the record locks that this process has on the file (POSIX). */
        int flags = fcntl(fd, F_GETFL);
        /* A descriptor with O_DIRECT needs aligned memory for reads, too. */
        if ((flags & O_ACCMODE) == O_WRONLY || flags & O_DIRECT) own = own_descriptor(fd);
        if (own < 0 || fstat(own, &is)) broken(path);
        copy_range(own, shadow, 0, is.st_size);
        if (get_ftruncate()(shadow, is.st_size)) broken("set a copy's length");
        if (own != fd) get_close()(own);
        get_close()(shadow);
    }
    errno = error;
}

/* After a write of `len` bytes that ends at `end`. */
static void wrote(int fd, off_t at, ssize_t len, int synced) {
    int error = errno;
    if (len <= 0 || !shadows_folder) return;
    int flags = fcntl(fd, F_GETFL);
    if (flags & O_APPEND || at < 0) at = lseek(fd, 0, SEEK_CUR) - len;
    if (at >= 0) note(fd, at, len);
    if (synced || flags & O_DSYNC) keep(fd);
    errno = error;
}

int fsync(int fd) { keep(fd); return get_fsync()(fd); }
int fdatasync(int fd) { keep(fd); return get_fdatasync()(fd); }

/* All files: of those that this process has open, which is all that it can name. */
static void keep_open(void) {
    for (int fd = 0; fd < 4096; fd++) keep(fd);
}
void sync(void) { keep_open(); get_sync()(); }
int syncfs(int fd) { keep_open(); return get_syncfs()(fd); }

ssize_t write(int fd, const void *bytes, size_t len) {
    ssize_t done = get_write()(fd, bytes, len);
    wrote(fd, -1, done, 0);
    return done;
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at) {
    ssize_t done = get_pwrite()(fd, bytes, len, at);
    wrote(fd, at, done, 0);
    return done;
}
ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t at) { return pwrite(fd, bytes, len, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
    ssize_t done = get_writev()(fd, parts, count);
    wrote(fd, -1, done, 0);
    return done;
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    ssize_t done = get_pwritev()(fd, parts, count, at);
    wrote(fd, at, done, 0);
    return done;
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) { return pwritev(fd, parts, count, at); }
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    ssize_t done = get_pwritev2()(fd, parts, count, at, flags);
    wrote(fd, at, done, flags & (RWF_DSYNC | RWF_SYNC));
    return done;
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return pwritev2(fd, parts, count, at, flags);
}
int fallocate(int fd, int mode, off_t at, off_t len) {
    int done = get_fallocate()(fd, mode, at, len);
    if (done == 0) note(fd, at, len);
    return done;
}
int fallocate64(int fd, int mode, off_t at, off_t len) { return fallocate(fd, mode, at, len); }

#ifdef WITNESS_PROGRAM
static int resets;
static long as_synced, set_back, emptied;

static int visit(const char *path, const struct stat *is, int kind, struct FTW *where) {
    char shadow_path[PATH_MAX];
    struct stat was;
    (void)where;
    if (kind != FTW_F || !S_ISREG(is->st_mode)) return 0;
    int fd = get_open()(path, (resets ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) broken(path);
    shadow_of(shadows_folder, fd, shadow_path);
    if (!resets) {
        int shadow = open_shadow(shadow_path, O_CREAT);
        /* The user that runs the database continues to write it. */
        if (shadow < 0 || fchmod(shadow, 0666)) broken(shadow_path);
        copy_all(fd, shadow, is->st_size);
        get_close()(shadow);
        as_synced++;
    } else {
        int shadow = get_open()(shadow_path, O_RDONLY | O_CLOEXEC);
        if (shadow < 0 && errno != ENOENT) broken(shadow_path);
        if (shadow < 0) {
            if (get_ftruncate()(fd, 0)) broken(path);
            emptied += is->st_size > 0;
        } else {
            struct stat now;
            if (fstat(shadow, &was)) broken(shadow_path);
            copy_all(shadow, fd, was.st_size);
            if (fstat(fd, &now)) broken(path);
            int touched = now.st_mtim.tv_sec != is->st_mtim.tv_sec || now.st_mtim.tv_nsec != is->st_mtim.tv_nsec;
            if (touched || was.st_size != is->st_size) set_back++;
            else as_synced++;
            get_close()(shadow);
        }
    }
    get_close()(fd);
    return 0;
}

int main(int count, char **words) {
    if (count < 4 || (strcmp(words[1], "keep") && strcmp(words[1], "reset"))) {
        fprintf(stderr, "usage: witness keep|reset SHADOWS ROOT...\n");
        return 2;
    }
    resets = !strcmp(words[1], "reset");
    shadows_folder = words[2];
    for (int i = 3; i < count; i++)
        if (nftw(words[i], visit, 64, FTW_PHYS)) broken(words[i]);
    printf("%ld %ld %ld\n", as_synced, set_back, emptied);
    return 0;
}
#endif
