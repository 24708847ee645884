# shellcheck shell=bash
# The byte window's commands (docs/reference/vendor.md), and where it is. Sourced behind `bars.sh`, which says what a
# mapped BAR holds.

# window_place: of log page Window, where it is in BAR2, and its bytes.
window_place() { window=$(number /tmp/log0xc3 16 8) window_bytes=$(number /tmp/log0xc3 24 8); }
# order OPCODE OPTION...: a command of the window without data.
order() {
    local opcode=$1
    shift
    nvme io-passthru "$disk" --opcode="$opcode" --namespace-id=1 "$@"
}
# pin ENTRY PAGE PAGES: pages of 4 KiB, at the start of the window.
pin() {
    local blocks
    blocks=$((4096 / $(blockdev --getss "$disk")))
    order 0x90 --cdw12="$1" --cdw13=$(($3 * blocks)) --cdw14=$(($2 * blocks))
}
# info ENTRY: it is pinned, and this is it.
info() {
    nvme io-passthru "$disk" --opcode=0xa6 --namespace-id=1 --cdw10=16 --cdw12="$1" --data-len=64 --read --raw-binary \
        >/tmp/info &&
        [ "$(number /tmp/info 4 2)" = "$1" ]
}
