# shellcheck shell=bash
# The byte window through BAR2: pages say where, commands pin and flush, stores go through both mappings of sysfs.

for name in status layout outside pin loaded gate store combined sync info flush flushed client-pin client-store \
    client-load client-dma client-refused client-flush client-flushed again stored; do
    differs emulated $name "QEMU's controller has no byte window"
done

check namespace wait_for 30 there 1
disk=$(disk_of 1)
. ./bars.sh
. ./window.sh
check status log_page 0xc3 128
check layout log_page 0xc1 576
if [ "$device" = tidewater ]; then window_place; fi
note "byte window: $window_bytes bytes at $window of BAR2"
same_place() { [ "$(number /tmp/log0xc1 40 8)" = "$window" ] && [ "$(number /tmp/log0xc1 48 8)" = "$window_bytes" ]; }
check layout same_place
outside() { [ "$(bar "$pci/resource2" r64 "$window")" = ffffffffffffffff ]; }
check outside outside

# Eight KiB of blocks, by the block layer.
head -c 8192 /dev/urandom >/tmp/blocks
dd if=/tmp/blocks of="$disk" bs=4096 seek=5 oflag=direct conv=fsync status=none
check pin pin 1 5 2
loaded() { bar "$pci/resource2" get "$window" 8192 | cmp - /tmp/blocks; }
check loaded loaded
# Blocks that are pinned are not read as blocks.
block_read() { nvme read "$disk" --start-block=$((5 * 4096 / $(blockdev --getss "$disk"))) --block-count=0 \
    --data-size=4096 --data=/tmp/nothing; }
check gate refused block_read
head -c 4096 /dev/urandom >/tmp/page
store() { bar "$pci/resource2" put "$window" /tmp/page && bar "$pci/resource2" get "$window" 4096 | cmp - /tmp/page; }
check store store
# Through write-combining memory; the load through the other mapping is what the sync ends with.
combined() {
    tac /tmp/page >/tmp/reversed
    truncate -s 4096 /tmp/reversed
    bar "$pci/resource2_wc" put $((window + 4096)) /tmp/reversed && bar "$pci/resource2" get $((window + 4096)) 4096 |
        cmp - /tmp/reversed
}
check combined combined
check sync order 0x98 --cdw12=1
check info info 1
check flush order 0x94 --cdw12=1
flushed() { dd if="$disk" bs=4096 skip=5 count=2 iflag=direct status=none | cmp - <(cat /tmp/page /tmp/reversed); }
check flushed flushed

# --- the same by the client library: stores through the combined mapping, a sync that ends with a load, reads by loads
# and by DMA ---
blocks=$((4096 / $(blockdev --getss "$disk")))
client_pin() {
    tidewater nvme window pin "$target" --entry 4 --lba $((20 * blocks)) --blocks $((4 * blocks)) --at 65536 --json \
        >/tmp/pinned || return 1
    [ "$(jq .bytes /tmp/pinned)" = 16384 ] && [ "$(jq .bar_offset /tmp/pinned)" = $((window + 65536)) ] && info 4
}
check client-pin client_pin
head -c 10000 /dev/urandom >/tmp/bytes
check client-store tidewater nvme window store "$target" --entry 4 --at 123 --sync /tmp/bytes
client_load() { tidewater nvme window load "$target" --entry 4 --at 123 --bytes 10000 "$@" | cmp - /tmp/bytes; }
check client-load client_load
check client-dma client_load --dma
client_refused() { refused tidewater nvme window pin "$target" --entry 4 --lba 0 --blocks "$blocks" 2>&1 |
    grep -q 'Entry Exists'; }
check client-refused client_refused
check client-flush tidewater nvme window flush "$target" --entry 4
client_flushed() { dd if="$disk" bs=4096 skip=20 count=4 iflag=direct status=none | tail -c +124 | head -c 10000 |
    cmp - /tmp/bytes; }
check client-flushed client_flushed

# What the next guest finds pinned, when drive and guest were killed.
check again pin 3 9 1
stored() { bar "$pci/resource2_wc" put "$window" /tmp/reversed && bar "$pci/resource2" get "$window" 4096 |
    cmp - /tmp/reversed; }
check stored stored
say keep "window $(sha256sum </tmp/reversed | cut -c 1-64)"
kernel_is_content
ask kill
