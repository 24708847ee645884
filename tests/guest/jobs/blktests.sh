# shellcheck shell=bash
# Those tests of blktests' block and nvme groups that run on a given device (TEST_DEVS): each passes, or what it needs
# is missing here and said.
#
#   /run/guest/blktests    a checkout of blktests; src/dio-offsets built

kernel_may_say "nvme|I/O error|Buffer I/O|critical|pcieport|pci |pciehp|Call Trace|dd: |run blktests"

# All that test a given device. Those of the second list may lack something here, and then blktests says what; the
# others have to pass.
tests=(block/003 block/004 block/005 block/008 block/011 block/012 block/019 block/042
    nvme/032 nvme/033 nvme/034 nvme/035 nvme/036 nvme/037 nvme/046 nvme/049 nvme/053)
may_lack=(block/007 block/036 block/041 block/043 nvme/039 nvme/050 nvme/059 nvme/064 nvme/066 nvme/067)

check namespace wait_for 30 there 1
disk=$(disk_of 1)
# What a distribution sets up, and these tests take for granted.
mkdir -p /boot
[ -e "/boot/config-$(uname -r)" ] || ln -sfn "/lib/modules/$(uname -r)/config" "/boot/config-$(uname -r)"
ln -sfn which.debianutils /usr/bin/which
# Only the kernel makes device files here, so there is nothing to settle; links by number are udev's.
cat >/usr/bin/udevadm <<'LINKS'
#!/bin/sh
mkdir -p /dev/char
for file in /sys/class/nvme/nvme*/dev; do
    [ -e "$file" ] && ln -sfn "../$(basename "$(dirname "$file")")" "/dev/char/$(cat "$file")"
done
exit 0
LINKS
chmod +x /usr/bin/udevadm
udevadm settle
# Root needs no sudo.
printf '#!/bin/sh\nexec "$@"\n' >/usr/bin/sudo
chmod +x /usr/bin/sudo
# A plain user's path.
ln -sfn "$(command -v nvme)" /usr/bin/nvme
echo 'tester:x:1000:1000:tester:/tmp:/bin/bash' >>/etc/passwd
echo 'tester:x:1000:' >>/etc/group
mkdir -p /etc/pam.d
for kind in auth account session; do echo "$kind sufficient pam_permit.so"; done | tee /etc/pam.d/su >/etc/pam.d/other
echo 'root::0:0:99999:7:::' >/etc/shadow
cd /run/guest/blktests || return 1
# blktests can't parse a version such as 7.3.4+deb13.
sed -i 's|s/\[^.0-9\]//|s/[^.0-9].*//|' common/rc
cp /run/guest/dio-offsets src/ || return 1
cat >config <<CONFIG
TEST_DEVS=($disk)
DEVICE_ONLY=1
QUICK_RUN=1
TIMEOUT=3
NVME_IMG_SIZE=64M
NORMAL_USER=tester
CONFIG
run() {
    ./check "${tests[@]}" "${may_lack[@]}"
    cat results/*/*/*.out.bad 2>/dev/null
    return 0
}
check blktests run
cp /tmp/output /tmp/results
# said_of TEST: what blktests said of it.
said_of() {
    grep -A 12 "^$1 " /tmp/results | awk -v name="$1" \
        'NR > 1 && /^(block|nvme)\// && index($0, name " ") != 1 { exit } { print }'
}
# passed TEST: it says so, and nothing else of that test.
passed() {
    said_of "$1" | tee /tmp/of
    grep -q '\[passed\]' /tmp/of && ! grep -qE '\[(failed|not run)\]' /tmp/of
}
[ -x src/nvme-passthru-admin-uring ] || differs "$device" nvme-067 \
    "the checkout's src/nvme-passthru-admin-uring is not built (liburing)"
for lacking in "${may_lack[@]}"; do
    why=$(said_of "$lacking" | grep -A 4 '\[not run\]' | grep -E '^ +[^ ]' | sed 's/^ *//' | sort -u | paste -sd ';')
    if [ -n "$why" ]; then differs "$device" "${lacking/\//-}" "$why"; fi
done
check block-003 passed block/003
check block-004 passed block/004
check block-005 passed block/005
check block-007 passed block/007
check block-008 passed block/008
check block-011 passed block/011
check block-012 passed block/012
check block-019 passed block/019
check block-036 passed block/036
check block-041 passed block/041
check block-042 passed block/042
check block-043 passed block/043
check nvme-032 passed nvme/032
check nvme-033 passed nvme/033
check nvme-034 passed nvme/034
check nvme-035 passed nvme/035
check nvme-036 passed nvme/036
check nvme-037 passed nvme/037
check nvme-039 passed nvme/039
check nvme-046 passed nvme/046
check nvme-049 passed nvme/049
check nvme-050 passed nvme/050
check nvme-053 passed nvme/053
check nvme-059 passed nvme/059
check nvme-064 passed nvme/064
check nvme-066 passed nvme/066
check nvme-067 passed nvme/067
