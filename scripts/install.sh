#!/usr/bin/env bash
# Installs everything: the binary with its manual pages and completions, tidewater-keeper, and the library that
# `tidewater run` preloads; units, users and folders for systemd; the C library (header, shared and static library,
# pkg-config file, manual pages); and the layers for SQLite and RocksDB where what they are compiled with is there, else
# their sources alone.
#
#   scripts/install.sh [--uninstall]   --uninstall removes what the last installation in PREFIX put there, nothing else
#
#   PREFIX        where (/usr/local)
#   LIBDIR        folder of the C library below it (lib)
#   DESTDIR       what stands before PREFIX while a package is built
#   CAPI_PROFILE  how it is compiled: `abi` (the libraries as a release, but a panic is an error of the call and does
#                 not end the program), or `dev`
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

prefix=${PREFIX:-/usr/local}
final=${DESTDIR:-}$prefix
# What is installed below $final, a path a line; packages know that by themselves.
manifest=share/tidewater/manifest

# Removes files below $final, whose paths are on standard input, and the folders that they leave empty.
remove() {
    local path
    while read -r path; do
        case /$path/ in */../* | //*) echo "install: $final/$manifest: not a path below it: $path" >&2; exit 1 ;; esac
        rm -f "$final/$path"
        (cd "$final" && rmdir -p --ignore-fail-on-non-empty "$(dirname "$path")" 2>/dev/null) || true
    done
}

if [ "${1:-}" = --uninstall ]; then
    if ! [ -f "$final/$manifest" ]; then
        echo "uninstall: $final/$manifest is missing: nothing was installed there" >&2
        echo 'uninstall: give the PREFIX of `make install`, as in make uninstall PREFIX=~/.local' >&2
        exit 1
    fi
    count=$(wc -l <"$final/$manifest")
    listed=$(cat "$final/$manifest")
    remove <<<"$listed"
    echo "removed $count files of tidewater from $final; images, logs and what systemd has enabled stay"
    exit 0
fi
# Everything is made here first: what is put in place is known.
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
lib=${LIBDIR:-lib}
profile=${CAPI_PROFILE:-abi}
target=${CARGO_TARGET_DIR:-target}
case $profile in
dev)
    built=$target/debug binary=$target/debug/tidewater
    [ -n "${TIDEWATER_BUILT:-}" ] || build_tested
    ;;
*)
    built=$target/$profile binary=$target/release/tidewater
    cargo build --locked --package tidewater-capi --package tidewater-shim --profile "$profile"
    cargo build --locked --package tidewater --bin tidewater --release
    cargo build --locked --package tidewater-keeper --release
    ;;
esac

# The binary, with what describes it.
install -d "$to/share/man/man1" "$to/share/bash-completion/completions" "$to/share/zsh/site-functions" \
    "$to/share/fish/vendor_completions.d"
install -D -m 755 "$binary" "$to/bin/tidewater"
install -m 755 "${binary%/*}/tidewater-keeper" "$to/bin/tidewater-keeper"
"$binary" man "$to/share/man/man1"
"$binary" completions bash >"$to/share/bash-completion/completions/tidewater"
"$binary" completions zsh >"$to/share/zsh/site-functions/_tidewater"
"$binary" completions fish >"$to/share/fish/vendor_completions.d/tidewater.fish"

# Services. Nothing is started or enabled.
units=$to/lib/systemd/system
install -d "$units" "$to/lib/sysusers.d" "$to/lib/tmpfiles.d"
for unit in packaging/systemd/*.service; do
    sed -e "s|@PREFIX@|$prefix|" "$unit" >"$units/${unit##*/}"
done
install -m 644 packaging/systemd/tidewater.sysusers "$to/lib/sysusers.d/tidewater.conf"
install -m 644 packaging/systemd/tidewater.tmpfiles "$to/lib/tmpfiles.d/tidewater.conf"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
here=crates/capi
install -d "$to/include" "$to/$lib/pkgconfig" "$to/share/man/man3"
install -m 644 $here/include/tidewater.h "$to/include/tidewater.h"
install -m 755 "$built/libtidewater_capi.so" "$to/$lib/libtidewater.so.$version"
ln -sf "libtidewater.so.$version" "$to/$lib/libtidewater.so.0"
ln -sf libtidewater.so.0 "$to/$lib/libtidewater.so"
install -m 644 "$built/libtidewater_capi.a" "$to/$lib/libtidewater.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$lib|" -e "s|@VERSION@|$version|" $here/tidewater.pc.in \
    >"$to/$lib/pkgconfig/tidewater.pc"
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

# Where `tidewater` looks from $PREFIX/bin, and the place of the layers that the guides give to programs.
own=$to/lib/tidewater
install -d "$own" "$to/share/tidewater"
install -m 755 "$built/libtidewater_shim.so" "$own/libtidewater_shim.so"
install -D -m 644 -t "$to/share/tidewater/grafana" packaging/grafana/tidewater.json packaging/grafana/alerts.yml
install -m 644 integrations/sqlite/*.[ch] integrations/rocksdb/tidewater_fs.cc "$to/share/tidewater/"
# The loader looks in a package's folder by itself.
rpath=("-Wl,-rpath,$prefix/$lib")
if [ "$prefix" = /usr ]; then rpath=(); fi
# layer SOURCE LIBRARY HEADER PACKAGE COMPILER...
layer() {
    local source=$1 library=$2 header=$3 package=$4
    shift 4
    if ! command -v "$1" >/dev/null || ! echo "#include <$header>" | "$@" -E - >/dev/null 2>&1; then
        echo "$library is left out: it needs $1 and $package; its source is in $final/share/tidewater"
        return
    fi
    "$@" -O2 -fPIC -shared -pthread -o "$own/$library" "integrations/$source" \
        -I"$to/include" -L"$to/$lib" -ltidewater ${rpath[@]+"${rpath[@]}"}
}
layer sqlite/tidewater_vfs.c tidewater_vfs.so sqlite3ext.h libsqlite3-dev cc -std=gnu11 -x c
layer rocksdb/tidewater_fs.cc libtidewater_rocksdb.so rocksdb/file_system.h librocksdb-dev c++ -std=c++17 -x c++

listed=$(cd "$to" && find . ! -type d -printf '%P\n' | LC_ALL=C sort)
if [ -z "${DESTDIR:-}" ]; then
    listed+=$'\n'$manifest
    # What an earlier installation had and this one has not, such as a layer that is compiled no more.
    if [ -f "$final/$manifest" ]; then
        remove < <(LC_ALL=C comm -23 <(LC_ALL=C sort "$final/$manifest") <(LC_ALL=C sort <<<"$listed"))
    fi
    printf '%s\n' "$listed" >"$to/$manifest"
fi
mkdir -p "$final"
tar -C "$to" --files-from <(printf '%s\n' "$listed") -cf - | tar -C "$final" --no-same-owner -xf -
echo "installed tidewater $version in $final"
