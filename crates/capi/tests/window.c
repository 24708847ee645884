/* The byte window's calls, and how each says what is wrong. Argument: a target with a window of 128 KiB and 8
   entries at most. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <tidewater.h>

#include "check.h"

#define FAILS(call, number) CHECK((call) < 0 && errno == (number))

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(tidewater_window_open(NULL, 1) == NULL && errno == EINVAL);
    CHECK(tidewater_window_open("nothing", 1) == NULL && errno == EINVAL);
    struct tidewater_window *w = tidewater_window_open(argv[1], 1);
    CHECK(w != NULL);
    int64_t block = tidewater_window_block_bytes(w);
    CHECK(block == 512);
    struct tidewater_entry_info info;
    FAILS(tidewater_ba_get_entry_info(w, 3, &info), ENOENT);
    FAILS(tidewater_ba_sync(w, 3), ENOENT);
    FAILS(tidewater_ba_get_entry_info(NULL, 3, &info), EINVAL);
    FAILS(tidewater_ba_pin(w, 3, -2, 0, 8), EINVAL);
    CHECK(tidewater_ba_pin(w, 3, 4096, 64, 16) == 8192);
    FAILS(tidewater_ba_pin(w, 3, TIDEWATER_ANYWHERE, 256, 8), EEXIST);
    FAILS(tidewater_ba_pin(w, 4, 8192, 256, 8), EEXIST);
    FAILS(tidewater_ba_pin(w, 4, TIDEWATER_ANYWHERE, 72, 8), EEXIST);
    FAILS(tidewater_ba_pin(w, 4, TIDEWATER_ANYWHERE, 256, 240), ENOSPC);
    FAILS(tidewater_ba_pin(w, 4, 128 << 10, 256, 8), ERANGE);
    CHECK(tidewater_ba_get_entry_info(w, 3, &info) == 0);
    CHECK(info.offset == 4096 && info.bytes == 8192 && info.lba == 64 && info.nsid == 1 && info.flush_begun == 0);
    CHECK(tidewater_ba_get_entry_info(w, 3, NULL) == 0);

    char bytes[300], found[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + 1);
    CHECK(tidewater_ba_store(w, 3, 4000, bytes, sizeof bytes) == 0);
    CHECK(tidewater_ba_sync(w, 3) == 0);
    FAILS(tidewater_ba_store(w, 3, 8000, bytes, sizeof bytes), ERANGE);
    FAILS(tidewater_ba_store(w, 3, -1, bytes, sizeof bytes), EINVAL);
    FAILS(tidewater_ba_store(w, 3, 0, NULL, 1), EINVAL);
    CHECK(tidewater_ba_load(w, 3, 4000, found, sizeof found) == 0 && memcmp(bytes, found, sizeof found) == 0);
    memset(found, 0, sizeof found);
    CHECK(tidewater_ba_read_dma(w, 3, 4000, found, sizeof found) == 0 && memcmp(bytes, found, sizeof found) == 0);
    FAILS(tidewater_ba_read_dma(w, 3, 8000, found, sizeof found), ERANGE);

    /* What is flushed is in the blocks, what is only unpinned is not. */
    CHECK(tidewater_ba_flush(w, 3) == 0);
    FAILS(tidewater_ba_flush(w, 3), ENOENT);
    CHECK(tidewater_ba_pin(w, 3, TIDEWATER_ANYWHERE, 64, 16) == 8192);
    CHECK(tidewater_ba_load(w, 3, 4000, found, sizeof found) == 0 && memcmp(bytes, found, sizeof found) == 0);
    memset(found, 0xff, sizeof found);
    CHECK(tidewater_ba_store(w, 3, 4000, found, sizeof found) == 0 && tidewater_ba_sync(w, 3) == 0);
    CHECK(tidewater_ba_unpin(w, 3) == 0);
    CHECK(tidewater_ba_pin(w, 3, TIDEWATER_ANYWHERE, 64, 16) == 8192);
    CHECK(tidewater_ba_load(w, 3, 4000, found, sizeof found) == 0 && memcmp(bytes, found, sizeof found) == 0);

    /* Entries outlive the handle. */
    tidewater_window_close(w);
    w = tidewater_window_open(argv[1], 1);
    CHECK(w != NULL && tidewater_ba_get_entry_info(w, 3, &info) == 0 && info.lba == 64);
    CHECK(tidewater_ba_unpin(w, 3) == 0);
    tidewater_window_close(w);
    tidewater_window_close(NULL);
    puts("ok");
    return 0;
}
