/* The ABI as a C program sees it, against a served device: argv[1] is its target. Prints "ok", or where it is not
   so. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tidewater.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* A call that fails with just this error, and says something. */
#define FAILS(what, error)                                                                                             \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((what) && errno == (error) && strlen(tidewater_message()) > 0);                                          \
    } while (0)

static struct tidewater_log *open_log(const char *target, int level, struct tidewater_recovered *found) {
    struct tidewater_options options;
    tidewater_options_init(&options);
    options.level = level;
    options.full_ms = PATIENCE_MS;
    struct tidewater_log *log;
    /* A client that has just gone may still be there for a moment. */
    for (int i = 0; (log = tidewater_open(target, &options, found)) == NULL && (errno == EPIPE || errno == EBUSY)
         && i < PATIENCE_MS / 10; i++)
        usleep(10000);
    return log;
}

static void arguments(const char *target) {
    struct tidewater_options options;
    tidewater_options_init(&options);
    CHECK(options.size == sizeof options && options.level == TIDEWATER_DEFAULT && options.full_ms == 1000);
    FAILS(tidewater_open(NULL, NULL, NULL) == NULL, EINVAL);
    FAILS(tidewater_open("nothing", NULL, NULL) == NULL, EINVAL);
    FAILS(tidewater_files_enter(NULL, "file") == -1, EINVAL);
    FAILS(tidewater_files_enter_locked(NULL, "file") == -1, EINVAL);
    FAILS(tidewater_files_rename(NULL, "file", "other", NULL, NULL) == -1, EINVAL);
    FAILS(tidewater_open("vfio-user:/nowhere/at/all", NULL, NULL) == NULL, ENOENT);
    FAILS(tidewater_open("\xff", NULL, NULL) == NULL, EINVAL);
    options.size = 3;
    FAILS(tidewater_open(target, &options, NULL) == NULL, EINVAL);
    tidewater_options_init(&options);
    options.level = TIDEWATER_REMOTE_RING;
    FAILS(tidewater_open(target, &options, NULL) == NULL, ENOTSUP);
    options.level = 77;
    FAILS(tidewater_open(target, &options, NULL) == NULL, EINVAL);
    tidewater_options_init(&options);
    options.lane = 9;
    struct tidewater_log *log = NULL;
    for (int i = 0; (log = tidewater_open(target, &options, NULL)) == NULL && errno == EPIPE
         && i < PATIENCE_MS / 10; i++)
        usleep(10000);
    CHECK(log == NULL && errno == ENODEV);
    FAILS(tidewater_append(NULL, "a", 1, NULL) == -1, EINVAL);
    FAILS(tidewater_x_free(NULL) == -1, EINVAL);
    FAILS(tidewater_join(NULL, NULL) == NULL, EINVAL);
    tidewater_close(NULL);
    tidewater_x_abort(NULL);
    CHECK(strchr(tidewater_version(), '.') != NULL);
}

/* A signal that the program has blocked in its threads waits for it: no thread of the library takes it, and ends the
   program. */
