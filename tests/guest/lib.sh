# shellcheck shell=bash
# What jobs are written with. Each check has a literal name, which the harness looks for in the job's text: one that is
# never reported fails the run. `on=WORD` in front of checks in a loop says which turn it is: it is put behind the name.

on=
# The device under test as the harness names it: `emulated` (QEMU's own) or `tidewater`.
device=$(cat /run/guest/device)
declare -A differences=()
kernel_allowed=()

say() { printf '%s\n' "$*" >&3; }
# A figure for the reader of the run.
note() { say note "$*"; }

# differs DEVICE NAME WHY: on this device the check isn't made.
differs() {
    if [ "$1" = "$device" ]; then differences[$2]=$3; fi
}
# skip NAME WHY: what the machine lacks; counted, and said.
skip() { say "skip $1${on:+ ($on)}: $2"; }

# not_here NAME: the job's arguments don't ask for this check; neither counted nor said.
not_here() { say "absent $1"; }

# check NAME COMMAND...: the command ends well. Its output goes to the console, and the last line of a bad end to the
# harness.
check() {
    local name=$1 status
    shift
    if [ -n "${differences[$name]:-}" ]; then
        skip "$name" "${differences[$name]}"
        return 0
    fi
    echo "--- $name${on:+ ($on)}: $*"
    "$@" >/tmp/output 2>&1 </dev/null
    status=$?
    cat /tmp/output
    if [ "$status" = 0 ]; then
        say "ok $name${on:+ ($on)}"
    else
        say "not ok $name${on:+ ($on)}: $* ended with $status: $(grep -v '^$' /tmp/output | tail -n 3 | tr '\n' '|')"
    fi
    return "$status"
}
# Is the check's command refused?
refused() {
    if "$@"; then
        echo "it was not refused"
        return 1
    fi
}
# shows PATTERN COMMAND...: the command ends well, and prints a line that matches (extended expression, any case).
shows() {
    local pattern=$1
    shift
    "$@" >/tmp/shown 2>&1 </dev/null || {
        cat /tmp/shown
        return 1
    }
    cat /tmp/shown
    grep -qiE -- "$pattern" /tmp/shown || {
        echo "no line matches '$pattern'"
        return 1
    }
}

# ask ACTION ARGUMENT...: the harness does something outside of the machine, and says what came of it (in `answer`).
ask() {
    say "ask $*"
    read -r answer <&3
    echo "--- asked for $*: $answer"
    [ "${answer%% *}" = "done" ]
}

# kernel_may_say PATTERN: in this job the kernel may say such lines at the level of a warning or above.
kernel_may_say() { kernel_allowed+=("$1"); }
# Warnings and worse. Of what was said before the first program ran, only what is about devices: an emulated machine's
# clocks and processors give a kernel reasons of its own to complain.
kernel_complaints() {
    dmesg -r | awk '
        /Run \/init as init process/ { started = 1 }
        { level = substr($0, 2) + 0; if (level % 8 <= 4 && (started ||
            tolower($0) ~ /nvme|pci|blk|block|dma|bar |kernel bug|warning:|call trace/)) print }
    ' | grep -vE -f <(printf '%s\n' 'no line of a kernel is like this' "${kernel_allowed[@]}")
}
kernel_is_content() {
    local complaints
    complaints=$(kernel_complaints)
    echo "--- dmesg"
    dmesg | tail -n 40
    if [ -z "$complaints" ]; then
        say "ok dmesg"
    else
        say "not ok dmesg: $(cut -c 1-200 <<<"$complaints" | tr '\n' '|' | cut -c 1-1000)"
    fi
}

# Ends the machine; `end` tells the harness that nothing is missing because of an early end.
finish() {
    say end
    sync
    busybox poweroff -f
}

# disk_of NSID: the block device of a namespace of the first controller. The kernel numbers disks as it finds them,
# which need not be in the order of namespaces.
disk_of() {
    local file
    for file in /sys/block/nvme0n*/nsid; do
        if [ "$(cat "$file" 2>/dev/null)" = "$1" ]; then
            basename "$(dirname "$file")" | sed 's|^|/dev/|'
            return 0
        fi
    done
    return 1
}

there() { disk_of "$1" >/dev/null; }
gone() { ! disk_of "$1" >/dev/null; }

# The network of a guest that has one: the host's loopback is 10.0.2.2.
network() {
    local interface
    modprobe virtio_net
    interface=$(basename "$(ls -d /sys/class/net/e* | head -n 1)")
    ip link set "$interface" up && ip address add 10.0.2.15/24 dev "$interface"
}

# wait_for SECONDS COMMAND...: until the command ends well. The seconds are far more than it takes on an idle machine.
wait_for() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || {
            echo "not within time: $*"
            return 1
        }
        sleep 0.1
    done
}
