#!/usr/bin/env bash
# A drive, a Linux guest that has it, and a prompt in it: `make guest-shell`. Needs no root and no KVM: the guest is
# emulated, and starts in about ten seconds. The drive ends with the guest.
#
#   scripts/guest-shell.sh [OPTION OF `tidewater serve`...]
#
#   make guest-shell                                              a generic drive of 1 GiB in memory, as /dev/nvme0n1
#   make guest-shell ARGS='--profile villars --image drive.img'   another drive, which is kept
#   make guest-shell ARGS='--set serve.timing=none'               as fast as it goes
#   echo 'nvme list' | make guest-shell                           commands by a pipe; its end is that of the last
#
# In the guest: nvme-cli, fio, mkfs, nbd-client. `exit` ends it. From another terminal faults are injected, by the
# command that is printed first. TIDEWATER names the program; TIDEWATER_GUEST_KIT a kit that scripts/guest-kit.sh made.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
fi
tidewater=${TIDEWATER:-${CARGO_TARGET_DIR:-$root/target}/quick/tidewater}
kit=${TIDEWATER_GUEST_KIT:-$(realpath -m "${CARGO_TARGET_DIR:-$root/target}/guest-kit")}
[ -n "${TIDEWATER_GUEST_KIT:-}" ] || "$root/scripts/guest-kit.sh" "$kit" >&2

work=$(mktemp -d "${TMPDIR:-/tmp}/tidewater-guest.XXXXXX")
server=
end() {
    # The drive ends with its standard input, however this script ends.
    exec 8>&-
    [ -z "$server" ] || wait "$server" || true
    rm -rf "$work"
}
trap end EXIT

# What is not given.
options=("$@")
given() { printf '%s\n' "${options[@]}" | grep -qE "^--($1)(=|\$)"; }
if ! given image; then options+=(--image memory); fi
if ! given 'profile|image'; then options+=(--profile generic); fi
if ! given 'capacity|size'; then options+=(--capacity 1GiB); fi
mkfifo "$work/life"
"$tidewater" serve "${options[@]}" --vfio-user "$work/cntrl" --control "$work/control.sock" --stop-with-stdin \
    <"$work/life" >"$work/serve.log" 2>&1 &
server=$!
exec 8>"$work/life"
until grep -q '^Durability: ' "$work/serve.log"; do
    if ! kill -0 "$server" 2>/dev/null; then
        cat "$work/serve.log" >&2
        exit 1
    fi
    sleep 0.1
done
echo "guest-shell: faults of the drive: $tidewater fault --device $work/control.sock --help" >&2

# Without a terminal, what comes is run; with one, there is a prompt.
mkdir "$work/jobs"
read -r lines columns <<<"$(stty size 2>/dev/null || echo 24 80)"
cat >"$work/jobs/start.sh" <<'START'
exec 0<>/dev/ttyS1 1>&0 2>&0
ln -sfn /proc/self/fd /dev/fd
modprobe nvme
for turn in $(seq 300); do
    [ -e /sys/class/nvme/nvme0/nvme0n1 ] && break
    sleep 0.1
done
cd /root
if [ -f /run/guest/commands ]; then
    stty raw -echo
    bash /run/guest/commands </dev/null
else
    . /run/guest/terminal
    echo "The drive is /dev/nvme0n1. exit ends the guest."
    setsid -c bash -i
fi
status=$?
sync
echo $status >/dev/ttyS2
busybox poweroff -f
START
if [ -t 0 ]; then
    echo "stty sane rows $lines cols $columns; export TERM=${TERM:-linux}" >"$work/jobs/terminal"
    mux=,mux=off,signal=off
else
    cat >"$work/jobs/commands"
    mux=
fi
(cd "$work/jobs" && find . | "$kit/busybox" cpio -o -H newc --quiet) >"$work/archive"

"$kit/qemu" -accel tcg,thread=multi -machine q35,memory-backend=memory -cpu max -smp 2 -m 1024 \
    -object memory-backend-memfd,id=memory,size=1024M,share=on -nodefaults -no-reboot -display none \
    -serial "file:$work/console" -chardev "stdio,id=shell$mux" -serial chardev:shell -serial "file:$work/status" \
    -kernel "$kit/vmlinux" -initrd "$kit/initrd" -append "console=ttyS0 panic=-1 iomem=relaxed guest.shell" \
    -drive "if=none,id=root,file=$kit/root.img,format=raw,readonly=on" -device virtio-blk-pci,drive=root \
    -drive "if=none,id=jobs,file=$work/archive,format=raw,readonly=on" -device virtio-blk-pci,drive=jobs \
    -device pcie-root-port,id=port0,chassis=1,slot=1 -device \
    "{\"driver\":\"vfio-user-pci\",\"bus\":\"port0\",\"socket\":{\"type\":\"unix\",\"path\":\"$work/cntrl\"}}" \
    2>"$work/qemu" 8>&- || true
if ! status=$(tr -dc 0-9 <"$work/status") || [ -z "$status" ]; then
    { cat "$work/qemu" && tail -n 40 "$work/console" "$work/serve.log"; } >&2
    exit 1
fi
exit "$status"
