#!/usr/bin/env bash
# Runs every test of the workspace, and those of the Python package, then says what was skipped and why. Arguments, such
# as `--package tidewater-core`, choose others: they go to `cargo test` in place of `--workspace`.
#
# All is built first, once; with --build that is all. Then test binaries run side by side, TEST_LANES (default: the
# number of processors) at a time, because many tests wait; the output of a binary is printed whole when it ends.
#
# A test that lacks something (the shared traces, a browser) prints `SKIPPED (n): what is missing`, where n is the
# number of cases it left out. Those lines are added up at the end: nothing is skipped in silence.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
self=$root/scripts/test.sh

# As cargo's runner: notes a test binary with its folder and environment, for a lane. Others, such as the examples of
# documentation, run at once.
if [ "${1:-}" = --note ]; then
    work=$2
    shift 2
    case $1 in */deps/*) ;; *) exec "$@" ;; esac
    item=$work/$(printf '%03d' "$(find "$work" -name '*.sh' | wc -l)")
    printf '%s: %s' "$CARGO_PKG_NAME" "$(basename "${1%-*}")" >"$item.name"
    {
        export -p
        printf 'cd %q\nexec' "$PWD"
        printf ' %q' "$@"
        printf '\n'
    } >"$item.sh"
    exit 0
fi

# In a lane: runs what was noted as ITEM.sh. ITEM.ends gets the instants at which its tests began and ended.
if [ "${1:-}" = --run ]; then
    item=$2
    name=$(cat "$item.name")
    echo "$EPOCHREALTIME begin" >"$item.ends"
    {
        printf '     Running %s\n' "$name"
        bash "$item.sh" 2>&1 || printf 'error: %s: exit code %s\n' "$name" "$?" | tee "$item.failed"
    } | while IFS= read -r line || [ -n "$line" ]; do
        printf '%s\n' "$line"
        case $line in 'test '*' ... '*) echo "$EPOCHREALTIME $line" >>"$item.ends" ;; esac
    done >"$item.log"
    echo "$EPOCHREALTIME end" >>"$item.ends"
    flock "${item%/*}" cat "$item.log"
    exit 0
fi

cd "$root"
build_only=no
if [ "${1:-}" = --build ]; then
    build_only=yes
    shift
fi
if [ $# = 0 ]; then set -- --workspace; fi

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
log=$target/test.log
work=$target/test
rm -rf "$work"
mkdir -p "$work"

status=0
cargo test --locked --no-run "$@" 2>&1 | tee "$log" || status=$?
if [ "$status" = 0 ]; then
    targets=()
    if [ "$*" = --workspace ]; then
        # What tests start is there, and no test looks after it again.
        build_tested 2>&1 | tee -a "$log" || status=$?
        export TIDEWATER_BUILT=1
        targets=(--lib --bins --tests)
    fi
    if [ "$build_only" = yes ]; then exit "$status"; fi
    # --show-output: SKIPPED lines of passing tests are part of the result.
    runner="target.'cfg(all())'.runner = ['$self', '--note', '$work']"
    cargo test --locked --no-fail-fast --config "$runner" "$@" "${targets[@]}" -- --show-output 2>&1 |
        sed -E '/^ +(Finished|Running) /d' | tee -a "$log" || status=$?
    if [ "$*" = --workspace ]; then
        # Without --show-output, the examples of a crate's documentation are one program.
        echo 'exec cargo test --locked --workspace --no-fail-fast --doc' >"$work/documentation.sh"
        echo 'the documentation' >"$work/documentation.name"
        # The Python package, of the debug build.
        echo 'PYTHON_PROFILE=dev exec scripts/python.sh' >"$work/python.sh"
        echo 'the Python package' >"$work/python.name"
    fi
    # From both ends in turns: crates that compute come first, and tests that wait for programs last.
    find "$work" -name '*.sh' | sort >"$work/items"
    paste -d '\n' <(tac "$work/items") "$work/items" | awk '!seen[$0]++ { print substr($0, 1, length($0) - 3) }' |
        xargs -P "${TEST_LANES:-$(nproc)}" -n 1 "$self" --run 2>&1 | tee -a "$log" || status=$?
    if compgen -G "$work/*.failed" >/dev/null; then status=1; fi
fi

# Sums of the runners' closing lines: passed, failed, ignored.
read -r passed failed ignored < <(awk '
    /^test result: / { passed += $4; failed += $6; ignored += $8 }
    END { print passed + 0, failed + 0, ignored + 0 }' "$log")
skipped_lines=$(grep -E '^SKIPPED' "$log" || true)
skipped=$(printf '%s\n' "$skipped_lines" | awk '
    /^SKIPPED/ { if (match($0, /\([0-9]+\)/)) sum += substr($0, RSTART + 1, RLENGTH - 2); else sum += 1 }
    END { print sum + 0 }')

# Seconds of each test: a binary starts its tests by name, the next one whenever one ends.
threads=${RUST_TEST_THREADS:-$(nproc)}
for ends in "$work"/*.ends; do
    [ -e "$ends" ] || continue
    {
        awk '$2 == "test" { print $3 }' "$ends" | LC_ALL=C sort
        cat "$ends"
    } | awk -v threads="$threads" -v name="$(cat "${ends%.ends}.name")" '
        NF == 1 { order[++count] = $1; next }
        $2 == "begin" { begin = $1; while (next_one < threads) start[order[++next_one]] = $1; next }
        $2 == "test" { printf "%9.2f  %s: %s\n", $1 - start[$3], name, $3; start[order[++next_one]] = $1; next }
        { printf "%9.2f  %s\n", $1 - begin, name > "/dev/stderr" }'
done >"$work/tests" 2>"$work/binaries"
echo
echo "The ten slowest test binaries, in seconds:"
sort -rn "$work/binaries" | head -n 10 || true
echo
echo "The twenty slowest tests, in seconds:"
sort -rn "$work/tests" | head -n 20 | tee "$work/slowest" || true

echo
if [ -n "$skipped_lines" ]; then
    echo "Left out:"
    printf '%s\n' "$skipped_lines" | sed 's/^/  /'
fi
if [ "$ignored" -gt 0 ]; then echo "$ignored long runs are ignored here: make torture runs them."; fi
echo "SKIPPED: $skipped cases"
echo "$passed passed, $failed failed, $skipped skipped"

# What failed, last, where it is found: each test's name, then its last words.
failures() {
    awk '
        /^failures:$/ { within = 1; next }
        /^test result: / { within = 0 }
        within && /^---- .* stdout ----$/ { name = $2; next }
        within && name != "" && NF && !/^ +[0-9]+: |^ +at / { words[name] = words[name] "\n  " substr($0, 1, 160) }
        /^test .* \.\.\. FAILED$/ { failed[$2] = 1 }
        END { for (name in failed) print "FAILED: " name words[name] }' "$log"
    grep -E '^(FAILED|ERROR) .*::|^error(\[|:)' "$log" || true
}
if [ "$failed" != 0 ] || [ "$status" != 0 ]; then failures | tail -n 60; fi

if [ "$status" = 0 ] && [ "$passed" = 0 ]; then
    echo "test: no test ran" >&2
    exit 1
fi
exit "$status"
