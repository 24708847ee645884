#!/usr/bin/env bash
# Builds with the compiler's knowledge of where the time goes (profile-guided optimization): an instrumented build runs
# a few million requests, and the real build is laid out after what they did. Takes two release builds; gains about a
# tenth.
#
#   scripts/pgo.sh                   the binary, in target/pgo/release/tidewater
#   scripts/pgo.sh bench [CASES]     the speed of whole drives, measured with such a build
#
# It needs llvm-profdata of the pinned toolchain: `rustup component add llvm-tools` brings it.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

profdata=$(find "$(rustc --print sysroot)/lib/rustlib" -name llvm-profdata -type f 2>/dev/null | head -n 1)
if [ -z "$profdata" ]; then
    echo "pgo: the toolchain has no llvm-profdata; 'rustup component add llvm-tools' brings it" >&2
    exit 1
fi

what=${1:-binary}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/pgo
counts=$target/counts-$what
case $what in
    binary) build=(--package tidewater --bin tidewater) ;;
    bench) build=(--package tidewater-bench --bench drive) ;;
    *)
        echo "pgo: '$what' is neither 'binary' nor 'bench'" >&2
        exit 2
        ;;
esac

# Compiles with these flags and prints the path of the executable.
compile() {
    local flags=$1 folder=$2
    RUSTFLAGS="${RUSTFLAGS:-} $flags" cargo build --locked --release --target-dir "$folder" "${build[@]}" \
        --message-format json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

echo "pgo: building with counters"
counting=$(compile "-Cprofile-generate=$counts" "$target/counting")
rm -rf "$counts"
echo "pgo: counting"
train() { # case of the bench, requests; the same as a job: direction, precondition
    local job="bs=4k,iodepth=32,norandommap=1"
    if [ "$what" = bench ]; then
        "$counting" --only "$1" "$2"
    else
        "$counting" replay --job "rw=$3,$job,size=16g,number_ios=$2" --precondition "$4" >/dev/null
    fi
}
train random-writes 1000000 randwrite filled
train random-reads 1000000 randread filled
train mixed 500000 randrw filled
train steady-writes 300000 randwrite steady
"$profdata" merge -o "$counts/merged.profdata" "$counts"

echo "pgo: building after what was counted"
built=$(compile "-Cprofile-use=$counts/merged.profdata" "$target")
if [ "$what" = bench ]; then
    exec "$built" "${@:2}"
fi
echo "pgo: the binary: $built"
