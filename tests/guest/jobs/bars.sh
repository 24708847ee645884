# shellcheck shell=bash
# What is behind the base address registers, mapped through sysfs: registers, the controller memory buffer with the
# driver's queues, the persistent memory region, and the fast side.

kernel_may_say "resetting controller"

for name in fast-status fast-layout fast-ready fast-store fast-credit fast-combined fast-namespace fast-flash \
    fast-protected fast-read fast-trim fast-unknown client-status client-append client-record client-read \
    client-released; do
    differs emulated $name "QEMU's controller has no fast side"
done

check namespace wait_for 30 there 1
disk=$(disk_of 1)
. ./bars.sh
lspci -vvs "$(basename "$pci")"
region() { shows "Region $1: Memory at .*\(64-bit, $2\)" lspci -vs "$(basename "$pci")" -vv; }

# --- BAR0 ---
check bar0 region 0 non-prefetchable
# CAP.CSS says that the NVM command set is there, CSTS that the controller is ready.
capabilities() {
    local cap
    cap=$(bar "$pci/resource0" r64 0) || return 1
    echo "CAP $cap"
    [ $((0x$cap >> 37 & 1)) = 1 ] && [ "$(bar "$pci/resource0" r32 0x1c)" = 1 ]
}
check bar0-registers capabilities
version() { [ "0x$(bar "$pci/resource0" r32 8)" = \
    "$(nvme show-regs /dev/nvme0 -o json | jq -r '.vs // .version' | xargs printf '0x%x')" ]; }
check bar0-version version

# --- BAR2: the queues that the driver put there, and the rest through both mappings ---
check bar2 region 2 prefetchable
check cmb-offered shows '^cmbsz *: 0x0*[1-9a-f]' cat /sys/class/nvme/nvme0/cmb
p2p=$(cat "$pci/p2pmem/size") free=$(cat "$pci/p2pmem/available")
note "controller memory buffer: $p2p bytes, $((p2p - free)) of them taken by the driver's submission queues"
queues_in_cmb() { [ "$p2p" -gt 0 ] && [ "$free" -lt "$p2p" ]; }
check cmb-holds-queues queues_in_cmb
verified() {
    fio --name=cmb --filename=$disk --size=8M --rw=randwrite --bs=4k --iodepth=32 --ioengine=libaio --direct=1 \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --minimal
}
check cmb-io verified
# The last page of the buffer: the driver takes its queues from the first.
cmb_offset=$(($(nvme show-regs /dev/nvme0 -o json | jq -r .cmbloc) >> 12 << 12))
last=$((cmb_offset + p2p - 4096))
head -c 4096 /dev/urandom >/tmp/page
plain_to_combined() {
    bar "$pci/resource2" put $last /tmp/page && bar "$pci/resource2_wc" get $last 4096 | cmp - /tmp/page
}
combined_to_plain() {
    tac /tmp/page >/tmp/reversed
    truncate -s 4096 /tmp/reversed
    bar "$pci/resource2_wc" put $last /tmp/reversed && bar "$pci/resource2" get $last 4096 | cmp - /tmp/reversed
}
check cmb-mapped plain_to_combined
check cmb-combined combined_to_plain

# --- BAR4: the persistent memory region ---
check bar4 region 4 prefetchable
check pmr-ready enable_pmr
pmr_holds() { bar "$pci/resource4" get 0x2000 4096 | cmp - /tmp/page; }
pmr_store() {
    bar "$pci/resource4" put 0x2000 /tmp/page || return 1
    # A read of PMRSTS is the barrier behind which it is persistent (CAP.PMRS, PMRCAP.PMRWBM bit 1); error bits stay
    # zero.
    [ $(($(pmr_status) & 0xff)) = 0 ] && pmr_holds
}
check pmr-store pmr_store
pmr_outlives_reset() {
    nvme reset /dev/nvme0 && wait_for 30 grep -q '^live$' /sys/class/nvme/nvme0/state && pmr_holds
}
check pmr-outlives-reset pmr_outlives_reset

# --- the fast side, where it is set up: log pages say where, stores go through BAR2, the control page counts ---
check fast-status log_page 0xc0 1664
check fast-layout log_page 0xc1 576
if [ "$device" = tidewater ]; then
    fast_places /tmp/log0xc1
    note "fast side: a window of $window_bytes bytes at $window of BAR2"
