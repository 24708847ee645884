# shellcheck shell=bash
# The kernel's driver binds, and what nvme-cli asks of a controller is answered.

differs emulated vendor-log "QEMU's controller has no vendor log pages"
differs emulated host-memory-buffer "QEMU's controller asks for no host memory"
differs emulated host-memory-feature "QEMU's controller asks for no host memory"
differs emulated host-memory-used "QEMU's controller asks for no host memory"
differs emulated self-test-log "QEMU's controller has no self-test"
differs emulated error-recorded "QEMU's error log stays empty"

disk=/dev/nvme0n1
# How often a value of the SMART log was counted.
smart() { nvme smart-log /dev/nvme0 -o json | jq -r ".$1"; }
block_len() { blockdev --getss $disk; }

check controller wait_for 30 test -c /dev/nvme0
check namespace wait_for 30 test -b $disk
check driver shows 'nvme$' readlink /sys/class/nvme/nvme0/device/driver
check live shows '^live$' cat /sys/class/nvme/nvme0/state
# An I/O queue for each processor, and the admin queue.
check queues shows "^$(($(nproc) + 1))\$" cat /sys/class/nvme/nvme0/queue_count
check list shows nvme0n1 nvme list
check list-subsys shows 'nvme0 pcie .* live' nvme list-subsys

# --- Identify ---
check id-ctrl shows '^mn +: [^ ]' nvme id-ctrl /dev/nvme0
check serial shows '^sn +: [^ ]' nvme id-ctrl /dev/nvme0
check version shows '^ver +: 0x(10[3-9]|2)' nvme id-ctrl /dev/nvme0
check transport-type shows '^cntrltype +: 1$' nvme id-ctrl /dev/nvme0
check volatile-cache shows 'Volatile Write Cache .*present|\[0:0\] : 0x1' nvme id-ctrl /dev/nvme0 -H
check id-ns shows '^nsze +: 0x[0-9a-f]*[1-9a-f]' nvme id-ns $disk
check blocks-of-512 shows '^lbaf +[0-9]+ : ms:0 +lbads:9 ' nvme id-ns $disk
check blocks-of-4096 shows '^lbaf +[0-9]+ : ms:0 +lbads:12 ' nvme id-ns $disk
check ns-descs shows 'csi|nguid|uuid|eui64' nvme ns-descs $disk
check list-ns shows '\]:0x1$' nvme list-ns /dev/nvme0
check list-ctrl shows 'num of ctrls present: [1-9]' nvme list-ctrl /dev/nvme0
check show-regs shows '^csts +: 0x1$|^csts +: 1$' nvme show-regs /dev/nvme0

# --- log pages ---
check smart-log shows 'critical_warning[[:space:]]*: 0$' nvme smart-log /dev/nvme0
check error-log nvme error-log /dev/nvme0
check fw-log shows '^frs1 ' nvme fw-log /dev/nvme0
check effects-log shows 'ACS6 .*Identify' nvme effects-log /dev/nvme0
check changed-ns-log nvme changed-ns-list-log /dev/nvme0
check self-test-log nvme self-test-log /dev/nvme0
check log-beyond refused nvme get-log /dev/nvme0 -i 0x6f -l 512
# A log page of the vendor's: this profile has no fast side, and so no such page. Job `bars` reads it where there is
# one.
no_fast_side() {
    nvme get-log /dev/nvme0 -i 0xc0 -l 1664 2>&1 | tee /tmp/shown
    grep -q '(0x6109)' /tmp/shown
}
check vendor-log no_fast_side

# --- SMART counters tell the truth: so many commands, so many thousands of 512 bytes ---
counted() {
    local writes reads units
    writes=$(smart host_write_commands) reads=$(smart host_read_commands) units=$(smart data_units_written)
    dd if=/dev/zero of=$disk bs=64k count=125 oflag=direct status=none || return 1
    dd if=$disk of=/dev/null bs=64k count=40 iflag=direct status=none || return 1
    writes=$(($(smart host_write_commands) - writes)) reads=$(($(smart host_read_commands) - reads))
    units=$(($(smart data_units_written) - units))
    echo "writes $writes, reads $reads, thousands of 512 bytes written $units"
    # 125 writes of 128 times 512 bytes.
    [ "$writes" = 125 ] && [ "$reads" = 40 ] && [ "$units" = 16 ]
}
check smart-counts counted

