#!/usr/bin/env bash
# Builds the Debian packages tidewater, libtidewater0 and libtidewater-dev from packaging/debian with debhelper, and
# leaves them in target/deb. Needs debhelper; as root on Debian or Ubuntu it is installed.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

if ! command -v dh >/dev/null; then
    if [ "$(id -u)" != 0 ]; then
        echo 'deb: debhelper is missing: sudo apt-get install debhelper' >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debhelper </dev/null
fi

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
out=$target/deb
tree=$out/tidewater-$version
rm -rf "$out"
mkdir -p "$tree"
cp -r packaging/debian "$tree/debian"
cp LICENSE-APACHE LICENSE-MIT "$tree"
# The date of the last commit, so that the same sources make the same packages.
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
cat >"$tree/debian/changelog" <<END
tidewater ($version) unstable; urgency=medium

  * Release $version: see CHANGELOG.md.

 -- Tidewater maintainers <maintainers@tidewater.invalid>  $(date -uRd "@$SOURCE_DATE_EPOCH")
END
cp CHANGELOG.md "$tree"

cd "$tree"
export TIDEWATER_SOURCE=$root CARGO_TARGET_DIR=$target
DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >"$out/build.log" 2>&1 || {
    tail -n 40 "$out/build.log" >&2
    exit 1
}
echo 'The packages:'
ls -1 "$out"/*.deb
