// Does operations on files, drawn by a seed, of which every other one fails: by an error that the library `faults.c`
// has it fail by, each in turn, or by a short write, or since the disk is full. Keeps a record of its own of what the
// calls said: which names there are, and what bytes. At the end it writes that down and kills its parent and itself.
//
//   errors SEED COUNT EXPECTED full|roomy|power     in a folder with the folders `set` and `out`; the record goes to
// the folder EXPECTED, a file for each name, with `+` for `/`, and `?` at its end where a loss of power may take bytes.
// Prints how many operations were done, and how many failed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <linux/falloc.h>

enum { FOLDERS = 6, LEAVES = 3, SLOTS = 6, MOST = 40000, NONE = -1 };

struct file { size_t len; unsigned char bytes[MOST]; };
struct opened { int fd; struct file *file; size_t stands; int appends, reads; };

static const char *folders[FOLDERS] = {"set", "set/p", "set/q", "set/r", "out", "out/s"};
static int is_there[FOLDERS] = {1, 0, 0, 0, 1, 0};
static struct file *named[FOLDERS][LEAVES];
static struct opened slots[SLOTS];

static const int ERRORS[] = {EIO, ENOSPC, EINTR, EDQUOT, ENOMEM, EFBIG, EROFS, EACCES, EAGAIN, EMFILE};
static void (*arm)(const char *, int);
static int (*fired)(void);
static int is_full, keeps, has_failed;
static unsigned failures, at_operation;
static uint64_t state;

static uint64_t draw(uint64_t below) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % below;
}

static void wrong(const char *call, const char *why) {
    int number = errno;
    arm("", 0);
    fprintf(stderr, "operation %u: %s: %s (%s)\n", at_operation, call, why, strerror(number));
    _exit(9);
}

// What a call has said. `may`: it may fail as it would without the log.
static int judged(const char *call, int done, int may) {
    int number = errno, by_fault = fired();
    arm("", 0);
    errno = number;
    if (done >= 0)
        return 1;
    failures++;
    // From then on nothing is promised: a sync that failed may have taken the bytes.
    if (by_fault && strcmp(call, "sync") == 0 && (number == EIO || number == ENOSPC || number == EDQUOT))
        has_failed = 1;
    if (!by_fault && !may && !has_failed && !(is_full && number == ENOSPC))
        wrong(call, "failed without a reason");
    return 0;
}

static void fault(const char *call) {
    static unsigned next;
    unsigned count = sizeof ERRORS / sizeof *ERRORS;
    if (draw(2) == 0)
        return;
    int is_write = strcmp(call, "write") == 0;
    unsigned turn = next++ % (count + 1);
    if (turn < count)
        arm(call, ERRORS[turn]);
    else if (is_write)
        arm(call, 0);
}

static void path(int folder, int leaf, char *to) {
    sprintf(to, "%s/%c", folders[folder], 'a' + leaf);
}

static void put(struct file *file, size_t at, const unsigned char *bytes, size_t len) {
    if (at > file->len)
        memset(file->bytes + file->len, 0, at - file->len);
    memcpy(file->bytes + at, bytes, len);
    if (at + len > file->len)
        file->len = at + len;
}

static void cut(struct file *file, size_t len) {
    if (len > file->len)
        memset(file->bytes + file->len, 0, len - file->len);
    file->len = len;
}

static int is_empty(int folder) {
    for (int leaf = 0; leaf < LEAVES; leaf++)
        if (named[folder][leaf])
            return 0;
    return 1;
}

static void do_open(int folder, int leaf, struct opened *slot) {
    char name[64];
    int flags = draw(4) ? O_CREAT | O_RDWR : O_CREAT | O_WRONLY | O_CLOEXEC;
    flags |= (draw(4) ? 0 : O_APPEND) | (draw(6) ? 0 : O_TRUNC);
    path(folder, leaf, name);
    // A file that comes into the set is synced, which may fail, too.
    const char *call = draw(100) ? "open" : "sync";
    fault(call);
    int fd = open(name, flags, 0600);
    int done = judged(call, fd, !is_there[folder]);
    struct stat about;
    if (!named[folder][leaf] && lstat(name, &about) == 0)
        named[folder][leaf] = calloc(1, sizeof(struct file));
    if (!done)
        return;
    struct file *file = named[folder][leaf];
    if (flags & O_TRUNC)
        cut(file, 0);
    *slot = (struct opened){fd, file, 0, flags & O_APPEND, (flags & O_ACCMODE) == O_RDWR};
}

