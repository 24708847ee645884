# shellcheck shell=bash
# The kernel's NBD driver attaches the device, which listens on the host's loopback: verified I/O, and a file system
# that is cut.
#
# /run/guest/target: address and port.

if [ "$device" = emulated ]; then
    for name in driver network connect size limits fio trims zeroes mkfs mount files power-cut load-ends \
        unmount disconnect reconnect mount-again files-whole unmount-again clean; do
        skip $name "QEMU's controller is no server of NBD"
    done
    return 0
fi
kernel_may_say "block nbd0: |nbd[0-9]*: |I/O error, dev nbd0|Buffer I/O error|EXT4-fs|JBD2|Aborting journal"
kernel_may_say "blk_print_req_error: [0-9]* callbacks suppressed"

read -r address port _ </run/guest/target
disk=/dev/nbd0
driver() { modprobe nbd nbds_max=1 && test -b $disk; }
check driver driver || return 1
check network network || return 1
# Two connections: a flush on one is about what was written on both.
connect() { nbd-client "$address" "$port" $disk -N 1 -C 2 && wait_for 30 attached; }
attached() { [ "$(blockdev --getsize64 $disk)" -gt 0 ]; }
check connect connect || return 1
check size shows '^268435456$' blockdev --getsize64 $disk
limits() {
    (cd /sys/block/nbd0/queue && cat logical_block_size rotational write_cache fua discard_max_bytes) | tr '\n' ' '
}
check limits shows '^512 0 write back 1 [1-9]' limits

verify() {
    fio --name=nbd --filename=$disk --rw=randwrite --bsrange=4k-256k --ioengine=libaio --iodepth=16 --direct=1 \
        --size=16m --numjobs=2 --offset_increment=24m --fsync=32 --verify=crc32c --verify_fatal=1 --do_verify=1 \
        --verify_interval=4k --group_reporting --output-format=terse
}
check fio verify
read_zeroes() { cmp -n 4194304 <(dd if=$disk bs=1M skip="$1" count=4 iflag=direct status=none) /dev/zero; }
trims() { blkdiscard -o 1M -l 4M $disk && read_zeroes 1; }
check trims trims
zeroes() { blkdiscard -z -o 8M -l 4M $disk && read_zeroes 8; }
check zeroes zeroes

check mkfs mkfs.ext4 -q -F $disk
check mount mount -t ext4 $disk /mnt
files() {
    local number
    for number in $(seq 20); do head -c $((number * 9000)) /dev/urandom >"/mnt/$number" || return 1; done
    (cd /mnt && sha256sum [0-9]* >/tmp/sums)
    sync -f /mnt/1
}
check files files
# The power fails under a load that is not synced. The connections end, and the driver fails what comes then.
dd if=/dev/zero of=/mnt/load bs=64k count=100000 oflag=direct status=none 2>/tmp/load &
load=$!
loads() { [ "$(stat -c %s /mnt/load)" -gt 1000000 ]; }
wait_for 60 loads
check power-cut ask fault power-cut
ends() { ! kill -0 $load 2>/dev/null; }
check load-ends wait_for 120 ends
check unmount umount /mnt
check disconnect nbd-client -d $disk
connects_again() { wait_for 60 connect; }
check reconnect connects_again || return 1
# Its journal is replayed.
check mount-again mount -t ext4 $disk /mnt
check files-whole sh -c 'cd /mnt && sha256sum --check --quiet /tmp/sums'
check unmount-again umount /mnt
check clean e2fsck -f -n $disk
nbd-client -d $disk
