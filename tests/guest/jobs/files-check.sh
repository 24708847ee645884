# shellcheck shell=bash
# After a cut: every file of which an earlier guest said that it was synced is whole, and the file system is clean once
# its journal was replayed.
#
#   files-check FS

fs=${1:?FS}
. ./file-systems.sh

check devices file_system_devices "$fs" || return 1
# The kernel means to drop data=journal one day.
if [ "$fs" = journal ]; then kernel_may_say "data=journal"; fi
check mounts mount_file_system "$fs" || return 1
synced=$(grep -c . /run/guest/kept)
note "$synced files were synced before the cut"
check files-synced test "$synced" -ge 40
whole() { (cd /mnt && sha256sum --check --quiet /run/guest/kept); }
check files-whole whole
check unmounts umount /mnt
check clean file_system_clean "$fs"
# Passes the list on to the next guest.
while read -r line; do say keep "$line"; done </run/guest/kept
