#!/usr/bin/env bash
# Installs the C library: header, shared and static library, pkg-config file and manual pages. PREFIX says where (/usr/local), DESTDIR what stands before
# it while a package is built, CAPI_PROFILE how it is compiled (abi: as a release, but a panic is an error and no abort).
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
profile=${CAPI_PROFILE:-abi}
cargo build --locked --package tidewater-capi --profile "$profile"
case $profile in
dev) built=${CARGO_TARGET_DIR:-target}/debug ;;
*) built=${CARGO_TARGET_DIR:-target}/$profile ;;
esac

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
here=crates/capi
install -d "$to/include" "$to/lib/pkgconfig" "$to/share/man/man3"
install -m 644 $here/include/tidewater.h "$to/include/tidewater.h"
install -m 755 "$built/libtidewater_capi.so" "$to/lib/libtidewater.so.$version"
ln -sf "libtidewater.so.$version" "$to/lib/libtidewater.so.0"
ln -sf libtidewater.so.0 "$to/lib/libtidewater.so"
install -m 644 "$built/libtidewater_capi.a" "$to/lib/libtidewater.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" $here/tidewater.pc.in >"$to/lib/pkgconfig/tidewater.pc"
install -m 644 $here/man/*.3 "$to/share/man/man3/"
# Each function has a page of its name.
grep -o 'tidewater_[a-z_]*(' $here/include/tidewater.h | tr -d '(' | sort -u | while read -r name; do
    page=tidewater.3
    case $name in tidewater_files_*) page=tidewater_files.3 ;; esac
    echo ".so man3/$page" >"$to/share/man/man3/$name.3"
done
echo "installed libtidewater $version in $to"