static void interrupted(void) {
    sigset_t set, before;
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGTERM) == 0 && pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    struct timespec time = {10, 0};
    CHECK(kill(getpid(), SIGTERM) == 0 && sigtimedwait(&set, NULL, &time) == SIGTERM);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static int64_t processor_ms(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* A process that waits for bytes not appended yet, in place or by a descriptor, takes no processor meanwhile. */
static void waiting(struct tidewater_log *log) {
    int64_t end;
    CHECK(tidewater_append(log, "last", 4, &end) >= 0);
    int event = tidewater_eventfd(log, end + 1, TIDEWATER_RING);
    CHECK(event >= 0);
    interrupted();
    int64_t before = processor_ms();
    FAILS(tidewater_wait(log, end + 1, TIDEWATER_RING, 600) == -1, ETIMEDOUT);
    CHECK(processor_ms() - before < 300);
    CHECK(tidewater_append(log, "next", 4, NULL) >= 0);
    struct pollfd polled = {event, POLLIN, 0};
    CHECK(poll(&polled, 1, 10000) == 1 && close(event) == 0);
}

/* Every way to write, and all of it is read back. */
static void writing(struct tidewater_log *log) {
    int64_t first_end, end, at;
    int64_t first = tidewater_append(log, "one", 3, &first_end);
    CHECK(first >= 0 && first_end > first);
    struct iovec parts[40];
    for (int i = 0; i < 40; i++)
        parts[i] = (struct iovec){"ab", i % 3};
    CHECK(tidewater_appendv(log, parts, 3, NULL) == first_end);
    int64_t many = tidewater_appendv(log, parts, 40, &end);
    CHECK(many >= 0);
    FAILS(tidewater_appendv(log, parts, -1, NULL) == -1, EINVAL);
    FAILS(tidewater_append(log, NULL, 1, NULL) == -1, EINVAL);
    CHECK(tidewater_append(log, NULL, 0, NULL) >= 0);
    struct tidewater_record *record = tidewater_x_alloc(log, 10, &at);
    CHECK(record != NULL && at >= end);
    CHECK(tidewater_x_fill(record, 0, "01234", 5) == 0 && tidewater_x_fill(record, 5, "56789", 5) == 0);
    FAILS(tidewater_x_fill(record, 6, "56789", 5) == -1, EINVAL);
    CHECK(tidewater_x_free(record) > at);
    record = tidewater_x_alloc(log, 100, NULL);
    CHECK(record != NULL && tidewater_append(log, "behind", 6, &end) >= 0);
    FAILS(tidewater_wait(log, end, TIDEWATER_RING, 1) == -1, ETIMEDOUT);
    /* A descriptor for both; it is not readable while a record before it is open. */
    int event = tidewater_eventfd(log, end, TIDEWATER_RING), destaged = tidewater_eventfd(log, end, TIDEWATER_DESTAGED);
    struct pollfd polled[2] = {{event, POLLIN, 0}, {destaged, POLLIN, 0}};
    CHECK(event >= 0 && destaged >= 0 && poll(polled, 2, 20) == 0);
    tidewater_x_abort(record);
    CHECK(poll(polled, 1, 10000) == 1 && poll(polled + 1, 1, 10000) == 1);
    CHECK(tidewater_wait(log, end, TIDEWATER_RING, 0) == 0 && tidewater_wait(log, end, TIDEWATER_DESTAGED, 0) == 0);
    CHECK(close(event) == 0 && close(destaged) == 0);
    FAILS(tidewater_eventfd(log, end, TIDEWATER_REMOTE_DESTAGED) == -1, ENOTSUP);
    CHECK(tidewater_wait(log, end, TIDEWATER_RING, PATIENCE_MS) == 0);
    FAILS(tidewater_wait(log, end, TIDEWATER_REMOTE_RING, 0) == -1, ENOTSUP);
    FAILS(tidewater_wait(log, -1, TIDEWATER_RING, 0) == -1, EINVAL);
    int64_t raw = tidewater_x_pwrite(log, "raw", 3, &end);
    CHECK(raw >= 0 && end == raw + 3 && tidewater_x_fsync(log) == end);

    static char bytes[1 << 16];
    CHECK(end - first < (int64_t)sizeof bytes);
    CHECK(tidewater_x_pread(log, bytes, (size_t)(end - first), first, PATIENCE_MS) == end - first);
    int records = 0, voids = 0;
    struct tidewater_entry entry;
    for (int64_t lsn = first; tidewater_next(bytes + (lsn - first), (size_t)(end - lsn), lsn, &entry) == 1;
         lsn = entry.end) {
        CHECK(entry.end > lsn && entry.lsn >= lsn);
        records += entry.kind == TIDEWATER_RECORD;
        voids += entry.kind == TIDEWATER_VOID;
        if (records == 1 && entry.kind == TIDEWATER_RECORD)
            CHECK(entry.payload_bytes == 3 && memcmp(entry.payload, "one", 3) == 0);
        if (records == 5 && entry.kind == TIDEWATER_RECORD)
            CHECK(entry.payload_bytes == 10 && memcmp(entry.payload, "0123456789", 10) == 0);
    }
    CHECK(records == 6 && voids == 1);
    FAILS(tidewater_next(bytes, sizeof bytes, -1, &entry) == -1, EINVAL);
    FAILS(tidewater_next(bytes, sizeof bytes, (1LL << 44) + 64, &entry) == -1, EINVAL);
    CHECK(tidewater_x_pread(log, bytes, 3, raw, PATIENCE_MS) == 3 && memcmp(bytes, "raw", 3) == 0);
    FAILS(tidewater_x_pread(log, bytes, 3, end, 1) == -1, ETIMEDOUT);
    CHECK(tidewater_x_pread(log, bytes, 4, raw, 1) == 3);

    struct tidewater_status status;
    CHECK(tidewater_status(log, &status) == 0 && status.ring == end);
    CHECK(status.connected && status.open && !status.broken);
    CHECK(status.level == TIDEWATER_RING && !status.persistent);
    CHECK(strstr(tidewater_survives(log, TIDEWATER_RING), "neither power loss"));
    CHECK(strstr(tidewater_survives(log, TIDEWATER_REMOTE_RING), "not available"));
    char *large = calloc(1, (size_t)status.ring_bytes);
    FAILS(tidewater_append(log, large, (size_t)status.ring_bytes, NULL) == -1, EINVAL);
    /* Nothing is taken from a ring before an open record, so it gets full: an append that waits a moment says so. */
    record = tidewater_x_alloc(log, 8, NULL);
    struct tidewater_shared shared;
    struct tidewater_options impatient;
    tidewater_options_init(&impatient);
    impatient.full_ms = 50;
    CHECK(tidewater_share(log, &shared) == 0);
    struct tidewater_log *joined = tidewater_join(&shared, &impatient);
    CHECK(joined != NULL);
    int64_t result;
    do
        result = tidewater_append(joined, large, 2000, NULL);
    while (result >= 0);
    FAILS(tidewater_append(joined, large, 2000, NULL) == -1, EAGAIN);
    tidewater_close(joined);
    CHECK(tidewater_x_free(record) > 0 && tidewater_append(log, large, 2000, &end) >= 0);
    CHECK(tidewater_wait(log, end, TIDEWATER_DESTAGED, PATIENCE_MS) == 0 && tidewater_trim(log, end) == 0);
    free(large);
    CHECK(tidewater_status(log, &status) == 0);
    if (status.oldest > 0)
        FAILS(tidewater_x_pread(log, bytes, 1, 0, 100) == -1, ENXIO);
}

struct job {
    struct tidewater_log *log;
    int number;
};

static void *append_many(void *argument) {
    struct job *job = argument;
    for (int i = 0; i < 500; i++) {
        int64_t end, lsn = tidewater_append(job->log, &job->number, sizeof job->number, &end);
        CHECK(lsn >= 0 && tidewater_wait(job->log, end, TIDEWATER_RING, PATIENCE_MS) == 0);
    }
    /* Messages are each thread's own. */
    FAILS(tidewater_append(job->log, NULL, 1, NULL) == -1, EINVAL);
    return NULL;
}

/* Counts each writer's records from a place on. */
static void count(struct tidewater_log *log, int64_t from, int *counts, int writers) {
    struct tidewater_status status;
    CHECK(tidewater_status(log, &status) == 0);
    size_t len = (size_t)(status.ring - from);
    char *bytes = malloc(len);
    CHECK(tidewater_x_pread(log, bytes, len, from, PATIENCE_MS) == (ssize_t)len);
    struct tidewater_entry entry;
    memset(counts, 0, sizeof *counts * (size_t)writers);
    for (int64_t lsn = from; tidewater_next(bytes + (lsn - from), len - (size_t)(lsn - from), lsn, &entry) == 1;
         lsn = entry.end) {
        int number;
        if (entry.kind == TIDEWATER_RECORD && entry.payload_bytes == sizeof number) {
            memcpy(&number, entry.payload, sizeof number);
            CHECK(number >= 0 && number < writers);
            counts[number]++;
        }
    }
    free(bytes);
}

static void threads_and_forks(struct tidewater_log *log) {
    struct tidewater_status status;
    CHECK(tidewater_status(log, &status) == 0);
    int64_t from = status.ring;
    pthread_t threads[4];
    struct job jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){log, i};
        CHECK(pthread_create(&threads[i], NULL, append_many, &jobs[i]) == 0);
    }
    /* While they write: children that write too, each with threads of its own, and the parent's open record is not
       theirs. */
    struct tidewater_record *record = tidewater_x_alloc(log, 4, NULL);
    CHECK(record != NULL);
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        if ((children[i] = fork()) == 0) {
            FAILS(tidewater_x_free(record) == -1, ENOTSUP);
            FAILS(tidewater_trim(log, 0) == -1, ENOTSUP);
            int number = 4 + i;
            for (int n = 0; n < 300; n++)
                CHECK(tidewater_append(log, &number, sizeof number, NULL) >= 0);
            if (i == 2) {
                /* This one is killed amid a record. */
                CHECK(tidewater_x_alloc(log, 1000, NULL) != NULL);
                raise(SIGKILL);
            }
            int event = tidewater_eventfd(log, 0, TIDEWATER_RING);
            struct pollfd polled = {event, POLLIN, 0};
            CHECK(event >= 0 && poll(&polled, 1, 10000) == 1);
            _exit(0);
        }
        CHECK(children[i] > 0);
    }
    int number = 7;
    CHECK(tidewater_x_fill(record, 0, &number, sizeof number) == 0 && tidewater_x_free(record) > 0);
    for (int i = 0; i < 3; i++) {
        int how;
        CHECK(waitpid(children[i], &how, 0) == children[i]);
        CHECK(i == 2 ? WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL : WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(tidewater_append(log, &number, sizeof number, NULL) >= 0 && tidewater_x_fsync(log) > 0);
    int counts[8];
    count(log, from, counts, 8);
    for (int i = 0; i < 4; i++)
        CHECK(counts[i] == 500);
    CHECK(counts[4] == 300 && counts[5] == 300 && counts[6] == 300 && counts[7] == 2);
}

static const char *file_path;

static int really_write(void *with) {
    const char *text = with;
    int fd = open(file_path, O_WRONLY | O_APPEND);
    int done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

static int really_write_frame(void *with, const void *bytes, size_t len) {
    char text[32] = "";
    CHECK(with != NULL && len < sizeof text);
    memcpy(text, bytes, len);
    return really_write(text);
}

static struct tidewater_files *open_files(const char *target) {
    struct tidewater_options options;
    tidewater_options_init(&options);
    options.level = TIDEWATER_RING;
    options.lane = 1;
    options.full_ms = PATIENCE_MS;
    struct tidewater_files *files;
    for (int i = 0; (files = tidewater_files_open(target, &options)) == NULL && (errno == EPIPE || errno == EBUSY)
         && i < PATIENCE_MS / 10; i++)
        usleep(10000);
    CHECK(files != NULL);
    return files;
}

/* A child that ends as programs do, and with it closes what its parent has open, takes nothing from the log. */
static void files_and_forks(const char *target) {
    char path[] = "/tmp/tidewater-abi-XXXXXX";
    close(mkstemp(path));
    file_path = path;
    pid_t user = fork();
    if (user == 0) {
        struct tidewater_files *files = open_files(target);
        int64_t number = tidewater_files_enter(files, path);
        CHECK(number >= 0 && tidewater_files_write(files, number, "before ", 7, 0, really_write, "before ") == 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(tidewater_files_close(files) != 0);
        }
        int how;
        CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
        struct iovec frame[] = {{"and ", 4}, {"behind", 6}};
        CHECK(tidewater_files_write_frame(files, number, frame, 7, really_write_frame, frame) == 0);
        FAILS(tidewater_files_write_frame(files, number, NULL, 7, really_write_frame, frame) == -1, EINVAL);
        FAILS(tidewater_files_write_frame(files, number, frame, 7, NULL, frame) == -1, EINVAL);
        FAILS(tidewater_files_write_frame(files, number, frame, -1, really_write_frame, frame) == -1, EINVAL);
        FAILS(tidewater_files_write_frame(files, number + 1, frame, 7, really_write_frame, frame) == -1, EBADF);
        CHECK(tidewater_files_sync(files, number) == 0);
        FAILS(tidewater_files_enter(files, "/tmp") == -1, EINVAL);
        interrupted();
        _exit(0);
    }
    int how;
    CHECK(waitpid(user, &how, 0) == user && WIFEXITED(how) && WEXITSTATUS(how) == 0);
    /* What the page cache had is lost. */
    CHECK(truncate(path, 0) == 0);
    struct tidewater_files *files = open_files(target);
    char found[32] = "";
    int fd = open(path, O_RDONLY);
    CHECK(read(fd, found, sizeof found) == 17 && strcmp(found, "before and behind") == 0);
    CHECK(close(fd) == 0 && tidewater_files_close(files) == 0 && unlink(path) == 0);
}

/* Another program by descriptors. */
static void sharing(struct tidewater_log *log) {
    struct tidewater_shared shared;
    CHECK(tidewater_share(log, &shared) == 0 && (fcntl(shared.ring_fd, F_GETFD) & FD_CLOEXEC));
    struct tidewater_log *joined = tidewater_join(&shared, NULL);
    CHECK(joined != NULL);
    int64_t end;
    CHECK(tidewater_append(joined, "joined", 6, &end) >= 0 && tidewater_x_fsync(joined) == end);
    struct tidewater_status status;
    CHECK(tidewater_status(joined, &status) == 0 && !status.connected && status.oldest == -1 && status.destaged >= end);
    FAILS(tidewater_reattach(joined, NULL) == -1, ENOTSUP);
    tidewater_close(joined);
    CHECK(tidewater_share(log, &shared) == 0);
    shared.generation++;
    FAILS(tidewater_join(&shared, NULL) == NULL, ESTALE);
    CHECK(fcntl(shared.ring_fd, F_GETFD) == -1 && fcntl(shared.doorbell_fd, F_GETFD) == -1);
    /* Whatever is wrong with it. */
    CHECK(tidewater_share(log, &shared) == 0 && close(shared.doorbell_fd) == 0);
    shared.doorbell_fd = -1;
    FAILS(tidewater_join(&shared, NULL) == NULL, EINVAL);
    CHECK(fcntl(shared.ring_fd, F_GETFD) == -1);
}

/* argv[2], if given, is the process of the device, which is killed here; a line of standard input then tells that the
   next one serves. */
static void death(struct tidewater_log *log, pid_t device) {
    int64_t end;
    CHECK(tidewater_append(log, "before", 6, &end) >= 0 && kill(device, SIGKILL) == 0);
    static char large[2000];
    int64_t last = end, result;
    while ((result = tidewater_append(log, large, sizeof large, &end)) >= 0)
        last = end;
    CHECK(errno == EPIPE && tidewater_wait(log, last, TIDEWATER_RING, PATIENCE_MS) == 0);
    puts("killed");
    fflush(stdout);
    CHECK(getchar() == '\n');
    struct tidewater_recovered found;
    CHECK(tidewater_reattach(log, &found) == 0 && found.tail == last && !found.is_new);
    CHECK(tidewater_append(log, "after", 5, &end) == last
          && tidewater_wait(log, end, TIDEWATER_DESTAGED, PATIENCE_MS) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    struct tidewater_recovered found;
    struct tidewater_log *log = open_log(argv[1], TIDEWATER_DEFAULT, &found);
    struct tidewater_status status;
    CHECK(log != NULL && tidewater_status(log, &status) == 0 && status.level == TIDEWATER_DESTAGED);
    CHECK(found.tail == status.ring && found.sealed == 0);
    tidewater_close(log);
    arguments(argv[1]);
    files_and_forks(argv[1]);
    log = open_log(argv[1], TIDEWATER_RING, &found);
    CHECK(log != NULL);
    writing(log);
    waiting(log);
    threads_and_forks(log);
    sharing(log);
    if (argc > 2)
        death(log, (pid_t)atoi(argv[2]));
    tidewater_close(log);
    puts("ok");
    return 0;
}
