# shellcheck shell=bash
# The probe of a read cache (Kim and Kim, PLOS ONE 15(3), 2020, figure 4) on the block device, opened with O_DIRECT:
# useless data is read, then so many bytes, then the same ones again.

disk=/dev/nvme0n1

for name in cached-16 cached-32 flash-36; do
    differs emulated $name "QEMU's controller has no read cache of a known size"
done

check namespace wait_for 30 test -b $disk
# 32 MiB of data, which is on flash after the flush.
written() { dd if=/dev/urandom of=$disk bs=1M count=32 oflag=direct conv=fsync status=none; }
check written written

# pass KIB: microseconds that reading them takes, 4 KiB after 4 KiB, from the middle of what was written.
pass() {
    local began ended
    began=$(date +%s%N)
    dd if=$disk of=/dev/null bs=4k skip=4096 count=$(($1 / 4)) iflag=direct status=none || return 1
    ended=$(date +%s%N)
    echo $(((ended - began) / 1000))
}
# probe KIB: the shortest of three first passes and of three second ones, each with its own useless data.
probe() {
    local one two
    first='' again=''
    for _ in 1 2 3; do
        dd if=$disk of=/dev/null bs=1M count=8 iflag=direct status=none || return 1
        one=$(pass "$1") && two=$(pass "$1") || return 1
        if [ -z "$first" ] || [ "$one" -lt "$first" ]; then first=$one; fi
        if [ -z "$again" ] || [ "$two" -lt "$again" ]; then again=$two; fi
    done
    echo "$1 KiB: $first us, again $again us"
}
# Up to the size of the cache the second pass needs no flash; one page more, and all of it does.
finds() { probe "$1" && [ $((2 * again)) -lt "$first" ]; }
misses() { probe "$1" && [ $((2 * again)) -gt "$first" ]; }
check cached-16 finds 16
check cached-32 finds 32
check flash-36 misses 36
note "$(for kib in 8 16 24 32 36 40 64; do probe $kib; done | tr '\n' ';')"
