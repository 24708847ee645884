// Calls on files that few programs make. Each is done by name, as a program does it without knowing of any log, and
// says what it was answered: the answers and the files have to be the same under `tidewater run`, and the files also
// after a loss of power behind the last sync.
//
//   calls NAME    in a folder with a folder `set`; with CALLS_STAY it does not end
//   calls gone    waits until the log has failed, and then syncs what is not on it
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tick.h"

enum { ANSWERS = 9 };

static void say(const char *what, long answer) {
    char line[256];
    int len = snprintf(line, sizeof line, "%s: %ld %s\n", what, answer, answer < 0 ? strerror(errno) : "");
    if (write(ANSWERS, line, len) != len)
        abort();
}

#define SAY(call) say(#call, (long)(call))

static char bytes[1 << 16] __attribute__((aligned(4096)));
static int appended;

static int opened(const char *name, int flags) {
    int fd = open(name, O_CREAT | flags, 0600);
    if (fd < 0)
        say(name, fd);
    return fd;
}

static int filled(const char *name, int flags) {
    int fd = opened(name, flags);
    SAY(write(fd, "0123456789", 10));
    return fd;
}

static void direct(void) {
    int fd = opened("set/a", O_RDWR | O_DIRECT);
    SAY(pwrite(fd, bytes, 4096, 0));
    SAY(pwrite(fd, bytes, 12288, 4096));
    SAY(write(fd, bytes, sizeof bytes));
    SAY(pwrite(fd, bytes + 1, 100, 0));
    SAY(fsync(fd));
}

static void stream(void) {
    int fd = opened("set/a", O_RDWR);
    FILE *file = fdopen(fd, "w");
    SAY(fprintf(file, "by a stream\n"));
    SAY(fflush(file));
    SAY(fsync(fd));
}

static void asynchronous(void) {
    int fd = opened("set/a", O_RDWR);
    struct aiocb one = {.aio_fildes = fd, .aio_buf = "asynchronous", .aio_nbytes = 12};
    const struct aiocb *list[] = {&one};
    SAY(aio_write(&one));
    SAY(aio_suspend(list, 1, NULL));
    SAY(aio_return(&one));
    struct aiocb other = {
        .aio_fildes = fd, .aio_buf = "listed", .aio_nbytes = 6, .aio_offset = 12, .aio_lio_opcode = LIO_WRITE};
    struct aiocb *more[] = {NULL, &other};
    SAY(lio_listio(LIO_WAIT, more, 2, NULL));
    SAY(fsync(fd));
}

// A number that the C library gave back by itself, or that was given back by a raw call, is another file's.
static void closed_by_stream(void) {
    int fd = filled("set/a", O_RDWR);
    SAY(fclose(fdopen(fd, "r")));
    FILE *other = fopen("other", "w+");
    SAY(fileno(other) == fd);
    SAY(write(fileno(other), "another's", 9));
    SAY(fsync(fileno(other)));
    SAY(fsync(opened("set/a", O_WRONLY)));
}

static void closed_raw(void) {
    int fd = filled("set/a", O_RDWR), other = opened("other", O_RDWR);
    SAY(syscall(SYS_close, fd));
    SAY(fcntl(other, F_DUPFD, fd) == fd);
    SAY(write(fd, "another's", 9));
    SAY(syscall(SYS_dup3, opened("set/a", O_RDWR), fd, 0) == fd);
    SAY(pwrite(fd, "abc", 3, 20));
    SAY(fsync(fd));
    SAY(fsync(other));
}

static void reopened(void) {
    int fd = filled("set/a", O_RDWR);
    SAY(dup2(fd, 1));
    SAY(freopen("/dev/null", "w", stdout) != NULL);
    SAY(write(1, "nowhere", 7));
    SAY(fsync(fd));
}

static void far(void) {
    int fd = filled("set/a", O_RDWR);
    SAY(pwrite(fd, bytes, 20000, 1LL << 62));
    SAY(ftruncate(fd, 1LL << 62));
    SAY(pwrite(fd, "more", 4, 10));
    SAY(fsync(fd));
}

