# shellcheck shell=bash
# Sourced by the other scripts: finds the Rust toolchain. Changes nothing but this shell's environment.
#
# What the user already has is used where it is. What scripts/setup.sh had to fetch lives in .toolchain/ inside the
# checkout, so that nothing outside the checkout changes.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
toolchain_pinned=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$root/rust-toolchain.toml")

if compgen -G "$root/.toolchain/rustup/toolchains/$toolchain_pinned-*" >/dev/null; then
    export RUSTUP_HOME="$root/.toolchain/rustup"
fi
# A cargo home that exists may hold the user's mirror and proxy settings: it stays in use.
if [ -z "${CARGO_HOME:-}" ] && [ ! -d "${HOME:-/nonexistent}/.cargo" ]; then
    export CARGO_HOME="$root/.toolchain/cargo"
fi

# rustup's own installer puts cargo where a non-login shell does not look.
if ! command -v cargo >/dev/null 2>&1; then
    for bin in "${CARGO_HOME:-}/bin" "${HOME:-}/.cargo/bin"; do
        if [ -x "$bin/cargo" ]; then
            export PATH="$bin:$PATH"
            break
        fi
    done
fi

# Builds every program, library and example without optimization, with the features that `cargo test --workspace` has
# (`--examples` takes the features of tests in): what tests run is compiled once, and nothing is compiled twice.
build_tested() {
    cargo build --locked --workspace --lib --bins --examples "$@"
}
