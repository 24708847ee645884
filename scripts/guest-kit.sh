#!/usr/bin/env bash
# Builds what the guest tests boot: QEMU, a Linux kernel, and a root file system with nvme-cli, fio, mkfs and a shell.
# All of it is unpacked from Debian packages into one folder; nothing is installed, and no root is needed.
#
#   scripts/guest-kit.sh [DIR]     default DIR: target/guest-kit; about 100 MB are fetched, and 1.5 GB are needed
#
# The packages come from the Debian mirror that this machine's apt uses, whatever release the machine itself runs. Done
# again only when this script has changed. Ends with 3, and one line that says why, where the packages can't be had.
#
# In DIR afterwards: `qemu` (a script), `vmlinux`, `initrd`, `root.img`, `busybox`, `versions`.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"

kit=$(realpath -m "${1:-${CARGO_TARGET_DIR:-$root/target}/guest-kit}")

# The release whose packages are used, and where newer ones are taken from: vfio-user-pci needs QEMU 10.1, and queues in
# the controller memory buffer need a kernel with CONFIG_PCI_P2PDMA.
release=trixie
newer=trixie-backports
host_packages=(qemu-system-x86)
guest_packages=(nvme-cli fio nbd-client pciutils e2fsprogs xfsprogs kmod bash coreutils util-linux mount grep sed gawk \
    findutils diffutils
    hostname procps iproute2 busybox-static zstd xz-utils bsdutils bsdextrautils
    debianutils gzip libc-bin bc jq)
kernel_package=linux-image-cloud-amd64

say() { printf 'guest-kit: %s\n' "$*"; }
# The packages can't be had here: no fault of the project.
unavailable() {
    printf 'guest-kit: %s\n' "$*" >&2
    exit 3
}

stamp=$(sha256sum "${BASH_SOURCE[0]}" | cut -d ' ' -f 1)
if [ -f "$kit/stamp" ] && [ "$(cat "$kit/stamp")" = "$stamp" ]; then exit 0; fi

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || unavailable "needs Linux on x86-64"
for tool in apt-get apt-cache dpkg; do
    command -v "$tool" >/dev/null 2>&1 || unavailable "needs $tool"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || unavailable "needs $keyring (package debian-archive-keyring)"
mirror=${DEBIAN_MIRROR:-$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list \
    2>/dev/null || true; } |
    grep -v '^ *#' | grep -oE 'https?://[^] ]+/debian/?( |$)' | tr -d ' ' | sort -u | sed -n 1p)}
[ -n "$mirror" ] || unavailable "apt's sources name no Debian mirror; set DEBIAN_MIRROR"

say "unpacking QEMU, a kernel and a guest's programs into $kit; about a minute"
rm -rf "$kit"
mkdir -p "$kit"/apt/{state/lists/partial,cache/archives/partial,log} "$kit"/{host,guest}
: >"$kit/apt/status"
for suite in $release $newer; do
    echo "deb [signed-by=$keyring] $mirror $suite main"
done >"$kit/apt/sources.list"
apt=(-o Dir::State="$kit/apt/state" -o Dir::State::status="$kit/apt/status" -o Dir::Cache="$kit/apt/cache"
    -o Dir::Log="$kit/apt/log" -o Dir::Etc::sourcelist="$kit/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferencesparts=/dev/null -o APT::Install-Recommends=0 -o Debug::NoLocking=1 \
    -o APT::Architecture=amd64
    -o Acquire::Retries=3 -o Acquire::http::Timeout=30)
if [ "$(id -u)" = 0 ]; then apt+=(-o APT::Sandbox::User=root); fi

apt-get "${apt[@]}" update -qq >"$kit/apt/log/update" 2>&1 ||
    unavailable "the Debian mirror of apt's sources can't be reached: $(tail -n 1 "$kit/apt/log/update")"
# Without a network, apt-get update warns and goes on.
[ -n "$(apt-cache "${apt[@]}" policy "$kernel_package" 2>/dev/null)" ] ||
    unavailable "the Debian mirror of apt's sources can't be reached, or has no $kernel_package"
