# shellcheck shell=bash
# Mapped BARs of the first controller, and what is in them.

pci=/sys/bus/pci/devices/$(cat /sys/class/nvme/nvme0/address)
bar() { /run/guest/bar "$@"; }
log_page() { nvme get-log /dev/nvme0 -i "$1" -l "$2" -b >"/tmp/log$1"; }
# number FILE AT BYTES: an unsigned integer.
number() { od -An -t u"$3" -j "$2" -N "$3" "$1" | tr -d ' '; }

# The persistent memory region: PMRSTS, and its bit NRDY.
pmr_status() { echo $((0x$(bar "$pci/resource0" r32 0xe08))); }
pmr_is() { [ $(($(pmr_status) >> 8 & 1)) = "$1" ]; }
enable_pmr() {
    # PMRCAP is not zero; PMRCTL.EN; NRDY goes.
    [ "$(bar "$pci/resource0" r32 0xe00)" != 0 ] || return 1
    bar "$pci/resource0" w32 0xe04 1
    wait_for 30 pmr_is 0
}

# log_page_of NUMBER: a page of the fast side's log, as its namespace has it: the first behind the 128 that hosts make
# (docs/reference/nvme.md). Page N is at N of the ring's pages; their length is the least that is well written.
log_page_of() {
    local log bytes pages
    log=$(disk_of 129) bytes=$(cat "/sys/block/$(basename "$log")/queue/minimum_io_size") || return 1
    pages=$(($(blockdev --getsize64 "$log") / bytes))
    dd if="$log" bs="$bytes" skip=$(($1 % pages)) count=1 iflag=direct status=none
}
# fast_places FILE: of the vendor's log page Layout, what is in BAR2 of the first lane (docs/reference/vendor.md).
fast_places() {
    lanes=$(number "$1" 6 2) control=$(number "$1" 16 8)
    window=$(number "$1" 64 8) window_bytes=$(number "$1" 72 8) lane_page=$(number "$1" 80 8)
}
credit() { echo $((0x$(bar "$pci/resource2" r64 $((control + 128))))); }
# Bytes of the stream up to an offset are on the device for good.
credited() { [ "$(credit)" -ge "$1" ]; }

# The client library on this function (`pci:`), by the command that uses it: with the libraries that it was built
# against.
target=pci:$(basename "$pci")
tidewater() { /run/guest/ld-linux-x86-64.so.2 --library-path /run/guest /run/guest/tidewater "$@"; }
