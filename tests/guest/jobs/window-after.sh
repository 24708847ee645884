# shellcheck shell=bash
# After drive and guest were killed: the entry is pinned, and holds what a load had confirmed; flushed, its blocks do.

for name in status pinned kept client-kept flush flushed; do differs emulated $name \
    "QEMU's controller has no byte window"; done

check namespace wait_for 30 there 1
disk=$(disk_of 1)
. ./bars.sh
. ./window.sh
before() { sed -n "s/^$1 //p" /run/guest/kept; }
check status log_page 0xc3 128
if [ "$device" = tidewater ]; then window_place; fi
check pinned info 3
kept() { [ "$(bar "$pci/resource2" get "$window" 4096 | sha256sum | cut -c 1-64)" = "$(before window)" ]; }
check kept kept
client_kept() {
    [ "$(tidewater nvme window load "$target" --entry 3 | sha256sum | cut -c 1-64)" = "$(before window)" ]
}
check client-kept client_kept
check flush order 0x94 --cdw12=3
flushed() { [ "$(dd if="$disk" bs=4096 skip=9 count=1 iflag=direct status=none | sha256sum | cut -c 1-64)" = \
    "$(before window)" ]; }
check flushed flushed
kernel_is_content
