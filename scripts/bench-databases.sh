#!/usr/bin/env bash
# Measures the databases that are installed (bench/databases): `make bench-databases`.
#
#   scripts/bench-databases.sh [--rounds N] [--seconds S] [--modes A|B] [--report FILE] [--json FILE] [NAME...]
#   scripts/bench-databases.sh --rounds 7 --record 'MACHINE AND DISK'    writes the table of docs/guide/databases.md
#
# It installs nothing, and says of each database that isn't there what to install. The device is the release build.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
here=$PWD
cd "$root"

cargo build --locked --quiet --release --package tidewater-shim
# The layers, where what they are compiled with is installed. Those of another installation are measured if it is named.
if [ -z "${TIDEWATER_LAYERS:-}" ]; then
    PREFIX=$root/target/layers scripts/install.sh >/dev/null
    export TIDEWATER_LAYERS=$root/target/layers/lib/tidewater
fi
export TIDEWATER_DATABASES=$here
exec cargo bench --locked --quiet --profile dev --package tidewater-bench --bench databases -- "$@"
