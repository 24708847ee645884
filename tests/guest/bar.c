/* Loads from and stores into a mapped BAR: sysfs gives its bytes only by mmap.
 *
 *   bar FILE OPERATION...        r32 AT | r64 AT | w32 AT VALUE | w64 AT VALUE | put AT FILE | get AT BYTES
 *
 * r32 and r64 print a value in hexadecimal; put stores a file's bytes, 8 at a time; get writes bytes to the standard
 * output. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "usage: bar FILE OPERATION...\n");
        return 2;
    }
    int file = open(words[1], O_RDWR | O_SYNC);
    struct stat status;
    if (file < 0 || fstat(file, &status)) fail(words[1]);
    volatile uint8_t *bar = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bar == MAP_FAILED) fail("mmap");
    for (int i = 2; i + 1 < count;) {
        const char *operation = words[i];
        uint64_t at = strtoull(words[i + 1], NULL, 0);
        const char *argument = i + 2 < count ? words[i + 2] : "0";
        i += 2;
        if (at >= (uint64_t)status.st_size) {
            fprintf(stderr, "bar: %#lx is beyond %#lx bytes\n", (unsigned long)at, (unsigned long)status.st_size);
            return 1;
        }
        if (!strcmp(operation, "r32")) {
            printf("%x\n", *(volatile uint32_t *)(bar + at));
        } else if (!strcmp(operation, "r64")) {
            printf("%lx\n", (unsigned long)*(volatile uint64_t *)(bar + at));
        } else if (!strcmp(operation, "w32")) {
            *(volatile uint32_t *)(bar + at) = (uint32_t)strtoull(argument, NULL, 0);
            i++;
        } else if (!strcmp(operation, "w64")) {
            *(volatile uint64_t *)(bar + at) = strtoull(argument, NULL, 0);
            i++;
        } else if (!strcmp(operation, "put")) {
            FILE *source = fopen(argument, "rb");
            uint64_t word = 0;
            if (!source) fail(argument);
            for (; fread(&word, 1, 8, source) > 0 && at + 8 <= (uint64_t)status.st_size; at += 8, word = 0)
                *(volatile uint64_t *)(bar + at) = word;
            /* Write-combined stores leave the processor. */
            __asm__ volatile("sfence" ::: "memory");
            fclose(source);
            i++;
        } else if (!strcmp(operation, "get")) {
            uint64_t bytes = strtoull(argument, NULL, 0);
            for (; bytes > 0 && at < (uint64_t)status.st_size; at++, bytes--) putchar(bar[at]);
            i++;
        } else {
            fprintf(stderr, "bar: unknown operation %s\n", operation);
            return 2;
        }
    }
    return fflush(stdout) ? 1 : 0;
}
