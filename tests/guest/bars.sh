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

# fast_places FILE: of the vendor's log page Layout, what is in BAR2 of the first lane (docs/reference/vendor.md).
fast_places() {
    lanes=$(number "$1" 6 2) control=$(number "$1" 16 8)
    window=$(number "$1" 64 8) window_bytes=$(number "$1" 72 8) lane_page=$(number "$1" 80 8)
}
credit() { echo $((0x$(bar "$pci/resource2" r64 $((control + 128))))); }
# Bytes of the stream up to an offset are on the device for good.
credited() { [ "$(credit)" -ge "$1" ]; }
