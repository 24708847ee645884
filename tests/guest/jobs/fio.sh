# shellcheck shell=bash
# fio writes, trims and flushes through every queue, and reads back what it wrote, with checksums.
#
#   fio MIB      MIB are written by each of four processes

mib=${1:?MIB}
disk=/dev/nvme0n1
common=(--filename=$disk --direct=1 --group_reporting --verify=crc32c --verify_fatal=1 --do_verify=1 \
    --serialize_overlap=1
    --randrepeat=1 --output-format=terse --random_generator=tausworthe64)
part=$((mib + mib / 4))

check namespace wait_for 30 test -b $disk
format_as() {
    nvme format $disk -l "$(nvme id-ns $disk -o json | jq -r "[.lbafs[] | [.ms, .ds]] | index([[0, $1]])")" --force &&
        shows "^$((1 << $1))\$" blockdev --getss $disk
}
# Four processes, pinned over the processors: each processor has a queue of its own.
writes() {
    fio "${common[@]}" --name=writes --rw=randwrite --bsrange="$1-1m" --blockalign="$1" --ioengine=libaio --iodepth=16 \
        --numjobs=4 --cpus_allowed=0-1 --cpus_allowed_policy=split --size="${mib}m" --offset_increment="${part}m" \
            --fsync=32 \
        --verify_interval="$1"
}
# Forced unit access: what O_DSYNC asks of a drive with a volatile cache that offers it.
forced() {
    fio "${common[@]}" --name=forced --rw=randwrite --bsrange="$1-64k" --blockalign="$1" --ioengine=io_uring \
        --iodepth=8 \
        --sync=dsync --numjobs=2 --size="$((mib / 4))m" --offset_increment="${part}m" --verify_interval="$1"
}
# Blocks are trimmed, then written; others are trimmed and have to read as zeroes.
trims() {
    fio "${common[@]}" --name=trims --rw=randtrimwrite --bs=64k --ioengine=libaio --iodepth=1 --numjobs=2 \
        --size="$((mib / 2))m" --offset_increment="${part}m" --fsync=64
}
# Random ranges of random data are written, discarded or zeroed, and the same is done to a file in memory. Discards are
# of whole granules: of a part of one a drive may keep what was there (NPDG, section 5.15.2.1), and ours does.
mirrored() {
    local block=$1 file=/tmp/mirror first count turn granule
    granule=$(cat /sys/block/nvme0n1/queue/discard_granularity)
    [ "$granule" -ge "$block" ] && granule=$((granule / block)) || return 1
    RANDOM=7
    dd if=/dev/urandom of=$file bs=1M count=4 status=none
    dd if=$file of=$disk bs=1M oflag=direct status=none
    for turn in $(seq 60); do
        first=$((RANDOM % (4194304 / block))) count=$((RANDOM % 64 + 1))
        if [ $((turn % 3)) = 1 ]; then first=$((first / granule * granule)) \
            count=$(((count + granule - 1) / granule * granule)); fi
        [ $((first + count)) -le $((4194304 / block)) ] || continue
        case $((turn % 3)) in
            0)
                dd if=/dev/urandom of=$file bs="$block" seek=$first count=$count conv=notrunc status=none
                dd if=$file of=$disk bs="$block" skip=$first seek=$first count=$count oflag=direct status=none
                ;;
            1)
                dd if=/dev/zero of=$file bs="$block" seek=$first count=$count conv=notrunc status=none
                blkdiscard -o $((first * block)) -l $((count * block)) $disk
                ;;
            2)
                dd if=/dev/zero of=$file bs="$block" seek=$first count=$count conv=notrunc status=none
                blkdiscard -z -o $((first * block)) -l $((count * block)) $disk
                ;;
        esac || return 1
    done
    cmp $file <(dd if=$disk bs=1M count=4 iflag=direct status=none)
}
cached() {
    fio --name=cached --filename=$disk --rw=randrw --bsrange=1k-256k --ioengine=psync --numjobs=2 \
        --size="$((mib / 2))m" \
        --offset_increment="${part}m" --fdatasync=32 --group_reporting --verify=crc32c --verify_fatal=1 --do_verify=1 \
        --output-format=terse
}
# Through the character device, commands as they are.
passed() {
    fio --name=passed --filename=/dev/ng0n1 --ioengine=io_uring_cmd --cmd_type=nvme --rw=randwrite --bs=16k \
        --iodepth=16 \
        --size="$((mib / 2))m" --verify=crc32c --verify_fatal=1 --do_verify=1 --output-format=terse
}
for on in 512 4096; do
    if [ $on = 512 ]; then check format format_as 9; else check format format_as 12; fi
    check fua-offered shows '^1$' cat /sys/block/nvme0n1/queue/fua
    check discard-offered shows '^[1-9]' cat /sys/block/nvme0n1/queue/discard_max_bytes
    check writes writes $on
    check forced forced $on
    check trims trims
    check mirrored mirrored $on
done
on=
check cached cached
check passed passed
interrupts() {
    # Each I/O queue's interrupt has been raised on its processor.
    grep -E 'nvme0q[1-9]' /proc/interrupts
    [ "$(grep -E 'nvme0q[1-9]' /proc/interrupts | awk '$2 + $3 > 100' | wc -l)" = "$(nproc)" ]
}
check every-queue interrupts