static void linked_out(void) {
    int fd = filled("set/a", O_RDWR);
    SAY(fsync(fd));
    SAY(link("set/a", "other"));
    SAY(unlink("set/a"));
    SAY(write(fd, "more", 4));
    SAY(fsync(fd));
}

static void linked_in(void) {
    int fd = filled("set/a", O_RDWR);
    SAY(link("set/a", "set/b"));
    SAY(unlink("set/a"));
    SAY(write(fd, "more", 4));
    int later = open("set/b", O_RDWR);
    SAY(pwrite(later, "late", 4, 0));
    SAY(pwrite(fd, "r", 1, 4));
    SAY(fsync(later));
}

static void linked_over(void) {
    int fd = filled("set/a", O_RDWR), over = filled("set/b", O_RDWR);
    SAY(link("set/a", "other"));
    SAY(rename("set/b", "set/a"));
    SAY(write(fd, "more", 4));
    SAY(write(over, "over", 4));
    SAY(fsync(fd));
    SAY(fsync(over));
}

static void unnamed(void) {
    int fd = open("set", O_RDWR | O_TMPFILE, 0600);
    char name[64];
    sprintf(name, "/proc/self/fd/%d", fd);
    SAY(write(fd, "0123456789", 10));
    SAY(linkat(AT_FDCWD, name, AT_FDCWD, "set/a", AT_SYMLINK_FOLLOW));
    SAY(write(fd, "more", 4));
    SAY(fsync(fd));
}

static void by_another_name(void) {
    int fd = filled("set/a", O_RDWR);
    SAY(link("set/a", "other"));
    int other = open("other", O_WRONLY | O_TRUNC);
    SAY(write(other, "abc", 3));
    SAY(truncate("other", 2));
    SAY(fsync(fd));
}

static void cut_by_reading(void) {
    int fd = filled("set/a", O_RDWR);
    SAY(fsync(fd));
    SAY(open("set/a", O_RDONLY | O_TRUNC) >= 0);
    SAY(open("set", O_RDONLY | O_TRUNC));
    SAY(pwrite(fd, "ab", 2, 0));
    SAY(fsync(fd));
}

static void locked(void) {
    int fd = filled("set/a", O_RDWR), over = filled("other", O_RDWR);
    struct flock lock = {.l_type = F_WRLCK};
    SAY(fcntl(fd, F_SETLK, &lock));
    SAY(fcntl(over, F_SETLK, &lock));
    SAY(rename("set/a", "set/b"));
    SAY(link("set/b", "set/c"));
    SAY(unlink("set/b"));
    SAY(truncate("other", 3));
    SAY(fsync(fd));
    SAY(fsync(over));
    int status;
    if (!fork()) {
        struct flock mine = {.l_type = F_WRLCK}, theirs = mine;
        _exit(fcntl(fd, F_GETLK, &mine) || fcntl(over, F_GETLK, &theirs) || mine.l_type == F_UNLCK
              || theirs.l_type == F_UNLCK);
    }
    SAY(wait(&status) < 0);
    SAY(status);
}

// A process that may open nothing more.
static void no_descriptors(void) {
    int fd = filled("set/a", O_RDWR), gone = filled("set/c", O_RDWR), last = dup(fd);
    struct rlimit most;
    SAY(fsync(gone));
    SAY(close(last));
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = last;
    SAY(setrlimit(RLIMIT_NOFILE, &most));
    SAY(rename("set/a", "set/b"));
    SAY(unlink("set/c"));
    SAY(write(fd, "more", 4));
    SAY(fsync(fd));
}

