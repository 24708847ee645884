# shellcheck shell=bash
# The kernel's initiator attaches a target over NVMe/TCP: of the device under test, which listens on the host's
# loopback; or, where that has none, the kernel's own target in this guest, over the emulated drive.
#
# /run/guest/target: address, port, and name of the subsystem.

kernel_may_say "nvme nvme[0-9]+: (starting error recovery|[Ff]ailed reconnect|Reconnecting|failed to connect)"
kernel_may_say "nvme nvme[0-9]+: (queue .* timeout|I/O tag|creating|reading non-mdts-limits|rescanning|Connect)"
kernel_may_say "nvme nvme[0-9]+: (Property|Keep.?Alive|failed nvme_keep_alive|long keepalive|Removing ctrl|new ctrl)"
kernel_may_say "nvme nvme[0-9]+: (resetting|failed to send request|receive failed|queue [0-9]+: )"
kernel_may_say "[0-9]+ callbacks suppressed"
kernel_may_say "nvme[0-9]+[cn][0-9n]*: .*(retryable|path error|no usable path|requeuing|no available path)"
kernel_may_say "nvmet"

read -r address port subsystem </run/guest/target
module() { modprobe "$1" && grep -q "^${1//-/_} " /proc/modules; }
check initiator module nvme-tcp

own_target() {
    local configfs=/sys/kernel/config/nvmet
    module nvmet-tcp || return 1
    mountpoint -q /sys/kernel/config || mount -t configfs config /sys/kernel/config
    mkdir -p "$configfs/subsystems/$subsystem/namespaces/1" "$configfs/ports/1" \
        "$configfs/hosts/$(cat /etc/nvme/hostnqn)" || return 1
    echo 0 >"$configfs/subsystems/$subsystem/attr_allow_any_host"
    ln -s "$configfs/hosts/$(cat /etc/nvme/hostnqn)" "$configfs/subsystems/$subsystem/allowed_hosts/"
    disk_of 1 >"$configfs/subsystems/$subsystem/namespaces/1/device_path"
    echo 1 >"$configfs/subsystems/$subsystem/namespaces/1/enable"
    echo tcp >"$configfs/ports/1/addr_trtype"
    echo ipv4 >"$configfs/ports/1/addr_adrfam"
    echo "$address" >"$configfs/ports/1/addr_traddr"
    echo "$port" >"$configfs/ports/1/addr_trsvcid"
    ln -s "$configfs/subsystems/$subsystem" "$configfs/ports/1/subsystems/"
}
prepare() {
    if [ "$device" = emulated ]; then
        wait_for 30 disk_of 1 && own_target
    else
        network
    fi
}
check target prepare || return 1
# A target that names itself.
if [ "$subsystem" = - ]; then
    subsystem=$(nvme discover -t tcp -a "$address" -s "$port" -o json |
        jq -r '[.records[].subnqn | select(endswith(":discovery") or endswith(".discovery") | not)][0]')
    note "the target is called $subsystem"
fi
# Takes the target away, and brings it back.
restart_target() {
    if [ "$device" = emulated ]; then
        rm "/sys/kernel/config/nvmet/ports/1/subsystems/$subsystem" && sleep 3 &&
            ln -s "/sys/kernel/config/nvmet/subsystems/$subsystem" /sys/kernel/config/nvmet/ports/1/subsystems/
    else
        ask restart
    fi
}

# The controller that is attached over TCP, and its disk.
controller_of() { nvme list-subsys -o json | jq -r '.. | objects | select(.Transport? == "tcp") | .Name' | head -n 1; }
connect() {
    nvme connect -t tcp -a "$address" -s "$port" -n "$subsystem" --keep-alive-tmo=5 --reconnect-delay=1 \
        --ctrl-loss-tmo=300 "$@" || return 1
    wait_for 30 attached
}
attached() {
    controller=$(controller_of)
    [ -n "$controller" ] || return 1
    # Where multipath is on, the disk is named after the subsystem.
    disk=$(basename "$(ls -d "/sys/class/nvme/$controller"/nvme*n1 2>/dev/null | head -n 1)" |
        sed -E 's|c[0-9]+n|n|; s|^|/dev/|')
    [ -b "$disk" ] && [ "$disk" != /dev/ ]
}
disconnect() {
    nvme disconnect -n "$subsystem" || return 1
    wait_for 30 detached
}
detached() { [ -z "$(controller_of)" ]; }

check discover shows "subnqn: *$subsystem\$" nvme discover -t tcp -a "$address" -s "$port"
check discover-type shows 'trtype: *tcp' nvme discover -t tcp -a "$address" -s "$port"
stranger() { connect --hostnqn=nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001; }
check stranger refused stranger
check unknown-subsystem refused nvme connect -t tcp -a "$address" -s "$port" -n "$subsystem-not"

verify() {
    fio --name=tcp --filename="$disk" --rw=randwrite --bsrange=4k-256k --ioengine=libaio --iodepth=16 --direct=1 \
        --size=16m --numjobs=2 \
        --offset_increment=24m --fsync=32 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_interval=4k \
            --group_reporting \
        --output-format=terse
}
for on in plain digests; do
    digests=()
    if [ $on = digests ]; then digests=(--hdr-digest --data-digest); fi
    # An I/O queue for each processor.
    check connect connect "${digests[@]}" || return 1
    check live shows '^live$' cat "/sys/class/nvme/$controller/state"
    check id-ctrl shows '^mn +: [^ ]' nvme id-ctrl "/dev/$controller"
    check smart-log nvme smart-log "/dev/$controller"
    check fio verify
    check trims blkdiscard -o 1M -l 4M "$disk"
    check disconnect disconnect
done
on=
# Who is not trusted with more only reads and writes.
check connect connect || return 1
check format-refused refused nvme format "$disk" -l 0 --force
check vendor-refused refused nvme admin-passthru "/dev/$controller" --opcode=0xd4

# A file system lives through a restart of its target, with writes under way.
check mkfs mkfs.ext4 -q -F "$disk"
check mount mount -t ext4 "$disk" /mnt
files() {
    local number
    for number in $(seq 20); do head -c $((number * 9000)) /dev/urandom >"/mnt/$number" || return 1; done
    (cd /mnt && sha256sum [0-9]* >/tmp/sums)
    sync -f /mnt/1
}
check files files
dd if=/dev/zero of=/mnt/load bs=64k count=400 oflag=direct status=none &
load=$!
check restart restart_target
check reconnects wait_for 120 grep -q '^live$' "/sys/class/nvme/$controller/state"
check load-ends wait $load
check files-whole sh -c 'echo 3 >/proc/sys/vm/drop_caches; cd /mnt && sha256sum --check --quiet /tmp/sums'
check unmount umount /mnt
check clean e2fsck -f -n "$disk"
check disconnect disconnect
check reconnect-keeps connect
check still-clean e2fsck -f -n "$disk"
check disconnect disconnect
