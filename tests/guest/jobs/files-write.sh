# shellcheck shell=bash
# Writes a tree of files, tells the harness of each that was synced, and then loses its drive in the middle of writing.
#
#   files-write FS STATE CUT     FS: ext4, xfs, journal (ext4 with its journal, data too, on a second namespace)
#                                STATE: fresh makes the file system; again goes on with the one that is there
#                                CUT: kill (drive and guest at once), power-cut (the drive alone; then both are killed)

fs=${1:?FS} state=${2:?STATE} cut=${3:?CUT}
. ./file-systems.sh
kernel_may_say "resetting controller|I/O tag .* timeout|controller is down|Device not ready|Abort|aborting"
# Past the cut the file system may find writes failed.
if [ "$cut" = power-cut ]; then kernel_may_say "EXT4-fs|XFS|Buffer I/O error|JBD2|I/O error, dev nvme0n"; fi
# The kernel cancels what is under way when it resets the controller, and does not try reads ahead again.
kernel_may_say "nvme0(c0)?n[0-9]+: I/O Cmd.* \(sct 0x3 / sc 0x71\)"
for name in power-cut recovers reads-again; do differs emulated $name "QEMU's controller has no power cut"; done

check devices file_system_devices "$fs" || return 1
if [ "$state" = fresh ]; then check makes make_file_system "$fs"; else not_here makes; fi
# The kernel means to drop data=journal one day.
if [ "$fs" = journal ]; then kernel_may_say "data=journal"; fi
check mounts mount_file_system "$fs" || return 1

# Each way of making a file durable, in turn; each is then reported to the harness. Contents are pieces of /tmp/random.
head -c 16M /dev/urandom >/tmp/random
# Files that earlier guests synced.
before=$(grep -c . /run/guest/kept)
synced=0
sync_file() {
    local name=$1 way=$2 sum
    local piece=(if=/tmp/random skip=$((RANDOM * 400)) count=$((RANDOM * 12 + 1)) iflag=skip_bytes,count_bytes bs=64k \
        status=none)
    case $way in
        0) dd "${piece[@]}" of="$name" && sync "$name" ;;
        1) dd "${piece[@]}" of="$name" conv=fsync ;;
        2) dd "${piece[@]}" of="$name" oflag=dsync && sync "$name" ;;
        3) dd "${piece[@]}" of="$name.new" conv=fsync && mv "$name.new" "$name" && sync "$(dirname "$name")" ;;
        4) dd "${piece[@]}" of="$name" && sync -f "$name" ;;
    esac || return 1
    sum=$(sha256sum "$name") || return 1
    say keep "${sum%% *}  ${name#/mnt/}"
    synced=$((synced + 1))
}
files_sync() {
    local turn folder
    RANDOM=$((10#$(date +%N) % 32768))
    for turn in $(seq 40); do
        folder=/mnt/$cut-$before/$((turn / 8))
        [ -d "$folder" ] || mkdir -p "$folder" || return 1
        sync_file "$folder/file$turn" $((turn % 5)) || return 1
    done
}
# Never synced: something to lose, so that the drive always has writes of its own to forget.
mkdir -p "/mnt/load-$cut-$before"
load() {
    local turn
    for turn in $(seq 100000); do
        cp /tmp/lost "/mnt/load-$cut-$before/$((turn % 50))" || return
        sleep 0.05
    done
}
head -c 200000 /dev/urandom >/tmp/lost
load 2>/dev/null &
loader=$!
check files-synced files_sync
if [ "$cut" = power-cut ]; then
    check power-cut ask fault power-cut
    is_live() { grep -q '^live$' /sys/class/nvme/nvme0/state; }
    # The driver finds its commands unanswered, or the controller not ready: both end in a reset.
    recovers() {
        local before=$SECONDS
        nvme reset /dev/nvme0
        wait_for 60 is_live || return 1
        note "the driver has the drive again after $((SECONDS - before)) s"
    }
    check recovers recovers
    check reads-again dd if=$disk of=/dev/null bs=1M count=4 iflag=direct status=none
else
    for name in power-cut recovers reads-again; do not_here $name; done
fi
kill -0 $loader 2>/dev/null && note "$synced files synced, and the load still writes"
kernel_is_content
ask kill
