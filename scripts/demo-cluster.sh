#!/usr/bin/env bash
# Three devices and their keepers on loopback, with an etcd: a program appends at REMOTE_RING, its machine (device,
# keeper, program) is killed, and the next primary is asked for every number that was acknowledged. `make demo-cluster`.
#
#   scripts/demo-cluster.sh FOLDER    where tidewater, tidewater-keeper and examples/replicated are built
set -euo pipefail

built=$(realpath "${1:?the folder of the built programs}")
tidewater=$built/tidewater replicated=$built/examples/replicated
if ! command -v etcd >/dev/null; then
    echo 'demo-cluster: etcd is missing. On Debian and Ubuntu: sudo apt-get install etcd-server' >&2
    exit 1
fi

folder=$(mktemp -d)
declare -A pid=()
finish() {
    trap - EXIT INT TERM
    kill -9 "${pid[@]}" 2>/dev/null || true
    # A process that ends may write a last file.
    until rm -rf "$folder" 2>/dev/null; do sleep 0.1; done
}
trap finish EXIT
trap 'echo; echo "ended early; all is cleaned up"; exit 130' INT TERM
cd "$folder"

begin=${EPOCHREALTIME/./}
say() { printf '%6.2f s  %s\n' "$(((${EPOCHREALTIME/./} - begin) / 10000))e-2" "$*"; }
fail() {
    echo "demo-cluster: $*" >&2
    tail -n 5 ./*.txt >&2
    exit 1
}
# until_true SECONDS WHAT COMMAND...
until_true() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "$what: not within the time"
        sleep 0.02
    done
}

# Eight ports in a row that are free now, below those that the system gives to clients.
is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
for base in $(shuf -i 20000-32000 -n 20); do
    taken=no
    for i in {0..7}; do if is_taken $((base + i)); then taken=yes; fi; done
    [ "$taken" = no ] && break
done
etcd=http://127.0.0.1:$base
keeper() { "$tidewater" cluster keeper --etcd "$etcd" "$@"; }
leader() { keeper status --json | sed -n 's/^    "node": \([0-9]*\),\{0,1\}$/\1/p' | head -n 1; }

say "an etcd, three devices and their keepers (lease: 5 s) in $folder"
etcd --data-dir etcd --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
    --listen-peer-urls "http://127.0.0.1:$((base + 1))" >etcd.txt 2>&1 &
pid[etcd]=$!
disown
at() { echo "127.0.0.1:$((base + 2 + $1))"; }
for node in 0 1 2; do
    peers=()
    for peer in 0 1 2; do
        [ "$peer" = "$node" ] || peers+=(--peer "$peer=$(at "$peer")")
    done
    "$tidewater" log-device "$node" --node "$node" --peer-listen "$(at "$node")" "${peers[@]}" \
        >"device-$node.txt" 2>&1 &
    pid[device-$node]=$!
    disown
    "$tidewater" cluster keeper run --etcd "$etcd" --device "$node" --ttl 5s --retry-timeout 2s 2>"keeper-$node.txt" &
    pid[keeper-$node]=$!
    disown
done
until_true 30 'etcd takes the group' keeper group --members 0,1,2 --mode quorum
is_primary() { "$tidewater" cluster group status --device "$1" | grep -q '^primary'; }
in_step() { [ "$("$tidewater" cluster group status --device "$1" | grep -c 'in step')" = 2 ]; }
leads() { first=$(leader) && [ -n "$first" ] && is_primary "$first" && in_step "$first"; }
until_true 30 'a first primary' leads
say "node $first is primary, and both replicas are in step"

"$replicated" append "$first" >acknowledged 2>load.txt &
pid[load]=$!
disown
say 'a program appends numbers at REMOTE_RING: each waits until a replica has it'
for _ in 1 2 3; do
    sleep 1
    say "  $(wc -l <acknowledged) numbers acknowledged"
done
[ -s acknowledged ] || fail 'nothing was acknowledged'

killed=${EPOCHREALTIME/./}
kill -9 "${pid[load]}" "${pid[keeper-$first]}" "${pid[device-$first]}"
rm -rf "$first"
# The last line may be half written.
count=$(wc -l <acknowledged)
say "kill -9 of node $first: program, keeper and device; its image and ring are removed, as if its machine was lost"
gone() { [ "$(leader)" != "$first" ]; }
until_true 30 'the lease ends' gone
over=${EPOCHREALTIME/./}
say 'its lease is over'
next_leads() { next=$(leader) && [ -n "$next" ] && [ "$next" != "$first" ] && is_primary "$next"; }
until_true 30 'another primary' next_leads
now=${EPOCHREALTIME/./}
say "node $next is primary: $(((now - over) / 1000)) ms after the lease, $(((now - killed) / 1000)) ms after the kill"

"$replicated" read "$next" >found 2>read.txt || fail 'the log can not be read'
missing=$(head -n "$count" acknowledged | sort | comm -23 - <(sort found) | wc -l)
say "the log of node $next holds $(wc -l <found) numbers; of the $count that were acknowledged, $missing are missing"
[ "$missing" = 0 ] || fail 'acknowledged numbers were lost'
"$replicated" append "$next" >more 2>load.txt &
pid[load]=$!
disown
until_true 10 'the next program' test -s more
say 'a program goes on there, with two devices of three:'
keeper status | sed 's/^/          /'
say 'done; all is cleaned up'
