#!/usr/bin/env bash
# Builds the Python package `tidewater_ssd` and runs its tests in a virtual environment of its own (target/python/venv):
# `make python`. PYTHON_PROFILE=dev takes the debug build that other tests have, as CI does. Arguments go to pytest:
# `-m slow` runs the long tests; `--wheel` alone ends with the wheel, `make wheel`. PYTHON_CLUSTER=1,
# `make python-cluster`: with Ray and MPI too (target/python/cluster).
#
# Where there is no Python 3.10 or later, or no package registry, it says SKIPPED.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

skip() {
    echo "SKIPPED (1): $1"
    exit 0
}
say() { printf 'python: %s\n' "$*"; }

profile=${PYTHON_PROFILE:-abi}
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
out=$target/python
mkdir -p "$out"

# The newest Python that is new enough and can make virtual environments.
works() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
    if works "$candidate"; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || skip 'no Python 3.10 or later with venv (Debian: python3-venv)'

venv=$out/venv
lock=python/requirements.lock
if [ -n "${PYTHON_CLUSTER:-}" ]; then
    venv=$out/cluster
    lock=python/requirements-cluster.lock
fi
# Made anew when its packages or its interpreter change.
stamp="$("$python" -c 'import sys; print(sys.version, sys.executable)') $(sha256sum "$lock")"
if [ "$(cat "$venv.stamp" 2>/dev/null)" != "$stamp" ]; then
    say "a virtual environment with $("$python" --version)"
    rm -rf "$venv" "$venv.stamp"
    "$python" -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input --require-hashes --only-binary :all: \
        --requirement "$lock" >"$out/pip.log" 2>&1; then
        tail -n 3 "$out/pip.log" >&2
        skip "the packages of $lock can not be had: is there a package registry?"
    fi
    echo "$stamp" >"$venv.stamp"
fi

# The programs, which the wheel has beside the module.
say "building programs ($profile)"
if [ "$profile" = dev ]; then
    built=$target/debug
    build_tested --quiet
else
    built=$target/$profile
    cargo build --quiet --locked --package tidewater --bin tidewater --profile "$profile"
    cargo build --quiet --locked --package tidewater-shim --profile "$profile"
fi
bin=python/tidewater_ssd/_bin
mkdir -p "$bin"
for file in tidewater libtidewater_shim.so; do
    # Without what a debugger needs, where there is a tool for that.
    strip -o "$bin/$file" "$built/$file" 2>/dev/null || cp "$built/$file" "$bin/$file"
done
chmod 755 "$bin/tidewater"

say "building the wheel ($profile)"
rm -rf "$out/wheels"
maturin=("$venv/bin/maturin" build --quiet --locked --manifest-path python/Cargo.toml --profile "$profile"
    --interpreter "$venv/bin/python" --out "$out/wheels")
if [ "$profile" = dev ]; then
    # Maturin would compile the package by itself, with other features than the workspace has, and so all below it once
    # more: it gets the module that is built.
    mkdir -p "$out/built"
    cat >"$out/built/cargo" <<END
#!/usr/bin/env bash
. '$root/scripts/toolchain.sh'
export PATH=\${PATH#*:}
if [ "\$1" != rustc ]; then exec cargo "\$@"; fi
unset "\${!PYO3_@}"
build_tested --message-format json-render-diagnostics
END
    chmod +x "$out/built/cargo"
    PATH=$out/built:$PATH "${maturin[@]}"
else
    "${maturin[@]}"
fi
if [ "$*" = --wheel ]; then
    say "the wheel: $(ls "$out"/wheels/*.whl)"
    exit 0
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-input --no-index --no-deps --force-reinstall \
    "$out"/wheels/*.whl

say 'checking types'
"$venv/bin/mypy" --config-file python/pyproject.toml --cache-dir "$out/mypy" python/tidewater_ssd python/tests

# From another directory: what is tested is the wheel.
cd "$out"
exec "$venv/bin/pytest" -p no:cacheprovider --rootdir "$root/python" --config-file "$root/python/pyproject.toml" "$@" \
    --doctest-modules "$root/python/tests" --pyargs tidewater_ssd