static void do_write(struct opened *slot) {
    static unsigned char bytes[16000];
    size_t len = 1 + (draw(5) ? draw(400) : draw(sizeof bytes - 1)), at = draw(slot->file->len + 300);
    unsigned seed = draw(256);
    for (size_t i = 0; i < len; i++)
        bytes[i] = seed + i * 7 + (i >> 8);
    int kind = draw(4), here = kind < 2;
    size_t from = slot->appends ? slot->file->len : here ? slot->stands : at;
    if (from + len > MOST)
        return;
    // Most of it is there already.
    if (draw(3) == 0 && from + len <= slot->file->len)
        memcpy(bytes, slot->file->bytes + from, len - 1);
    size_t first = len / 3;
    struct iovec parts[2] = {{bytes, first}, {bytes + first, len - first}};
    fault("write");
    ssize_t done = kind == 0   ? write(slot->fd, bytes, len)
                   : kind == 1 ? writev(slot->fd, parts, 2)
                   : kind == 2 ? pwrite(slot->fd, bytes, len, at)
                               : pwritev(slot->fd, parts, 2, at);
    if (!judged("write", done < 0 ? -1 : 0, 0))
        return;
    put(slot->file, from, bytes, done);
    if (here)
        slot->stands = from + done;
}

static void do_cut(struct opened *slot, int folder, int leaf) {
    char name[64];
    size_t len = draw(9000);
    path(folder, leaf, name);
    fault("truncate");
    if (draw(2) == 0) {
        if (judged("truncate", ftruncate(slot->fd, len), 0))
            cut(slot->file, len);
    } else if (judged("truncate", truncate(name, len), !named[folder][leaf])) {
        cut(named[folder][leaf], len);
    }
}

static void do_allocate(struct opened *slot) {
    size_t at = draw(9000), len = 1 + draw(6000);
    int punches = draw(2);
    fault("fallocate");
    int done = fallocate(slot->fd, punches ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0, at, len);
    if (!judged("fallocate", done, errno == EOPNOTSUPP))
        return;
    if (!punches && at + len > slot->file->len)
        cut(slot->file, at + len);
    for (size_t i = at; punches && i < at + len && i < slot->file->len; i++)
        slot->file->bytes[i] = 0;
}

// Whether a file would have a name in the set and another one outside, or has several and one of them changes sides: by
// which of them it is written is not known then, and what no sync came behind may be lost.
static int is_mixed(int folder, int leaf, int to, int is_link) {
    int names = 0;
    for (int i = 0; i < FOLDERS * LEAVES; i++)
        names += named[i / LEAVES][i % LEAVES] == named[folder][leaf];
    return !keeps && (folder < 4) != (to < 4) && (is_link || names > 1);
}

static void do_rename(int folder, int leaf, int to, int to_leaf) {
    char old[64], new[64];
    if (is_mixed(folder, leaf, to, 0))
        return;
    path(folder, leaf, old);
    path(to, to_leaf, new);
    // One that leaves the set is synced.
    const char *call = draw(100) ? "rename" : "sync";
    fault(call);
    if (!judged(call, rename(old, new), !named[folder][leaf] || !is_there[to]))
        return;
    struct file *file = named[folder][leaf];
    if (file == named[to][to_leaf])
        return;
    named[folder][leaf] = NULL;
    named[to][to_leaf] = file;
}

static void do_link(int folder, int leaf, int to, int to_leaf) {
    char old[64], new[64];
    if (is_mixed(folder, leaf, to, 1))
        return;
    path(folder, leaf, old);
    path(to, to_leaf, new);
    fault("link");
    int may = !named[folder][leaf] || !is_there[to] || named[to][to_leaf] != NULL;
    if (judged("link", link(old, new), may))
        named[to][to_leaf] = named[folder][leaf];
}

static void do_unlink(int folder, int leaf) {
    char name[64];
    path(folder, leaf, name);
    fault("unlink");
    if (judged("unlink", unlink(name), !named[folder][leaf]))
        named[folder][leaf] = NULL;
}

