// A library that stands below the shim: has a call fail, or do half of its work, once, as the program asks for it right
// before. It is never asked by the supervisor.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *armed_call = "";
static int armed_errno, fired;

// The next call of this kind fails by an error; 0: a write takes half of its bytes. "": none does.
void faults_arm(const char *call, int error) {
    armed_call = call;
    armed_errno = error;
    fired = 0;
}

int faults_fired(void) {
    return fired;
}

static int fires(const char *call) {
    if (fired || strcmp(call, armed_call))
        return 0;
    fired = 1;
    errno = armed_errno;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define FAILS(result, name, kind, parameters, arguments)                                                              \
    result name parameters {                                                                                           \
        return fires(kind) ? (result)-1 : NEXT(name) arguments;                                                        \
    }

static size_t half(const char *call, size_t len) {
    if (len < 2 || armed_errno || !fires(call))
        return len;
    return len / 2;
}

#define WRITES(name, parameters, arguments)                                                                            \
    ssize_t name parameters {                                                                                          \
        len = half("write", len);                                                                                      \
        return armed_errno && fires("write") ? -1 : NEXT(name) arguments;                                              \
    }

WRITES(write, (int fd, const void *from, size_t len), (fd, from, len))
WRITES(pwrite, (int fd, const void *from, size_t len, off_t at), (fd, from, len, at))
WRITES(pwrite64, (int fd, const void *from, size_t len, off64_t at), (fd, from, len, at))

#define WRITES_PARTS(name, parameters, arguments)                                                                      \
    ssize_t name parameters {                                                                                          \
        count = (int)half("write", (size_t)count);                                                                     \
        return armed_errno && fires("write") ? -1 : NEXT(name) arguments;                                              \
    }

WRITES_PARTS(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRITES_PARTS(pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))

FAILS(int, fsync, "sync", (int fd), (fd))
FAILS(int, fdatasync, "sync", (int fd), (fd))
FAILS(int, ftruncate, "truncate", (int fd, off_t len), (fd, len))
FAILS(int, ftruncate64, "truncate", (int fd, off64_t len), (fd, len))
FAILS(int, truncate, "truncate", (const char *path, off_t len), (path, len))
FAILS(int, fallocate, "fallocate", (int fd, int mode, off_t at, off_t len), (fd, mode, at, len))
FAILS(int, rename, "rename", (const char *from, const char *to), (from, to))
FAILS(int, link, "link", (const char *from, const char *to), (from, to))
FAILS(int, unlink, "unlink", (const char *path), (path))
FAILS(int, mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
FAILS(int, rmdir, "rmdir", (const char *path), (path))

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        __builtin_va_list rest;
        __builtin_va_start(rest, flags);
        mode = __builtin_va_arg(rest, mode_t);
        __builtin_va_end(rest);
    }
    return fires("open") ? -1 : NEXT(open)(path, flags, mode);
}
