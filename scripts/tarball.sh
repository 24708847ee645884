#!/usr/bin/env bash
# Builds a static binary, its manual pages and completions into target/tarball/tidewater-VERSION-ARCH-linux.tar.gz. It
# needs no library of the system it runs on; `tidewater run`, which preloads one, is in the Debian packages.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
triple=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}
profile=${TARBALL_PROFILE:-release}
name=tidewater-$version-${triple%%-*}-linux
out=$target/tarball
rm -rf "$out"
mkdir -p "$out/$name/man1" "$out/$name/completions"

# The C library is linked in. Naming the target keeps the flag away from build scripts and procedural macros.
RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked --package tidewater --bin tidewater \
    --profile "$profile" --target "$triple"
binary=$target/$triple/${profile/#dev/debug}/tidewater
install -m 755 "$binary" "$out/$name/tidewater"
strip "$out/$name/tidewater"
"$binary" man "$out/$name/man1"
for shell in bash zsh fish; do "$binary" completions "$shell" >"$out/$name/completions/tidewater.$shell"; done
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$out/$name"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)" \
    -czf "$out/$name.tar.gz" "$name"
if readelf -l "$out/$name/tidewater" | grep -q INTERP; then
    echo 'tarball: the binary asks for a loader: it is not static' >&2
    exit 1
fi
echo "$out/$name.tar.gz"