static void do_folder(int folder, int to) {
    int kind = draw(4);
    if (folder == 0 || folder == 4)
        return;
    if (kind == 0) {
        fault("mkdir");
        if (judged("mkdir", mkdir(folders[folder], 0700), is_there[folder]))
            is_there[folder] = 1;
    } else if (kind == 1) {
        fault("rmdir");
        if (judged("rmdir", rmdir(folders[folder]), !is_there[folder] || !is_empty(folder)))
            is_there[folder] = 0;
    } else if (to != 0 && to != 4 && (keeps || folder < 4)) {
        // Files that a folder brings into the set come into it when they are opened; what they had may be lost.
        fault("rename");
        int may = !is_there[folder] || (is_there[to] && !is_empty(to));
        if (!judged("rename", rename(folders[folder], folders[to]), may) || folder == to)
            return;
        memcpy(named[to], named[folder], sizeof named[to]);
        memset(named[folder], 0, sizeof named[folder]);
        is_there[to] = 1;
        is_there[folder] = 0;
    }
}

static void do_sync(struct opened *slot) {
    const char *call = draw(50) ? "" : "sync";
    if (*call)
        fault(call);
    judged("sync", draw(2) ? fsync(slot->fd) : fdatasync(slot->fd), 0);
}

static void operation(void) {
    int folder = draw(FOLDERS), leaf = draw(LEAVES), to = draw(FOLDERS), to_leaf = draw(LEAVES);
    struct opened *slot = &slots[draw(SLOTS)];
    unsigned kind = draw(100);
    if (kind >= 70) {
        if (kind < 80)
            do_rename(folder, leaf, to, to_leaf);
        else if (kind < 85)
            do_link(folder, leaf, to, to_leaf);
        else if (kind < 91)
            do_unlink(folder, leaf);
        else
            do_folder(folder, to);
        return;
    }
    if (slot->fd == NONE) {
        do_open(folder, leaf, slot);
        return;
    }
    if (kind < 40)
        do_write(slot);
    else if (kind < 46)
        do_cut(slot, folder, leaf);
    else if (kind < 50)
        do_allocate(slot);
    else if (kind < 62)
        do_sync(slot);
    else {
        close(slot->fd);
        slot->fd = NONE;
    }
}

int main(int argc, char **argv) {
    arm = (void (*)(const char *, int))dlsym(RTLD_DEFAULT, "faults_arm");
    fired = (int (*)(void))dlsym(RTLD_DEFAULT, "faults_fired");
    if (argc != 5 || !arm || !fired)
        return 2;
    state = strtoull(argv[1], NULL, 10);
    unsigned count = strtoul(argv[2], NULL, 10);
    is_full = strcmp(argv[4], "full") == 0;
    keeps = strcmp(argv[4], "power") != 0;
    for (int slot = 0; slot < SLOTS; slot++)
        slots[slot].fd = NONE;
    for (at_operation = 0; at_operation < count; at_operation++)
        operation();
    for (int folder = 0; folder < FOLDERS; folder++)
        for (int leaf = 0; leaf < LEAVES; leaf++) {
            struct file *file = named[folder][leaf];
            if (!file)
                continue;
            char name[4096];
            // A loss of power takes what no sync came behind; what a call on a name does to a file that is not open,
            // or not in the set any more, is on no log.
            path(folder, leaf, name);
            int fd = keeps ? NONE : open(name, O_RDONLY);
            int is_known = keeps || (fd >= 0 && fsync(fd) == 0);
            if (fd >= 0)
                close(fd);
            snprintf(name, sizeof name, "%s/%s+%c%s", argv[3], folders[folder], 'a' + leaf, is_known ? "" : "?");
            for (char *at = name + strlen(argv[3]) + 1; *at; at++)
                *at = *at == '/' ? '+' : *at;
            FILE *to = fopen(name, "w");
            if (!to || fwrite(file->bytes, 1, file->len, to) != file->len || fclose(to) != 0)
                wrong("fopen", "the record can't be written");
        }
    printf("%u %u\n", count, failures);
    fflush(stdout);
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
    return 1;
}
