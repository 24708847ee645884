# shellcheck shell=bash
# Makes, mounts and checks the file systems of jobs: ext4, xfs, and `journal`, which is ext4 with an external journal.

disk=
journal_disk=

# A device with one namespace is cut into two: the second is for a journal.
split_namespaces() {
    local controller blocks
    controller=$(nvme id-ctrl /dev/nvme0 -o json | jq -r .cntlid)
    blocks=$(($(blockdev --getsize64 "$(disk_of 1)") / 4096 / 4))
    nvme delete-ns /dev/nvme0 -n 1 && wait_for 30 gone 1 || return 1
    nvme create-ns /dev/nvme0 -s $((blocks * 3)) -c $((blocks * 3)) -b 4096 && nvme attach-ns /dev/nvme0 -n 1 -c "$controller" || return 1
    nvme create-ns /dev/nvme0 -s $blocks -c $blocks -b 4096 && nvme attach-ns /dev/nvme0 -n 2 -c "$controller"
}
# file_system_devices FS: finds `disk` and, of a journal, `journal_disk`.
file_system_devices() {
    wait_for 30 there 1 || return 1
    if [ "$1" = journal ]; then
        # Both appear together, or there is but one.
        nvme list-ns /dev/nvme0 | grep -q ':0x2$' || split_namespaces || return 1
        wait_for 30 there 1 && wait_for 30 there 2 || return 1
        journal_disk=$(disk_of 2)
    fi
    disk=$(disk_of 1)
    echo "file system on $disk${journal_disk:+, journal on $journal_disk}"
}
make_file_system() {
    case $1 in
        ext4) mkfs.ext4 -q -F $disk ;;
        xfs) mkfs.xfs -q -f $disk ;;
        journal) mke2fs -q -F -b 4096 -O journal_dev $journal_disk && mkfs.ext4 -q -F -b 4096 -J device=$journal_disk $disk ;;
    esac
}
mount_file_system() {
    case $1 in
        ext4) mount -t ext4 $disk /mnt ;;
        xfs) mount -t xfs $disk /mnt ;;
        # Data goes through the journal too. The super block remembers the journal by a number that may be another disk's now.
        journal) mount -t ext4 -o "data=journal,journal_path=$journal_disk" $disk /mnt ;;
    esac
}
# Nothing to repair: both only look, and the journal has to be empty.
file_system_clean() {
    case $1 in
        xfs) xfs_repair -n $disk ;;
        ext4) e2fsck -f -n $disk ;;
        journal) e2fsck -f -n -j $journal_disk $disk ;;
    esac
}
