#!/usr/bin/env bash
# Runs every test of the workspace, and those of the Python package, then says what was skipped and why. Arguments, such
# as `--package tidewater-core`, choose others: they go to `cargo test` in place of `--workspace`.
#
# A test that lacks something (the shared traces, a browser) prints `SKIPPED (n): what is missing`, where n is the
# number of cases it left out. Those lines are added up at the end: nothing is skipped in silence.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"
if [ $# = 0 ]; then set -- --workspace; fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
log=$target/test.log

status=0
# --show-output: SKIPPED lines of passing tests are part of the result.
cargo test --locked --no-fail-fast "$@" -- --show-output 2>&1 | tee "$log" || status=$?

# The Python package, of the debug build.
if [ "$*" = --workspace ]; then
    PYTHON_PROFILE=dev scripts/python.sh 2>&1 | tee -a "$log" || status=$?
fi

# Sums of the runners' closing lines: passed, failed, ignored.
read -r passed failed ignored < <(awk '
    /^test result: / { passed += $4; failed += $6; ignored += $8 }
    END { print passed + 0, failed + 0, ignored + 0 }' "$log")
skipped_lines=$(grep -E '^SKIPPED' "$log" || true)
skipped=$(printf '%s\n' "$skipped_lines" | awk '
    /^SKIPPED/ { if (match($0, /\([0-9]+\)/)) sum += substr($0, RSTART + 1, RLENGTH - 2); else sum += 1 }
    END { print sum + 0 }')

# A binary's seconds stand in the closing line of its runner; its name stands before its tests: "Running <source>
# (<path>/<binary>-<hash>)", or "Doc-tests <crate>".
echo
echo "The ten slowest test binaries, in seconds:"
awk '
    /^ +Running .*\(.*\)$/ { name = $NF; gsub(/^.*\/|-[0-9a-f]+\)$/, "", name); name = name " (" $(NF - 1) ")" }
    /^ +Doc-tests / { name = $2 " (documentation)" }
    /^test result: .* finished in [0-9.]+s$/ { printf "%9.2f  %s\n", substr($NF, 1, length($NF) - 1), name }
' "$log" | sort -rn | head -n 10 || true

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
