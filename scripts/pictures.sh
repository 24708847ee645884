#!/usr/bin/env bash
# Makes the pictures of README.md with the tool itself and Chromium: `make pictures`.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

tidewater=${TIDEWATER_BINARY:-${CARGO_TARGET_DIR:-target}/release/tidewater}
for browser in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$browser" >/dev/null; then break; fi
done
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
mkdir -p docs/images

# picture NAME HEIGHT: of page NAME.
picture() {
    "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
        --window-size="1200,$2" --screenshot="$pages/$1.png" "file://$pages/$1.html" >/dev/null 2>&1
    cp "$pages/$1.png" "docs/images/$1.png"
    echo "docs/images/$1.png"
}

# What `make demo` shows.
"$tidewater" replay --job scripts/demo.job --precondition steady --capacity 8GiB --set nand.ways=2 \
    --report "$pages/report.html" >/dev/null
picture report 640

# The first example of README.md in Python, where `make wheel` has been.
python=$PWD/${CARGO_TARGET_DIR:-target}/python/venv/bin/python
if "$python" -c 'import tidewater_ssd' 2>/dev/null; then
    sed -n '/^```python/,/^```/{/^```/!p}' README.md >"$pages/sweep.py"
    (cd "$pages" && "$python" sweep.py)
    cp "$pages/sweep.png" docs/images/sweep.png
    echo docs/images/sweep.png
fi