// A write that does not append to a descriptor that does. RWF_NOAPPEND is of Linux 6.9; older kernels refuse it.
static void write_without_append(int flags) {
    enum { NOAPPEND = 0x20 };
    int fd = filled("set/a", O_APPEND | flags);
    struct iovec one = {"abc", 3}, two[] = {{"de", 2}, {"fgh", 3}}, all = {bytes, sizeof bytes};
    SAY(pwritev2(fd, &one, 1, 2, NOAPPEND));
    SAY(pwritev2(fd, &one, 1, 2, 0));
    SAY(pwritev2(fd, two, 2, 12, NOAPPEND));
    SAY(pwrite(fd, "ijk", 3, 0));
    SAY(lseek(fd, 5, SEEK_SET));
    SAY(pwritev2(fd, &one, 1, -1, NOAPPEND | RWF_DSYNC));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwritev2(fd, &one, 1, -1, NOAPPEND));
    SAY(pwritev2(fd, &one, 1, -1, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwritev2(fd, &one, 1, 0, NOAPPEND | RWF_APPEND));
    // In pieces: behind a hole, and over what is there.
    SAY(pwritev2(fd, &all, 1, 4000, NOAPPEND));
    SAY(pwritev2(fd, &all, 1, 30000, NOAPPEND));
    SAY(pwritev2(fd, &one, 1, 20000, NOAPPEND));
    SAY(write(fd, "end", 3));
    SAY(fsync(fd));
}

static void not_appended(void) { write_without_append(O_RDWR); }
static void not_appended_unread(void) { write_without_append(O_WRONLY | O_CLOEXEC); }

static void on_signal(int number) {
    (void)number;
    if (write(appended, "handler", 7) != 7)
        abort();
}

// The library below raises it amid the call.
static void interrupted(int flags) {
    appended = filled("set/a", flags);
    signal(SIGUSR1, on_signal);
    setenv("SPY_RAISES", "1", 1);
    SAY(write(appended, "interrupted", 11));
    unsetenv("SPY_RAISES");
    SAY(write(appended, "more", 4));
    SAY(fsync(appended));
}

static void interrupted_appending(void) { interrupted(O_WRONLY | O_APPEND); }
static void interrupted_where_it_stands(void) { interrupted(O_WRONLY | O_CLOEXEC); }

static int written;

static void *cancels_itself(void *fd) {
    pthread_cancel(pthread_self());
    written = write(*(int *)fd, "whole", 5);
    pthread_testcancel();
    return NULL;
}

static void cancelled(void) {
    int fd = filled("set/a", O_RDWR);
    pthread_t thread;
    void *end;
    SAY(pthread_create(&thread, NULL, cancels_itself, &fd));
    SAY(pthread_join(thread, &end));
    SAY(end == PTHREAD_CANCELED);
    SAY(written);
    SAY(write(fd, "more", 4));
    SAY(fsync(fd));
}

// Each leaves a file with another name than it was synced by.
static void renamed(void) {
    SAY(fsync(filled("set/a", O_RDWR)));
    SAY(rename("set/a", "set/b"));
}

static void renamed_by_link(void) {
    SAY(fsync(filled("set/a", O_RDWR)));
    SAY(link("set/a", "set/b"));
    SAY(unlink("set/a"));
}

static void renamed_with_its_folder(void) {
    SAY(mkdir("set/a", 0700));
    SAY(fsync(filled("set/a/b", O_RDWR)));
    SAY(rename("set/a", "set/b"));
}

#if !__GLIBC_PREREQ(2, 34)
#define _Fork fork
#endif

// Each has a child that moves a descriptor of its parent's, and which the C library makes by itself.
static void spawned(void) {
    int fd = filled("set/a", O_WRONLY | O_CLOEXEC), status;
    posix_spawn_file_actions_t actions;
    char *line[] = {"sh", "-c", "printf spawned", NULL};
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    SAY(posix_spawnp(&child, "sh", &actions, NULL, line, environ));
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    SAY(write(fd, "behind", 6));
    SAY(posix_spawn(&child, "/bin/sh", &actions, NULL, line, environ));
    SAY(waitpid(child, &status, 0) == child);
    SAY(write(fd, "far behind", 10));
    SAY(fsync(fd));
}

static void forked_bare(void) {
    int fd = filled("set/a", O_WRONLY | O_CLOEXEC), status;
    pid_t child = _Fork();
    if (!child)
        _exit(write(fd, "child", 5) != 5);
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    SAY(write(fd, "behind", 6));
    SAY(fsync(fd));
}

