/* Appends a line to the tail block of a log that is pinned into the byte window, and then writes the block back.
 *
 *     cc window.c $(pkg-config --cflags --libs tidewater) -o window
 *     ./window vfio-user:vfio.sock LBA "a line"... */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidewater.h>

#define EID 7
#define PAGE 4096

int main(int argc, char **argv) {
    if (argc < 3)
        errx(1, "usage: window vfio-user:SOCKET|pci:ADDRESS LBA LINE...");
    struct tidewater_window *window = tidewater_window_open(argv[1], 1);
    if (window == NULL)
        err(1, "%s", tidewater_message());
    uint32_t blocks = PAGE / tidewater_window_block_bytes(window);
    /* What a process before this one has pinned is still pinned. */
    if (tidewater_ba_pin(window, EID, TIDEWATER_ANYWHERE, strtoull(argv[2], NULL, 0), blocks) < 0 && errno != EEXIST)
        err(1, "%s", tidewater_message());
    struct tidewater_entry_info info;
    static char page[PAGE];
    if (tidewater_ba_get_entry_info(window, EID, &info) < 0 || tidewater_ba_read_dma(window, EID, 0, page, PAGE) < 0)
        err(1, "%s", tidewater_message());
    printf("%" PRId64 " bytes from block %" PRIu64 " on are pinned\n", info.bytes, info.lba);
    size_t end = strnlen(page, PAGE);
    for (int i = 3; i < argc; i++) {
        size_t len = strlen(argv[i]);
        if (end + len + 1 > PAGE)
            errx(1, "the block is full");
        memcpy(page + end, argv[i], len);
        page[end + len] = '\n';
        if (tidewater_ba_store(window, EID, end, page + end, len + 1) < 0 || tidewater_ba_sync(window, EID) < 0)
            err(1, "%s", tidewater_message());
        end += len + 1;
        printf("committed: %s\n", argv[i]);
    }
    /* The block takes what the window has. */
    if (tidewater_ba_flush(window, EID) < 0)
        err(1, "%s", tidewater_message());
    tidewater_window_close(window);
    return 0;
}
