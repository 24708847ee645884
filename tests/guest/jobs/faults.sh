# shellcheck shell=bash
# For driver engineers: faults injected into the device, and the reaction of the kernel's driver. The guest runs with
# nvme_core.io_timeout=3, so that a lost completion is missed soon.

kernel_may_say "resetting controller|I/O tag .* timeout|timeout, (aborting|completion polled|reset|disable)"
kernel_may_say "Abort status|Abort (cmd|command)"
kernel_may_say "(I/O|critical medium|critical target|protection) error, dev nvme0(c0)?n"
kernel_may_say "Buffer I/O error on dev nvme0n|nvme0(c0)?n1: I/O Cmd|nvme0: .* error"
kernel_may_say "controller is down; will reset|Does your device have a faulty power saving mode"
kernel_may_say "Try .nvme_core.default_ps|Device not ready|Device shutdown incomplete"
kernel_may_say "invalid id .* completed on queue|genctr mismatch"
for name in write-status cleared delayed duplicate duplicate-keeps lost lost-noticed lost-data fatal fatal-live \
    stuck-shutdown stuck-live \
    all-data; do
    differs emulated $name "QEMU's controller can only fail reads of one place"
done

check namespace wait_for 30 there 1
disk=$(disk_of 1)
is_live() { grep -q '^live$' /sys/class/nvme/nvme0/state; }
dd if=/dev/urandom of=/tmp/data bs=64k count=64 status=none
dd if=/tmp/data of="$disk" bs=64k oflag=direct conv=fsync status=none
# read_at FIRST COUNT: blocks of 4,096 bytes, past the page cache.
read_at() { dd if="$disk" of=/tmp/read bs=4k skip="$1" count="$2" iflag=direct status=none; }
right_at() { read_at "$1" "$2" && cmp /tmp/read <(dd if=/tmp/data bs=4k skip="$1" count="$2" status=none); }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# --- a status for a range: bytes 2 MiB to 2 MiB + 64 KiB can't be read ---
# Logical blocks of 512 bytes 4096 to 4223; Unrecovered Read Error.
block=$(blockdev --getss "$disk")
range="1 $((2097152 / block)) $((2162688 / block))"
status_for_range() {
    # The emulated drive has this fault from its start.
    [ "$device" = emulated ] || ask fault status $range 281 0 || return 1
    refused read_at 512 16
}
check status-fails status_for_range
check status-beside right_at 448 32
check status-behind right_at 600 32
check status-said shows 'critical medium error|I/O error|Unrecovered Read' dmesg
write_status() {
    ask fault clear && ask fault status $range 280 0 &&
        refused dd if=/tmp/data of="$disk" bs=4k seek=512 count=4 oflag=direct status=none
}
check write-status write_status
cleared() { ask fault clear && right_at 512 16; }
check cleared cleared

# --- completions late, twice, and never ---
delayed() {
    local begin took
    ask fault delay 0 1500 1 || return 1
    begin=$(milliseconds)
    right_at 0 1 || return 1
    took=$(($(milliseconds) - begin))
    echo "took $took ms"
    [ $took -ge 1500 ]
}
check delayed delayed
duplicate() { ask fault duplicate 0 1 && right_at 0 16 && right_at 16 16; }
check duplicate duplicate
check duplicate-keeps is_live
lost() {
    local begin
    ask fault lose 0 1 || return 1
    begin=$(milliseconds)
    # Sent again by the driver when it has aborted the command, or reset the controller.
    right_at 32 16 || return 1
    note "a lost completion: the read ended after $(($(milliseconds) - begin)) ms"
}
check lost lost
check lost-noticed shows 'I/O tag .* timeout|timeout, ' dmesg
check lost-data right_at 0 64

# --- Controller Fatal Status: the driver resets ---
fatal() {
    ask fault fatal 0 || return 1
    # This command is never completed; after its time-out the driver reads the status register.
    right_at 64 16 && wait_for 30 is_live
}
check fatal fatal
check fatal-live is_live

# --- a shutdown that does not end: the driver gives up, and binds again ---
pci=$(cat /sys/class/nvme/nvme0/address)
stuck() {
    ask fault stuck-shutdown 0 || return 1
    echo "$pci" >/sys/bus/pci/drivers/nvme/unbind || return 1
    dmesg | grep -iE 'aborting shutdown|shutdown incomplete' || return 1
    echo "$pci" >/sys/bus/pci/drivers/nvme/bind
    wait_for 30 there 1
}
check stuck-shutdown stuck
check stuck-live wait_for 30 is_live
disk=$(disk_of 1)
check all-data right_at 0 1024