// A child that borrows its parent's memory, and has a file before its parent has any.
static void borrowed(void) {
    int status;
    pid_t child = vfork();
    if (!child) {
        int fd = open("set/a", O_CREAT | O_WRONLY, 0600);
        _exit(write(fd, "0123456789", 10) != 10 || fsync(fd));
    }
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    SAY(write(opened("set/b", O_WRONLY | O_DSYNC), "promised", 8));
}

// A descriptor that is closed amid a write by it, and one whose number is another file's by then: by a signal handler
// here, and elsewhere by another thread.
static void closes(int number) {
    (void)number;
    close(appended);
}

static void closes_for_another(int number) {
    closes(number);
    if (open("other", O_CREAT | O_RDWR, 0600) != appended)
        abort();
}

static void closed_amid(void (*handler)(int)) {
    appended = filled("set/a", O_RDWR);
    signal(SIGUSR1, handler);
    setenv("SPY_RAISES", "1", 1);
    SAY(write(appended, "interrupted", 11));
    unsetenv("SPY_RAISES");
    SAY(fsync(appended));
    int again = opened("set/a", O_RDWR | O_APPEND);
    SAY(write(again, "more", 4));
    SAY(fsync(again));
}

static void closed_amid_a_write(void) { closed_amid(closes); }
static void given_away_amid_a_write(void) { closed_amid(closes_for_another); }

// A program that becomes another amid a write: by a signal handler here, and elsewhere by one thread while another
// writes.
static void replaces_itself(int number) {
    (void)number;
    char *line[] = {"calls", "replaced", NULL};
    unsetenv("SPY_RAISES");
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", line);
}

static void replacing(void) {
    appended = filled("set/a", O_WRONLY | O_CLOEXEC);
    signal(SIGUSR1, replaces_itself);
    setenv("SPY_RAISES", "1", 1);
    SAY(write(appended, "interrupted", 11));
}

static void replaced(void) {
    int fd = opened("set/a", O_RDWR | O_APPEND);
    SAY(write(fd, "more", 4));
    SAY(fsync(fd));
}

// What the system refuses leaves a descriptor where it stands.
static void refused(int flags) {
    int fd = filled("set/a", O_WRONLY | O_APPEND | flags), other = opened("set/a", O_RDWR);
    struct rlimit most = {.rlim_cur = 20, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    SAY(pwrite(other, "0123456789", 10, 10));
    SAY(setrlimit(RLIMIT_FSIZE, &most));
    SAY(write(fd, "more", 4));
    SAY(lseek(fd, 0, SEEK_CUR));
    most.rlim_cur = RLIM_INFINITY;
    SAY(setrlimit(RLIMIT_FSIZE, &most));
    SAY(write(fd, "more", 4));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fsync(fd));
}

static void refused_alone(void) { refused(O_CLOEXEC); }
static void refused_shared(void) { refused(0); }

// A file that only its creator's descriptor can write; root first changes to another user, since modes do not bind it.
static void made_unwritable(void) {
    if (geteuid() == 0) {
        SAY(chown("set", 65534, 65534));
        SAY(seteuid(65534));
    }
    int fd = open("set/a", O_CREAT | O_WRONLY | O_DSYNC, 0444);
    SAY(write(fd, "promised", 8));
    SAY(fsync(fd));
}

// A file with two names in the set loses the one that the log has, while a descriptor by that name is open.
static void of_two_names(int renames) {
    int fd = filled("set/a", O_RDWR);
    SAY(fsync(fd));
    SAY(link("set/a", "set/b"));
    SAY(close(opened("set/a", O_RDWR)));
    if (renames)
        SAY(close(filled("set/c", O_RDWR)));
    SAY(renames ? rename("set/c", "set/a") : unlink("set/a"));
    int later = opened("set/b", O_RDWR);
    SAY(pwrite(later, "OLDER BYTES", 11, 0));
    SAY(fsync(later));
    SAY(pwrite(fd, "newer", 5, 0));
    SAY(fsync(fd));
}

