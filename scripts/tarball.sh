#!/usr/bin/env bash
# Builds static binaries (tidewater and its keeper), manual pages and completions into
# target/tarball/tidewater-VERSION-ARCH-linux.tar.gz. They need no library of the system they run
# on; `tidewater run`, which preloads one, is in the Debian packages.
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
for package in tidewater tidewater-keeper; do
    RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked --package "$package" --bin "$package" \
        --profile "$profile" --target "$triple"
done
binary=$target/$triple/${profile/#dev/debug}/tidewater
install -m 755 "$binary" "$binary-keeper" "$out/$name/"
strip "$out/$name/tidewater" "$out/$name/tidewater-keeper"
"$binary" man "$out/$name/man1"
for shell in bash zsh fish; do "$binary" completions "$shell" >"$out/$name/completions/tidewater.$shell"; done
cp -r packaging/grafana "$out/$name"
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT crates/figures/font/OFL.txt "$out/$name"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)" \
    -czf "$out/$name.tar.gz" "$name"
for binary in tidewater tidewater-keeper; do
    if readelf -l "$out/$name/$binary" | grep -q INTERP; then
        echo "tarball: $binary asks for a loader: it is not static" >&2
        exit 1
    fi
done
echo "$out/$name.tar.gz"
