#!/usr/bin/env bash
# Commits per second of SQLite's shell through the VFS (integrations/sqlite), by the ring and by the byte window, beside
# its own flush and none.
#
#   PREFIX=/usr/local scripts/bench-sqlite-layer.sh [COMMITS [ROUNDS]]
#
# It needs what `make install` brings, SQLite's shell, and `tidewater` (TIDEWATER_BINARY, or on the PATH). Databases and
# the drive's image are in TMPDIR; the ring is in memory.
set -euo pipefail

commits=${1:-2000}
rounds=${2:-3}
layer=${PREFIX:-/usr/local}/lib/tidewater/tidewater_vfs.so
tidewater=${TIDEWATER_BINARY:-tidewater}
[ -f "$layer" ] || { echo "no $layer: make install PREFIX=..." >&2; exit 2; }
folder=$(mktemp -d)
rings=$(mktemp -d -p /dev/shm)
device=
finish() {
    [ -z "$device" ] || kill "$device" 2>/dev/null || true
    rm -rf "$folder" "$rings"
}
trap finish EXIT
cd "$folder"

serve() {
    "$tidewater" serve --profile villars --set serve.timing=none --set fast.memory=fast-dram --set fast.size=64MiB \
        --set fast.on_wrap=wait-for-trim --set memory.ba.kind=dram --set memory.ba.size=8MiB \
        --set memory.ba.survives=by-capacitors --set window.size=8MiB --set window.memory=ba --set window.energy=1000 \
        --image drive --size 4GiB --vfio-user vfio.sock --control control.sock --ring "$rings/ring" >device.log 2>&1 &
    device=$!
    until grep -q SIGTERM device.log; do sleep 0.05; kill -0 "$device" || { cat device.log >&2; exit 1; }; done
}

# measure NAME SYNCHRONOUS URI: prints a line of commits per second.
measure() {
    local name=$1 synchronous=$2 uri=$3 begin end
    rm -f my.db my.db-wal my.db-shm
    {
        echo "PRAGMA journal_mode=WAL; PRAGMA synchronous=$synchronous; CREATE TABLE t (n, body);"
        for ((i = 0; i < commits; i++)); do echo "INSERT INTO t VALUES ($i, '$(printf 'x%.0s' {1..100})');"; done
    } >statements
    begin=$(date +%s%N)
    sqlite3 -batch -bail -cmd ".load $layer sqlite3_tidewatervfs_init" -cmd ".open '$uri'" :memory: <statements \
        >/dev/null
    end=$(date +%s%N)
    echo "$name $((commits * 1000000000 / (end - begin)))" >>figures
}

serve
device_uri="file:my.db?vfs=tidewater&device=vfio-user:$folder/vfio.sock"
for ((round = 0; round < rounds; round++)); do
    measure own-flush FULL file:my.db
    measure no-flush OFF file:my.db
    measure ring-RING FULL "$device_uri&level=ring"
    measure ring-DESTAGED FULL "$device_uri&level=destaged"
    # 64 MiB of its blocks.
    measure window FULL "$device_uri&window=0+131072"
done
echo "commits per second, medians of $rounds rounds of $commits:"
for name in own-flush no-flush ring-RING ring-DESTAGED window; do
    grep "^$name " figures | cut -d' ' -f2 | sort -n |
        awk -v name=$name '{ all[NR] = $1 } END { printf "%-14s %8d\n", name, all[int((NR + 1) / 2)] }'
done