static void two_names(void) { of_two_names(0); }
static void two_names_renamed(void) { of_two_names(1); }

// A file comes into the set by a name from outside, as PostgreSQL's segments do, and is removed.
static void renamed_in_and_removed(void) {
    int fd = filled("other", O_RDWR), other = filled("set/b", O_RDWR);
    SAY(fsync(fd));
    SAY(rename("other", "set/a"));
    SAY(pwrite(fd, "bytes", 5, 0));
    SAY(fsync(fd));
    SAY(unlink("set/a"));
    SAY(write(other, "acknowledged", 12));
    SAY(fsync(other));
}

static void printed(void) {
    int fd = filled("set/a", O_WRONLY | O_CLOEXEC);
    SAY(dprintf(fd, "%d %s %.2f %d %d %d %d %g\n", 1, "two", 3.0, 4, 5, 6, 7, 8.5));
    SAY(write(fd, "more", 4));
    SAY(fsync(fd));
}

static void submitted(void) {
    int fd = filled("set/a", O_RDWR);
    aio_context_t ring = 0;
    struct iocb one = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE};
    one.aio_buf = (uintptr_t)"submitted";
    one.aio_nbytes = 9;
    struct iocb *list[] = {&one};
    struct io_event event;
    SAY(syscall(SYS_io_setup, 4, &ring));
    SAY(syscall(SYS_io_submit, ring, 1, list));
    SAY(syscall(SYS_io_getevents, ring, 1, 1, &event, NULL));
    SAY(fsync(fd));
}

static void made_writable(void) {
    int fd = filled("set/a", O_RDWR);
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    SAY(mprotect(mapped, 4096, PROT_READ | PROT_WRITE));
    memcpy(mapped + 2, "mapped", 6);
    SAY(fsync(fd));
}

static void by_number(void) {
    struct iovec part = {"parts", 5};
    int fd = syscall(SYS_openat, AT_FDCWD, "set/a", O_CREAT | O_RDWR, 0600);
    SAY(syscall(SYS_write, fd, "0123456789", 10));
    SAY(syscall(SYS_pwrite64, fd, "abc", 3, 20));
    SAY(syscall(SYS_writev, fd, &part, 1));
    SAY(syscall(SYS_pwritev, fd, &part, 1, 30, 0));
    SAY(syscall(SYS_ftruncate, fd, 33));
    SAY(syscall(SYS_renameat2, AT_FDCWD, "set/a", AT_FDCWD, "set/b", 0));
    SAY(syscall(SYS_fdatasync, fd));
}

static void streams(void) {
    int fd = filled("set/a", O_RDWR);
    FILE *over = fopen("set/a", "r+"), *before = fopen("set/b", "w");
    SAY(fputs("by a stream", over) > 0);
    SAY(fflush(over));
    SAY(fsync(fd));
    int other = filled("set/b", O_RDWR);
    SAY(fputs("by a stream from before", before) > 0);
    SAY(fflush(before));
    SAY(fsync(other));
}

// By no call of the C library's, over what the log has, and by a descriptor that the library has opened.
static void passes_by(const char *name) {
    int status, fd = filled(name, O_RDWR);
    SAY(fsync(fd));
    next_tick();
    pid_t child = fork();
    if (!child) {
        char *line[] = {"calls", "unseen", (char *)name, NULL}, *none[] = {NULL};
        _exit(execve("/proc/self/exe", line, none));
    }
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    SAY(fsync(fd));
}

static void unseen_over(void) { passes_by("set/a"); }

static void unseen_before_a_write(void) {
    int status, fd = filled("set/a", O_RDWR);
    next_tick();
    pid_t child = fork();
    if (!child) {
        char *line[] = {"calls", "unseen", "set/a", NULL}, *none[] = {NULL};
        _exit(execve("/proc/self/exe", line, none));
    }
    SAY(waitpid(child, &status, 0) == child);
    next_tick();
    SAY(pwrite(fd, "9", 1, 9));
    SAY(fsync(fd));
}

