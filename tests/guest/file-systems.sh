# shellcheck shell=bash
# Makes, mounts and checks the file systems of jobs: ext4, xfs, and `journal`, which is ext4 with an external journal.

disk=
journal_disk=

# file_system_devices FS: finds `disk` and, of a journal, `journal_disk`.
file_system_devices() {
    wait_for 30 there 1 || return 1
    if [ "$1" = journal ]; then
        wait_for 30 there 2 || return 1
        journal_disk=$(disk_of 2)
    fi
    disk=$(disk_of 1)
    echo "file system on $disk${journal_disk:+, journal on $journal_disk}"
}
make_file_system() {
    case $1 in
        ext4) mkfs.ext4 -q -F $disk ;;
        xfs) mkfs.xfs -q -f $disk ;;
        journal) mke2fs -q -F -b 4096 -O journal_dev $journal_disk &&
            mkfs.ext4 -q -F -b 4096 -J device=$journal_disk $disk ;;
    esac
}
mount_file_system() {
    case $1 in
        ext4) mount -t ext4 $disk /mnt ;;
        xfs) mount -t xfs $disk /mnt ;;
        # Data goes through the journal too. The super block remembers the journal by a number that may be another
        # disk's now.
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
