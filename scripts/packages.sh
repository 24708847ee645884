#!/usr/bin/env bash
# Installs the Debian packages in a fresh system without Rust, runs the README's commands for each kind of user there,
# compiles against the library, and removes the packages again: `make test-packages`.
#
# Needs root, debhelper, lintian and mmdebstrap, which it installs; where it can't, it says SKIPPED.
# PACKAGES_PROFILE=dev packages a debug build, which CI has already.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

skip() {
    echo "SKIPPED (1): $1"
    exit 0
}
say() { printf 'packages: %s\n' "$*"; }
[ "$(id -u)" = 0 ] || skip 'the packages are installed in a new root, which takes root'
command -v apt-get >/dev/null || skip 'no apt-get: the packages are for Debian and Ubuntu'
needed=()
for pair in dh:debhelper lintian:lintian mmdebstrap:mmdebstrap; do
    command -v "${pair%:*}" >/dev/null || needed+=("${pair#*:}")
done
if [ "${#needed[@]}" -gt 0 ]; then
    say "installing ${needed[*]}"
    apt-get update -qq </dev/null || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${needed[@]}" </dev/null >/dev/null ||
        skip "these can't be installed: ${needed[*]}"
fi

target=${CARGO_TARGET_DIR:-target}
if [ "${PACKAGES_PROFILE:-}" = dev ]; then
    # Built here: with the compiler's options of a package in the environment, all C code, and all above it, is other.
    [ -n "${TIDEWATER_BUILT:-}" ] || build_tested
    export TIDEWATER_BUILT=1
    # A debug build's packages are not kept: an eighth of the time to compress them.
    export DPKG_DEB_COMPRESSOR_LEVEL=0
fi
CAPI_PROFILE=${PACKAGES_PROFILE:-abi} scripts/deb.sh
say 'lintian'
lintian --allow-root --fail-on error "$target"/deb/*.changes

# A system as from the installer, with what the examples use beside ours.
system=$(mktemp -d)
finish() {
    umount -q "$system/proc" "$system/dev" || true
    rm -rf "$system"
}
trap finish EXIT
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
say "a new $codename"
mmdebstrap --quiet --variant=minbase \
    --include=systemd-standalone-sysusers,sqlite3,gcc,libc6-dev,pkgconf "$codename" "$system" ||
    skip 'no system can be made: the package mirror is out of reach'
mount -t proc proc "$system/proc"
mount --bind /dev "$system/dev"
inside() { chroot "$system" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
files() { (cd "$system" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./var/cache \
    -o -path ./var/log -o -path ./var/lib/dpkg -o -path ./var/lib/apt \) -prune -o -print | sort); }

files >"$system/tmp/before"
mkdir "$system/tmp/deb"
cp "$target"/deb/*.deb "$system/tmp/deb"
say 'installing'
inside sh -c 'dpkg -i /tmp/deb/*.deb' >/dev/null
inside tidewater --version

# The README's blocks: what stands below a line "For ...:" is one user's three commands.
awk -v to="$system/tmp/door-" '
    /^### For /{ name = $3 }
    /^## /{ name = "" }
    /^    / && name { print substr($0, 5) >(to name) }' README.md
doors=0 skipped=0
for door in "$system"/tmp/door-*; do
    name=${door##*/}
    doors=$((doors + 1))
    if [ "$name" = door-authors ] && ! (: <>/dev/fuse) 2>/dev/null; then
        echo 'SKIPPED (1): the README has commands that mount, and there is no FUSE here'
        skipped=1
        continue
    fi
    say "${name#door-}: $(grep -c '^[^ ]' "$door") commands"
    # What is started in the background is waited for, until its last line, and ended behind the last command.
    ready='until grep -qs Ctrl-C served; do kill -0 $!; sleep 0.1; done; cat served'
    printf 'set -eu\nmkdir -p /tmp/work-%s\ncd /tmp/work-%s\n%s\nkill $(jobs -p) 2>/dev/null || true\nwait\n' \
        "$name" "$name" "$(awk -v ready="$ready" '
            sub(/&$/, ">served 2>\\&1 \\&") { print $0 "\n" ready; next }
            { print }' "$door")" >"$door.sh"
    inside bash "/tmp/$name.sh" >"$target/deb/$name.log" 2>&1 || {
        cat "$target/deb/$name.log" >&2
        exit 1
    }
done
[ "$doors" = 4 ] || {
    echo "packages: the README has commands for $doors kinds of users, and not for 4" >&2
    exit 1
}

say 'the library'
cp crates/capi/examples/commit.c "$system/tmp/commit.c"
inside sh -c 'cc /tmp/commit.c -o /tmp/commit $(pkg-config --cflags --libs tidewater) && ldd /tmp/commit' |
    grep -q 'libtidewater.so.0 => /lib/'

say 'removing'
inside dpkg --purge libtidewater-dev libtidewater0 tidewater >/dev/null 2>&1
files >"$system/tmp/after"
# The user of the service stays, as Debian has it: its files may be anywhere.
if ! diff "$system/tmp/before" "$system/tmp/after" | grep -v '/etc/.*-$' | grep '^[<>]'; then
    echo "4 kinds of users, the library and the removal: $((6 - skipped)) passed, 0 failed"
else
    echo 'packages: these files came or went' >&2
    exit 1
fi
