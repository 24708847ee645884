#!/usr/bin/env bash
# Crash campaigns with the databases that are installed (tests/databases): `make test-databases`.
#
#   scripts/databases.sh [--rounds N] [--seed N] [--list] [NAME...]
#
# It installs nothing. Of a database that isn't there it prints `SKIPPED (n): what to install`, and ends well. NAME is a
# part of a cell's name: postgresql, ring/power, sqlite/destaged/device. Its files are in a folder under
# TIDEWATER_SCRATCH (default: /tmp), which it removes unless a cell failed. TIDEWATER_BINARY names another build to
# judge.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

export TIDEWATER_DATABASES=1
exec cargo test --locked --quiet --workspace --test databases -- "$@"
