#!/usr/bin/env bash
# Makes sure that all the project needs is there. Says first what it is going to do; does nothing when nothing is
# missing.
#
#   scripts/setup.sh             a C compiler (zstd is C), protoc (the keeper speaks to etcd), the pinned Rust toolchain
#   scripts/setup.sh --browser   also Chromium and axe-core (npm), for the tests that open pages in a browser
#
# As root on Debian or Ubuntu, missing system packages are installed with apt-get. As another user they are listed with
# the line that installs them. Nothing else outside the checkout is touched.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"

browser_wanted=no
for argument in "$@"; do
    case $argument in
        --browser) browser_wanted=yes ;;
        *)
            echo "setup: unknown argument '$argument'; the only one is --browser" >&2
            exit 2
            ;;
    esac
done

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

distribution="" distribution_version=""
if [ -r /etc/os-release ]; then
    distribution=$(. /etc/os-release && echo "${ID:-}")
    distribution_version=$(. /etc/os-release && echo "${VERSION_ID:-}")
fi

# Can a C program be compiled and linked? A compiler without libc's headers is not enough.
c_compiler_works() {
    local probe works=no
    have cc || return 1
    probe=$(mktemp -d)
    if printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' |
        cc -x c - -o "$probe/probe" 2>/dev/null; then
        works=yes
    fi
    rm -rf "$probe"
    [ "$works" = yes ]
}

# Can a description of messages be compiled that uses those which come with protoc? Debian has them in a package of
# their own.
protoc_works() {
    local probe works=no
    have protoc || return 1
    probe=$(mktemp -d)
    printf 'syntax = "proto3";\nimport "google/protobuf/struct.proto";\n' >"$probe/probe.proto"
    if protoc --proto_path="$probe" --descriptor_set_out="$probe/out" probe.proto 2>/dev/null; then works=yes; fi
    rm -rf "$probe"
    [ "$works" = yes ]
}

browser_found() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        # Ubuntu's chromium-browser package is a script that only points to a snap.
        if have "$name" && ! grep -qs 'snap install' "$(command -v "$name")"; then return 0; fi
    done
    return 1
}

package_available() {
    local candidate
    have apt-cache || return 1
    candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
    # Version 1:... or 2:1snap1 of a browser is an empty package that asks for a snap.
    [ -n "$candidate" ] && [ "$candidate" != "(none)" ] && [[ $candidate != *snap* ]]
}

apt_install() {
    say "installing system packages with apt-get: $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null
}

am_root=no
if [ "$(id -u)" = 0 ]; then am_root=yes; fi

# --- what is missing ---

packages=()
c_compiler_works || packages+=(gcc libc6-dev)
have make || packages+=(make)
protoc_works || packages+=(protobuf-compiler libprotobuf-dev)
case $distribution in
    debian | ubuntu) [ -s /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates) ;;
esac
rust_missing=no
have cargo || rust_missing=yes
browser_missing=no
if [ "$browser_wanted" = yes ] && ! browser_found; then browser_missing=yes; fi

if [ "${#packages[@]}" -gt 0 ] || [ "$rust_missing" = yes ] || [ "$browser_missing" = yes ]; then
    if [ "$am_root" = yes ] && have apt-get; then
        say "refreshing the package lists with apt-get update"
        apt-get update -qq </dev/null || say "apt-get update failed; going on with the lists as they are"
    fi
fi

# --- system packages ---

rustup_by_hand="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |"
rustup_by_hand+=" sh -s -- -y --no-modify-path --default-toolchain none"
if [ "$rust_missing" = yes ]; then
    packaged=no
    if package_available rustup; then packaged=yes; fi
    case "$distribution ${distribution_version%%.*}" in
        # Package lists may be absent: these releases have it.
        "debian "1[3-9] | "ubuntu "2[4-9]) packaged=yes ;;
    esac
    if [ "$packaged" = yes ]; then
        packages+=(rustup)
    else
        lines=("cargo is missing, and ${distribution:-this system} ${distribution_version} has no rustup package.")
        if [ "${#packages[@]}" -gt 0 ]; then lines+=("Also missing: ${packages[*]}."); fi
        have curl || packages+=(curl)
        lines+=("Install rustup from rust-lang.org, then run this again:")
        sudo_word=""
        [ "$am_root" = yes ] || sudo_word="sudo "
        if [ "${#packages[@]}" -gt 0 ] && have apt-get; then
            lines+=("  ${sudo_word}apt-get install -y --no-install-recommends ${packages[*]} && $rustup_by_hand")
        else
            lines+=("  $rustup_by_hand")
        fi
        fail "${lines[@]}"
    fi
