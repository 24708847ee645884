#!/usr/bin/env bash
# Installs the C library: header, shared and static library, pkg-config file and manual pages; the library that
# `tidewater run` preloads; and the layers for SQLite and RocksDB, as far as what they are compiled with is there, else
# their sources alone. PREFIX says where (/usr/local), DESTDIR what stands before it while a package is built,
# CAPI_PROFILE how it is compiled (abi: as a release, but a panic is an error and no abort).
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
profile=${CAPI_PROFILE:-abi}
cargo build --locked --package tidewater-capi --package tidewater-shim --profile "$profile"
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
    case $name in
    tidewater_files_*) page=tidewater_files.3 ;;
    tidewater_window_* | tidewater_ba_*) page=tidewater_window.3 ;;
    esac
    echo ".so man3/$page" >"$to/share/man/man3/$name.3"
done

# Where `tidewater` looks from $PREFIX/bin, and where programs are told to find the layers.
own=$to/lib/tidewater
install -d "$own" "$to/share/tidewater"
install -m 755 "$built/libtidewater_shim.so" "$own/libtidewater_shim.so"
install -m 644 integrations/sqlite/*.[ch] integrations/rocksdb/tidewater_fs.cc "$to/share/tidewater/"
# layer SOURCE LIBRARY HEADER PACKAGE COMPILER...
layer() {
    local source=$1 library=$2 header=$3 package=$4
    shift 4
    if ! command -v "$1" >/dev/null || ! echo "#include <$header>" | "$@" -E - >/dev/null 2>&1; then
        # What an earlier installation compiled is older than its library, perhaps.
        rm -f "$own/$library"
        echo "$library is left out: it needs $1 and $package; its source is in $to/share/tidewater"
        return
    fi
    "$@" -O2 -fPIC -shared -pthread -o "$own/$library" "integrations/$source" \
        -I"$to/include" -L"$to/lib" -ltidewater -Wl,-rpath,"$prefix/lib"
}
layer sqlite/tidewater_vfs.c tidewater_vfs.so sqlite3ext.h libsqlite3-dev cc -std=gnu11 -x c
layer rocksdb/tidewater_fs.cc libtidewater_rocksdb.so rocksdb/file_system.h librocksdb-dev c++ -std=c++17 -x c++
echo "installed libtidewater $version in $to"