kernel=$(apt-cache "${apt[@]}" depends "$kernel_package/$newer" | awk '/Depends: linux-image/ { print $2; exit }')
[ -n "$kernel" ] || unavailable "$newer has no kernel"
version=${kernel#linux-image-}

# Names of the files of an installation.
files_of() {
    apt-get "${apt[@]}" -y -qq -t "$newer" --print-uris install "$@" | awk '{ print $2 }'
}
mapfile -t host_files < <(files_of "${host_packages[@]}")
mapfile -t guest_files < <(files_of "${guest_packages[@]}")
[ "${#host_files[@]}" -gt 0 ] && [ "${#guest_files[@]}" -gt 0 ] || unavailable "the mirror lacks packages of the guest"
apt-get "${apt[@]}" -y -qq -t "$newer" --download-only install "${host_packages[@]}" "${guest_packages[@]}" \
    >"$kit/apt/log/download" 2>&1 ||
    unavailable "packages could not be fetched: $(tail -n 1 "$kit/apt/log/download")"
# Newer kernels come as several packages, all with the version in their names; what else they need is for installing
# them.
mapfile -t kernel_parts < <(apt-cache "${apt[@]}" depends "$kernel" |
    awk -v version="$version" '/ Depends: / && index($2, version) { print $2 }' |
    sort -u)
(cd "$kit/apt/cache/archives" && apt-get "${apt[@]}" -qq download -t "$newer" "$kernel" "${kernel_parts[@]}") \
    >"$kit/apt/log/kernel" 2>&1 ||
    unavailable "the kernel could not be fetched: $(tail -n 1 "$kit/apt/log/kernel")"

archives=$kit/apt/cache/archives
for name in "${host_files[@]}"; do dpkg -x "$archives/$name" "$kit/host"; done
for name in "${guest_files[@]}"; do dpkg -x "$archives/$name" "$kit/guest"; done
for name in "$archives"/linux-*"$version"_*.deb; do dpkg -x "$name" "$kit/guest"; done

# --- the host's side ---

libraries=$kit/host/usr/lib/x86_64-linux-gnu
# Through its own dynamic loader, so that it runs on an older system too.
cat >"$kit/qemu" <<QEMU
#!/bin/sh
export QEMU_MODULE_DIR='$libraries/qemu'
exec '$libraries/ld-linux-x86-64.so.2' --library-path '$libraries' '$kit/host/usr/bin/qemu-system-x86_64' \\
    -L '$kit/host/usr/share/qemu' -L '$kit/host/usr/share/seabios' "\$@"
QEMU
chmod +x "$kit/qemu"
guest_libraries=$kit/guest/usr/lib/x86_64-linux-gnu
# A program of the guest, run here.
of_guest() {
    local program
    program=$(find "$kit/guest/usr" -path "*bin/$1" ! -type d | head -n 1)
    shift
    "$guest_libraries/ld-linux-x86-64.so.2" --library-path "$guest_libraries" "$program" "$@"
}
busybox=$kit/busybox
cp "$(find "$kit/guest" -path '*bin/busybox' | head -n 1)" "$busybox"

# --- the kernel ---

# Unpacked here rather than by the guest, where it would take seconds: QEMU starts an ELF kernel directly.
packed=$(find "$kit/guest" -name 'vmlinuz*' | head -n 1)
unpack_kernel() {
    local magic=$1 offset
    shift
    for offset in $(LC_ALL=C grep -aboP "$magic" "$packed" | LC_ALL=C cut -d : -f 1 | head -n 20); do
        tail -c "+$((offset + 1))" "$packed" | "$@" >"$kit/vmlinux" 2>/dev/null || true
        if [ "$(head -c 4 "$kit/vmlinux")" = $'\x7fELF' ]; then return 0; fi
    done
    return 1
}
unpack_kernel '\x28\xb5\x2f\xfd' of_guest zstd -dcq || unpack_kernel '\xfd7zXZ\x00' of_guest xz -dcq ||
    unpack_kernel '\x1f\x8b\x08' gzip -dc || cp "$packed" "$kit/vmlinux"

# --- the guest's root ---

cd "$kit/guest"
for folder in bin sbin lib lib64; do
    mkdir -p "usr/$folder"
    if [ -d "$folder" ] && [ ! -L "$folder" ]; then
        cp -a "$folder/." "usr/$folder/"
        rm -rf "$folder"
    fi
    ln -sfn "usr/$folder" "$folder"
done
[ -e usr/lib64/ld-linux-x86-64.so.2 ] || ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 \
    usr/lib64/ld-linux-x86-64.so.2
rm -rf usr/share/{doc,man,locale,info,icons,applications,bash-completion,zsh} usr/lib/python3* var
find boot ! -type d ! -name 'config-*' -delete
mkdir -p proc sys dev tmp run mnt root etc/nvme var/lib var/tmp
ln -sfn ../proc/self/mounts etc/mtab
ln -sfn bash usr/bin/sh
# awk is an alternative that a package's script would set.
ln -sfn gawk usr/bin/awk
echo 'root:x:0:0:root:/root:/bin/bash' >etc/passwd
echo 'root:x:0:' >etc/group
# Kept from the guest's start to its end: fixed, so that a target sees the same host each time.
echo 'nqn.2014-08.org.nvmexpress:uuid:6b8d1f7a-7c3e-4d5e-9a51-0c1f6f2d9c11' >etc/nvme/hostnqn
echo '6b8d1f7a-7c3e-4d5e-9a51-0c1f6f2d9c11' >etc/nvme/hostid
find usr/lib/modules -name '*.ko.xz' -exec "$busybox" unxz {} +
of_guest depmod -b "$kit/guest" "$version" 2>"$kit/depmod"
modules=usr/lib/modules/$version
[ -s "$modules/modules.dep" ] && [ -s "$modules/modules.dep.bin" ]

# The guest's first program mounts, then asks on the second serial line what to run, unless the kernel's command line
# has `guest.shell`. All else comes from the folder of jobs (/dev/vdb, a cpio archive), which is read only then: a guest
# can be saved before, and serve any job.
cat >usr/sbin/guest <<'START'
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t debugfs debug /sys/kernel/debug
mount -t configfs config /sys/kernel/config 2>/dev/null
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/pts /dev/shm /run/guest
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
ip link set lo up
if ! grep -qw guest.shell /proc/cmdline; then
    exec 3<>/dev/ttyS1
    busybox stty -F /dev/ttyS1 raw -echo
    echo "up $(cut -d ' ' -f 1 /proc/uptime)" >&3
    while read -r word <&3 && [ "$word" != go ]; do :; done
fi
cd /run/guest && busybox cpio -idm --quiet </dev/vdb
exec /bin/bash /run/guest/start.sh
START
chmod +x usr/sbin/guest

size_mib=$(($(du -sm . | cut -f 1) * 5 / 4 + 64))
rm -f "$kit/root.img"
of_guest mke2fs -q -F -t ext4 -O ^has_journal -m 0 -E root_owner=0:0 -d . "$kit/root.img" "${size_mib}M"

# --- the first root, in memory: finds the real one ---

first=$kit/first
mkdir -p "$first"/{bin,proc,sys,dev,new,lower,upper,modules}
cp "$busybox" "$first/bin/busybox"
# Those modules of these names that are not built in, with what they need, in the order in which they load.
order=()
for name in virtio_blk ext4 overlay; do
    line=$(grep -E "/${name}\.ko:" "$modules/modules.dep" || true)
    [ -n "$line" ] || continue
    needs=(${line#*:})
    for ((index = ${#needs[@]} - 1; index >= 0; index--)); do order+=("${needs[index]}"); done
    order+=("${line%%:*}")
done
for file in "${order[@]}"; do
    cp "$modules/$file" "$first/modules/"
    echo "${file##*/}"
done | awk '!seen[$0]++' >"$first/modules/order"
cat >"$first/init" <<'INIT'
#!/bin/busybox sh
# The root image stays as it is: what the guest writes goes to memory.
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
while read -r module; do $busybox insmod "/modules/$module"; done </modules/order
$busybox mount -t ext4 -o ro,noload /dev/vda /lower || $busybox mount -t ext4 -o ro /dev/vda /lower
$busybox mount -t tmpfs memory /upper
$busybox mkdir /upper/files /upper/work
$busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /new
$busybox mount --move /dev /new/dev
exec $busybox switch_root /new /sbin/guest
INIT
chmod +x "$first/init"
(cd "$first" && find . | "$busybox" cpio -o -H newc --quiet) >"$kit/initrd"

{
    echo "kernel $version"
    "$kit/qemu" --version | sed -n '1s/^/qemu /p'
} >"$kit/versions"
# Only what runs is kept.
rm -rf "$kit/apt" "$kit/first" "$kit/guest" "$kit/depmod"
echo "$stamp" >"$kit/stamp"
say "ready: $(tr '\n' ' ' <"$kit/versions")"
