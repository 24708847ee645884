# shellcheck shell=bash
# Commands that change a controller and its namespaces: format, namespace management, self-test, sanitize, resets.

kernel_may_say "resetting controller"

differs emulated self-test "QEMU's controller has no self-test"
differs emulated self-test-result "QEMU's controller has no self-test"
differs emulated create-ns "QEMU's controller can't create namespaces"
differs emulated delete-ns "QEMU's controller can't delete namespaces"
differs emulated sanitize "QEMU's controller can't sanitize"
differs emulated sanitized "QEMU's controller can't sanitize"

disk=/dev/nvme0n1
check namespace wait_for 30 test -b $disk

# The format without metadata whose blocks have 2^N bytes.
format_of() { nvme id-ns $disk -o json | jq -r "[.lbafs[] | select(.ms == 0) | .ds] | index($1)"; }
block_is() { shows "^$1\$" blockdev --getss $disk; }
empty() { cmp -n 1048576 $disk /dev/zero; }
format_as() {
    dd if=/dev/urandom of=$disk bs=64k count=16 oflag=direct status=none || return 1
    local all
    all=$(nvme id-ns $disk -o json | jq -r "[.lbafs[] | [.ms, .ds]] | index([[0, $1]])")
    nvme format $disk -l "$all" --force && block_is $((1 << $1))
}
for on in 1 2; do
    check format-4096 format_as 12
    check format-4096-empty empty
    check format-512 format_as 9
    check format-512-empty empty
done
on=
check format-unknown refused nvme format $disk -l 63 --force
same_size() { blockdev --getsize64 $disk; }
bytes=$(same_size)

# --- resets: with I/O under way, and what was written stays ---
dd if=/dev/urandom of=/tmp/data bs=64k count=16 status=none
dd if=/tmp/data of=$disk bs=64k oflag=direct conv=fsync status=none
still_there() { dd if=$disk bs=64k count=16 iflag=direct status=none | cmp - /tmp/data; }
is_live() { grep -q '^live$' /sys/class/nvme/nvme0/state; }
reset_under_load() {
    fio --name=load --filename=$disk --offset=4M --size=16M --rw=randrw --bs=4k --iodepth=16 --ioengine=libaio \
        --direct=1 \
        --time_based --runtime=3 --minimal >/tmp/load 2>&1 &
    local load=$!
    for _ in 1 2 3 4 5; do
        nvme reset /dev/nvme0 || return 1
        wait_for 30 is_live || return 1
    done
    wait $load || { cat /tmp/load; return 1; }
}
check reset nvme reset /dev/nvme0
check reset-live wait_for 30 is_live
check reset-under-load reset_under_load
check reset-keeps still_there
# A guest learns of a reset of the subsystem by the link alone, so there is none; the next command does not wait for a
# time-out.
check subsystem-reset refused nvme subsystem-reset /dev/nvme0
check subsystem-reset-live is_live
check subsystem-reset-responds timeout 10 nvme id-ctrl /dev/nvme0
pci=$(cat /sys/class/nvme/nvme0/address)
rebind() {
    echo "$pci" >/sys/bus/pci/drivers/nvme/unbind || return 1
    echo "$pci" >/sys/bus/pci/drivers/nvme/bind || return 1
    wait_for 30 test -b $disk
}
check rebind rebind
check rebind-keeps still_there
function_reset() {
    echo 1 >"/sys/bus/pci/devices/$pci/reset" || return 1
    nvme reset /dev/nvme0
    wait_for 30 is_live
}
check function-reset function_reset
check function-reset-keeps still_there

# --- namespaces ---
controller=$(nvme id-ctrl /dev/nvme0 -o json | jq -r .cntlid)
detach() {
    nvme detach-ns /dev/nvme0 -n 1 -c "$controller" || return 1
    wait_for 30 test ! -e $disk
}
attach() {
    nvme attach-ns /dev/nvme0 -n 1 -c "$controller" || return 1
    wait_for 30 test -b $disk
}
check detach-ns detach
check detach-ns-listed shows '\]:0x1$' nvme list-ns /dev/nvme0 -a
check detach-ns-inactive refused shows '\]:0x1$' nvme list-ns /dev/nvme0
check attach-ns attach
check attach-ns-keeps still_there
delete() {
    nvme delete-ns /dev/nvme0 -n 1 || return 1
    wait_for 30 test ! -e $disk
}
# Two of half the size each.
create() {
    local blocks=$((bytes / 512 / 2)) n
    for n in 1 2; do
        shows "nsid:$n" nvme create-ns /dev/nvme0 -s $blocks -c $blocks -b 512 || return 1
        nvme attach-ns /dev/nvme0 -n $n -c "$controller" || return 1
    done
    wait_for 30 there 1 && wait_for 30 there 2 || return 1
    echo one | dd of="$(disk_of 1)" bs=4k conv=sync oflag=direct status=none || return 1
    echo two | dd of="$(disk_of 2)" bs=4k conv=sync oflag=direct status=none || return 1
    [ "$(head -c 3 "$(disk_of 1)")" = one ] && [ "$(head -c 3 "$(disk_of 2)")" = two ]
}
check delete-ns delete
check create-ns create

# --- self-test and sanitize ---
wait_for 30 there 1 && disk=$(disk_of 1)
check self-test nvme device-self-test /dev/nvme0 -n 1 -s 1
test_over() { shows 'Current operation *: *0(x0)?$' nvme self-test-log /dev/nvme0 -v; }
self_test_result() {
    wait_for 30 test_over || return 1
    shows 'Operation Result *: *0' nvme self-test-log /dev/nvme0
}
check self-test-result self_test_result
check sanitize nvme sanitize /dev/nvme0 -a start-block-erase
sanitized() {
    wait_for 30 shows 'Sanitize Progress .*: *65535' nvme sanitize-log /dev/nvme0 || return 1
    empty
}
check sanitized sanitized