fi
fast_ready() {
    [ "$lanes" -ge 1 ] && [ "$(bar "$pci/resource2" get "$control" 8)" = TIDECTRL ]
}
check fast-ready fast_ready
# fast_append RESOURCE: stores a page behind the credit, says so in the lane page, and waits for the credit.
fast_append() {
    local start
    start=$(credit)
    bar "$pci/$1" put $((window + start % window_bytes)) /tmp/page || return 1
    bar "$pci/resource2" w64 $((lane_page + 8)) $((start + 4096))
    wait_for 30 credited $((start + 4096))
}
check fast-store fast_append resource2
check fast-combined fast_append resource2_wc
check fast-credit credited 8192
# Destaged to the ring of logical pages, where the block side reads it: in each page a header (64 bytes,
# docs/reference/vendor.md), then as much as had been stored when the oldest of it had waited long enough.
oldest() { log_page 0xc0 1664 && number /tmp/log0xc0 40 8; }
on_flash() {
    local page end
    page=$(oldest) end=$(number /tmp/log0xc0 48 8)
    : >/tmp/log
    for (( ; page < end; page++)); do
        log_page_of "$page" >/tmp/destaged || return 1
        [ "$(head -c 8 /tmp/destaged)" = TIDELOG1 ] &&
            [ "$(number /tmp/destaged 24 8)" = "$(stat -c %s /tmp/log)" ] || return 1
        tail -c +65 /tmp/destaged | head -c "$(number /tmp/destaged 40 4)" >>/tmp/log
    done
    cmp /tmp/log <(cat /tmp/page /tmp/page)
}
check fast-namespace wait_for 30 there 129
check fast-flash wait_for 30 on_flash
# Only the fast side writes there.
log_disk=$(disk_of 129)
check fast-protected refused dd if=/tmp/page of="$log_disk" bs=4096 count=1 oflag=direct
# The same bytes by the vendor's command Read Log, behind its header of 32 bytes.
read_log() {
    nvme io-passthru $disk --opcode=0x82 --namespace-id=1 --cdw10=$(((32 + 8192) / 4)) --cdw13=8192 \
        --data-len=$((32 + 8192)) \
        --read --raw-binary >/tmp/read && tail -c +33 /tmp/read | cmp - <(cat /tmp/page /tmp/page)
}
check fast-read read_log
# A vendor command of the admin queue: Trim Log up to page 1.
trim_log() {
    local before
    before=$(oldest)
    nvme admin-passthru /dev/nvme0 --opcode=0xd4 --cdw14=$((before + 1)) && [ "$(oldest)" = $((before + 1)) ]
}
check fast-trim trim_log
check fast-unknown refused nvme admin-passthru /dev/nvme0 --opcode=0xc1 --cdw10=16 --cdw12=9 --data-len=64 --write \
    --input-file=/dev/zero

# --- the same by the client library: bytes by credit through the combined mapping, several queues long, and back from
# flash ---
client_status() { tidewater nvme fast-status "$target" --json >/tmp/status &&
    [ "$(jq '.lane[0].credit' /tmp/status)" = "$(credit)" ]; }
check client-status client_status
head -c 100000 /dev/urandom >/tmp/long
if [ "$device" = tidewater ]; then begin=$(credit); fi
client_append() {
    tidewater nvme fast append "$target" /tmp/long --json >/tmp/appended || return 1
    cat /tmp/appended
    [ "$(jq .offset /tmp/appended)" = "$begin" ] && credited $((begin + 100000))
}
check client-append client_append
# A record begins at a whole line of 64 bytes.
client_record() {
    echo commit | tidewater nvme fast append "$target" --record --json >/tmp/recorded || return 1
    cat /tmp/recorded
    [ "$(jq .offset /tmp/recorded)" = $(((begin + 100000 + 63) / 64 * 64)) ] && credited "$(jq .end /tmp/recorded)"
}
check client-record client_record
client_read() { tidewater nvme fast read "$target" --from "$begin" --bytes 100000 | cmp - /tmp/long; }
check client-read client_read
# What Trim Log released is gone, and said to be, once the ring has turned over.
client_released() {
    head -c 40000 /tmp/long | tidewater nvme fast append "$target" || return 1
    refused tidewater nvme fast read "$target" --from 0 --bytes 64 2>&1 | grep -q 'offset 0 is no longer readable'
}
check client-released client_released

# What the next guest looks for, when drive and guest were killed.
say keep "region $(sha256sum </tmp/page | cut -c 1-64)"
if [ "$device" = tidewater ]; then
    say keep "credit $(credit)"
    say keep "client $(sha256sum </tmp/long | cut -c 1-64) $begin"
    say keep "log $(sha256sum </tmp/destaged | cut -c 1-64) $(number /tmp/destaged 32 8)"
fi
kernel_is_content
ask kill