fi

if [ "${#packages[@]}" -gt 0 ]; then
    if ! have apt-get; then
        fail "missing, by their Debian names: ${packages[*]}" \
            "Install what your system calls them, then run this again."
    elif [ "$am_root" = yes ]; then
        apt_install "${packages[@]}"
    else
        fail "missing system packages: ${packages[*]}" "Install them with this line, then run this again:" \
            "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages[*]}"
    fi
    c_compiler_works || fail "cc still cannot compile and link a C program; try: echo 'int main(){}' | cc -x c -"
fi

# The browser is for one test, which prints SKIPPED without it: its absence stops nothing.
if [ "$browser_missing" = yes ]; then
    if ! have apt-get || { [ "$am_root" = yes ] && ! package_available chromium; }; then
        say "no Chromium here and no package of it; the browser test will be SKIPPED"
    elif [ "$am_root" = yes ]; then
        apt_install chromium || say "Chromium could not be installed; the browser test will be SKIPPED"
    else
        say "Chromium is missing; the browser test will be SKIPPED. To have it:"
        say "  sudo apt-get update && sudo apt-get install -y --no-install-recommends chromium"
    fi
fi

# What drives the browser, and what finds faults that people with other eyes and hands would meet.
browser_modules="${CARGO_TARGET_DIR:-$root/target}/browser"
if [ "$browser_wanted" = yes ] && browser_found && ! cmp -s "$root/tests/browser/package-lock.json" \
    "$browser_modules/node_modules/.made-from"; then
    if have npm; then
        say "fetching playwright-core and axe-core into ${browser_modules#"$root/"}"
        mkdir -p "$browser_modules"
        cp "$root/tests/browser/package.json" "$root/tests/browser/package-lock.json" "$browser_modules/"
        if (cd "$browser_modules" && npm ci --silent --no-audit --no-fund --ignore-scripts </dev/null); then
            cp "$root/tests/browser/package-lock.json" "$browser_modules/node_modules/.made-from"
        else
            say "they could not be fetched; tests in a browser will be SKIPPED"
        fi
    else
        say "npm is missing; tests in a browser will be SKIPPED"
    fi
fi

# --- the toolchain ---

# Is the pinned toolchain, with formatter and lints, in this rustup home?
toolchain_complete() {
    local bin
    for bin in "$1/toolchains/$toolchain_pinned"-*/bin; do
        if [ -x "$bin/cargo" ] && [ -x "$bin/cargo-fmt" ] && [ -x "$bin/cargo-clippy" ]; then return 0; fi
    done
    return 1
}

keep_out_of_git() {
    mkdir -p "$root/.toolchain"
    echo '*' >"$root/.toolchain/.gitignore"
}

if [ "${CARGO_HOME:-}" = "$root/.toolchain/cargo" ]; then keep_out_of_git; fi

if have rustup; then
    if ! toolchain_complete "${RUSTUP_HOME:-${HOME:-}/.rustup}"; then
        say "fetching Rust $toolchain_pinned into .toolchain/ (inside the checkout)"
        keep_out_of_git
        RUSTUP_HOME="$root/.toolchain/rustup" rustup toolchain install "$toolchain_pinned" --profile minimal \
            --component rustfmt --component clippy \
            --no-self-update </dev/null ||
            fail "Rust $toolchain_pinned could not be fetched. With a network that blocks static.rust-lang.org," \
                "install that toolchain into your own rustup, or set RUSTUP_DIST_SERVER to a mirror;" \
                "then run this again."
    fi
else
    # A cargo without rustup does not read rust-toolchain.toml.
    least=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/Cargo.toml")
    found=$(cargo --version | awk '{print $2}')
    if [ "$(printf '%s\n%s\n' "$least" "$found" | sort -V | head -n 1)" != "$least" ]; then
        fail "cargo is $found; the project needs at least $least. Install rustup, which fetches the pinned" \
            "$toolchain_pinned by itself, or a newer Rust, then run this again."
    fi
    if [ "$found" != "$toolchain_pinned" ]; then
        say "cargo $found is used in place of the pinned $toolchain_pinned: there is no rustup here"
    fi
fi
