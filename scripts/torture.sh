#!/usr/bin/env bash
# The long runs: every test that is marked `#[ignore]`, optimized, with assertions and overflow checks on. Arguments
# filter by name.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

# A folder of its own, so that these settings do not throw away the release build.
target=${CARGO_TARGET_DIR:-target}/torture
mkdir -p "$target"
log=$target/torture.log

status=0
# By the environment, so that the binaries which tests build and start have them, too.
export CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
cargo test --locked --workspace --no-fail-fast --release --target-dir "$target" \
    -- --ignored --nocapture "$@" 2>&1 | tee "$log" || status=$?

ran=$(awk '/^test result: / { ran += $4 + $6 } END { print ran + 0 }' "$log")
echo "$ran long runs"
if [ "$status" = 0 ] && [ "$ran" = 0 ]; then
    echo "torture: no test matched" >&2
    exit 1
fi
exit "$status"