# --- features ---
check feature-arbitration nvme get-feature /dev/nvme0 -f 0x01
check feature-power nvme get-feature /dev/nvme0 -f 0x02
check feature-temperature nvme get-feature /dev/nvme0 -f 0x04
check feature-error-recovery nvme get-feature /dev/nvme0 -n 1 -f 0x05
check feature-write-cache shows 'value: *0x0*1$' nvme get-feature /dev/nvme0 -f 0x06
check feature-queues nvme get-feature /dev/nvme0 -f 0x07
check feature-coalescing nvme get-feature /dev/nvme0 -f 0x08
check feature-vector nvme get-feature /dev/nvme0 -f 0x09
check feature-atomicity nvme get-feature /dev/nvme0 -f 0x0a
check feature-events nvme get-feature /dev/nvme0 -f 0x0b
# With 4,096 bytes of attributes: size, address and number of the lent memory.
check host-memory-feature shows 'Enable Host Memory.*(True|Enabled|: *1)|value: *0x0*1$' nvme get-feature /dev/nvme0 \
    -f 0x0d -H
# The drive's read cache lies there: what is read a second time has been in this machine's memory in between.
figure() { ask figure "$1" >&2 && echo "${answer#done }"; }
host_memory_used() {
    local before between after
    head -c 1048576 /dev/urandom >/tmp/cached
    dd if=/tmp/cached of=$disk bs=64k seek=256 oflag=direct status=none && nvme flush $disk || return 1
    before=$(figure host_memory_reads) && [ "$(figure host_memory_lent | tr -d '"')" != 0 ] || return 1
    dd if=$disk bs=64k skip=256 count=16 iflag=direct status=none | cmp - /tmp/cached || return 1
    between=$(figure host_memory_writes)
    dd if=$disk bs=64k skip=256 count=16 iflag=direct status=none | cmp - /tmp/cached || return 1
    after=$(figure host_memory_reads)
    echo "units read from host memory: $before, then $after; written: $between"
    [ "$between" -gt 0 ] && [ "$after" -gt "$before" ]
}
check host-memory-used host_memory_used
check feature-unknown refused nvme get-feature /dev/nvme0 -f 0x7f
set_temperature() {
    nvme set-feature /dev/nvme0 -f 0x04 --value=0x160 && shows 'value: *0x0*160$' nvme get-feature /dev/nvme0 -f 0x04
}
check set-feature set_temperature
write_cache_off() {
    nvme set-feature /dev/nvme0 -f 0x06 --value=0 && shows 'value: *(0x)?0+$' nvme get-feature /dev/nvme0 -f 0x06 &&
        dd if=/dev/zero of=$disk bs=4k count=8 oflag=direct status=none && nvme set-feature /dev/nvme0 -f 0x06 --value=1
}
check write-cache-off write_cache_off

# --- I/O commands that file systems don't use ---
head -c 4096 /dev/urandom >/tmp/data
blocks=$((4096 / $(block_len) - 1))
check write nvme write $disk -s 64 -c $blocks -z 4096 -d /tmp/data
check compare nvme compare $disk -s 64 -c $blocks -z 4096 -d /tmp/data
check compare-differs refused nvme compare $disk -s 64 -c $blocks -z 4096 -d /dev/zero
check verify nvme verify $disk -s 64 -c $blocks
check flush nvme flush $disk
check write-zeroes nvme write-zeroes $disk -s 64 -c $blocks
zeroes() { cmp -n 4096 <(dd if=$disk bs="$(block_len)" skip=64 count=$((blocks + 1)) iflag=direct status=none) \
    /dev/zero; }
check zeroes zeroes
check deallocate nvme dsm $disk -d -s 64 -b $((blocks + 1))
size=$(blockdev --getsz $disk)
check read-beyond refused nvme read $disk -s $((size * 512 / $(block_len))) -c 0 -z "$(block_len)"
check unknown-command refused nvme io-passthru $disk --opcode=0x7f -n 1
recorded() { shows 'error_count[[:space:]]*: [1-9]' nvme error-log /dev/nvme0; }
check error-recorded recorded
check admin-passthru nvme admin-passthru /dev/nvme0 --opcode=0x06 --cdw10=1 --data-len=4096 --read
check admin-unknown refused nvme admin-passthru /dev/nvme0 --opcode=0x7e

# --- what the driver said of memory that it lent: the drive is given it, and places nothing there yet ---
dmesg | grep -i 'host memory buffer' | while read -r line; do note "dmesg: ${line#*] }"; done
check host-memory-buffer shows 'allocated [1-9][0-9]* MiB host memory buffer' dmesg
