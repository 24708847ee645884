#!/usr/bin/env bash
# Measures the databases that are installed (bench/databases): `make bench-databases`.
#
#   scripts/bench-databases.sh [--rounds N] [--seconds S] [--modes A|B] [--report FILE] [--json FILE] [NAME...]
#
# It installs nothing, and says of each database that isn't there what to install. The device is the release build.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
here=$PWD
cd "$root"

cargo build --locked --quiet --release --package tidewater-shim
export TIDEWATER_DATABASES=$here
exec cargo bench --locked --quiet --profile dev --package tidewater-bench --bench databases -- "$@"
