/*
 * Runs a program under the seccomp filters that systemd makes of a unit's options, for machines without systemd:
 *   confined PROGRAM ARGUMENT...
 * The file that ALLOWED names has the numbers of the calls of SystemCallFilter=, FAMILIES those of
 * RestrictAddressFamilies=, each followed by a comma. With them come NoNewPrivileges=, MemoryDenyWriteExecute=,
 * RestrictNamespaces=, RestrictRealtime= and LockPersonality=, as src/shared/seccomp-util.c of systemd has them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static const unsigned allowed[] = {
#include ALLOWED
};
static const unsigned families[] = {FAMILIES};

static struct sock_filter filter[4096];
static unsigned short length;

static void add(struct sock_filter line) { filter[length++] = line; }
static void load(size_t offset) { add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset)); }
static void load_number(void) { load(offsetof(struct seccomp_data, nr)); }
/* The low half of an argument, on machines that store it first. */
static void load_argument(int which) { load(offsetof(struct seccomp_data, args) + 8 * (size_t)which); }
static void answer(unsigned action) { add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action)); }
/* The next `count` lines, if the loaded value is this one, or has one of these bits, or all of them. */
static void if_is(unsigned value, unsigned char count) {
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count));
}
static void refuse(unsigned number, int error) {
    if_is(number, 1);
    answer(SECCOMP_RET_ERRNO | (unsigned)error);
}
/* A call whose argument, as far as `mask` goes, is `value`, or with `any` has one of the mask's bits. */
static void refuse_argument(unsigned number, int which, unsigned mask, unsigned value, int any, int error) {
    if_is(number, 5);
    load_argument(which);
    add((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, any ? 0 : value, any ? 1 : 0, any ? 0 : 1));
    answer(SECCOMP_RET_ERRNO | (unsigned)error);
    load_number();
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: confined PROGRAM ARGUMENT...\n");
        return 2;
    }
    load(offsetof(struct seccomp_data, arch));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    answer(SECCOMP_RET_KILL_PROCESS);
    load_number();
    /* RestrictAddressFamilies= */
    if_is(SYS_socket, (unsigned char)(2 * (sizeof families / sizeof *families) + 2));
    load_argument(0);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if_is(families[i], 1);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
    /* MemoryDenyWriteExecute= */
    refuse_argument(SYS_mmap, 2, PROT_WRITE | PROT_EXEC, PROT_WRITE | PROT_EXEC, 0, EPERM);
    refuse_argument(SYS_mprotect, 2, PROT_EXEC, PROT_EXEC, 0, EPERM);
    refuse_argument(SYS_pkey_mprotect, 2, PROT_EXEC, PROT_EXEC, 0, EPERM);
    /* RestrictNamespaces=, with which the C library's clone3 is to become clone */
    refuse_argument(SYS_clone, 0,
                    CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUSER |
                        CLONE_NEWUTS,
                    0, 1, EPERM);
    refuse(SYS_clone3, ENOSYS);
    refuse(SYS_unshare, EPERM);
    refuse(SYS_setns, EPERM);
    /* RestrictRealtime= */
    refuse_argument(SYS_sched_setscheduler, 1, 0xff, SCHED_FIFO, 0, EPERM);
    refuse_argument(SYS_sched_setscheduler, 1, 0xff, SCHED_RR, 0, EPERM);
    /* LockPersonality= */
    refuse_argument(SYS_personality, 0, 0xffffffff, 0, 1, EPERM);
    /* SystemCallFilter=, SystemCallErrorNumber=EPERM */
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        if_is(allowed[i], 1);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(SECCOMP_RET_ERRNO | EPERM);
    /* CapabilityBoundingSet=, where this may be done; other users have none of them anyway. */
    for (unsigned long capability = 0; capability < 64; capability++)
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        return 1;
    }
    execv(arguments[1], arguments + 1);
    perror(arguments[1]);
    return 1;
}
