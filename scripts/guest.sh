#!/usr/bin/env bash
# Boots guests that judge the device (tests/guest): `make test-guest`.
#
#   scripts/guest.sh [--device emulated|tidewater] [--long] [--list] [NAME...]
#
# Where the guest's packages can't be had it prints `SKIPPED (n): why` and ends well. TIDEWATER_GUEST_KIT names a kit
# that scripts/guest-kit.sh has made elsewhere.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

if [ -z "${TIDEWATER_GUEST_KIT:-}" ]; then
    TIDEWATER_GUEST_KIT=$(realpath -m "${CARGO_TARGET_DIR:-target}/guest-kit")
    export TIDEWATER_GUEST_KIT
    status=0
    # Its progress goes to the reader, its reason for a refusal into the line below.
    { why=$(scripts/guest-kit.sh "$TIDEWATER_GUEST_KIT" 2>&1 >&3) || status=$?; } 3>&1
    if [ "$status" = 3 ]; then
        scenarios=$(cargo test --locked --quiet --workspace --test guest -- --list | wc -l)
        echo "SKIPPED ($scenarios): guests: $why"
        exit 0
    elif [ "$status" != 0 ]; then
        printf '%s\n' "$why" >&2
        exit "$status"
    fi
fi
exec cargo test --locked --quiet --workspace --test guest -- "$@"