static void mapping_refused(void) {
    enum { VALIDATE = 3, IN_SYNC = 0x80000 };
    int fd = filled("set/a", O_RDWR);
    SAY(mmap(NULL, 4096, PROT_READ | PROT_WRITE, VALIDATE | IN_SYNC, fd, 0) == MAP_FAILED);
    SAY(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 1) == MAP_FAILED);
    SAY(write(fd, "more", 4));
    SAY(fsync(fd));
}

static void gone(void) {
    int fd = filled("set/a", O_RDWR), synced = opened("other", O_RDWR | O_DSYNC), plain = opened("other2", O_RDWR);
    struct iovec part = {bytes, 10};
    SAY(ftruncate(plain, 4096));
    char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0);
    SAY(write(synced, "before", 6));
    while (fsync(fd) == 0)
        usleep(10 * 1000);
    int copy = dup(synced);
    SAY(write(synced, "behind", 6));
    SAY(pwrite(copy, "behind", 6, 0));
    SAY(writev(synced, &part, 1));
    SAY(pwritev2(plain, &part, 1, 0, RWF_DSYNC));
    SAY(msync(mapped, 4096, MS_SYNC));
    SAY(fallocate(plain, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    struct aiocb sync = {.aio_fildes = plain};
    SAY(aio_fsync(O_DSYNC, &sync));
    struct aiocb one = {.aio_fildes = copy, .aio_buf = bytes, .aio_nbytes = 10};
    SAY(sendfile(copy, plain, &(off_t){0}, 10));
    SAY(copy_file_range(plain, &(off_t){0}, copy, &(off_t){0}, 10, 0));
    SAY(aio_write(&one));
    SAY(write(plain, "no sync", 7));
    SAY(close(synced));
    SAY(write(opened("other3", O_WRONLY), "no sync", 7));
}

static const struct {
    const char *name;
    void (*call)(void);
} all[] = {
    {"direct", direct}, {"stream", stream}, {"asynchronous", asynchronous}, {"closed_by_stream", closed_by_stream},
    {"closed_raw", closed_raw}, {"reopened", reopened}, {"far", far}, {"linked_out", linked_out},
    {"linked_in", linked_in},
    {"linked_over", linked_over}, {"unnamed", unnamed}, {"by_another_name", by_another_name},
    {"cut_by_reading", cut_by_reading},
    {"locked", locked}, {"no_descriptors", no_descriptors}, {"interrupted_appending", interrupted_appending},
    {"interrupted_where_it_stands", interrupted_where_it_stands}, {"cancelled", cancelled}, {"gone", gone},
    {"not_appended", not_appended}, {"not_appended_unread", not_appended_unread}, {"renamed", renamed},
    {"renamed_by_link", renamed_by_link}, {"renamed_with_its_folder", renamed_with_its_folder}, {"spawned", spawned},
    {"forked_bare", forked_bare}, {"borrowed", borrowed}, {"replacing", replacing}, {"replaced", replaced},
    {"refused_alone", refused_alone}, {"refused_shared", refused_shared},
    {"made_unwritable", made_unwritable}, {"closed_amid_a_write", closed_amid_a_write},
    {"given_away_amid_a_write", given_away_amid_a_write}, {"two_names", two_names},
    {"two_names_renamed", two_names_renamed}, {"renamed_in_and_removed", renamed_in_and_removed}, {"printed", printed},
    {"submitted", submitted}, {"made_writable", made_writable}, {"by_number", by_number}, {"streams", streams},
    {"unseen_over", unseen_over}, {"unseen_before_a_write", unseen_before_a_write},
    {"mapping_refused", mapping_refused},
};

int main(int argc, char **argv) {
    if (argc == 3) {
        int fd = open(argv[2], O_WRONLY);
        return fd < 0 || pwrite(fd, "unseen", 6, 2) != 6;
    }
    dup2(1, ANSWERS);
    memset(bytes, 'b', sizeof bytes);
    for (size_t i = 0; argc == 2 && i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, argv[1])) {
            all[i].call();
            say("end", 0);
            if (getenv("CALLS_STAY"))
                pause();
            _exit(0);
        }
    return 2;
}
