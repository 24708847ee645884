# shellcheck shell=bash
# After drive and guest were killed: what was stored into the persistent memory region is there, and the log ends no
# earlier than its credit said.

for name in log-credit log-page client-kept client-goes-on; do differs emulated $name \
    "QEMU's controller has no fast side"; done

check namespace wait_for 30 there 1
. ./bars.sh
before() { sed -n "s/^$1 //p" /run/guest/kept; }
check pmr-ready enable_pmr
region_kept() { [ "$(bar "$pci/resource4" get 0x2000 4096 | sha256sum | cut -c 1-64)" = "$(before region)" ]; }
check pmr-kept region_kept
if [ "$device" = tidewater ]; then
    log_page 0xc1 576 && fast_places /tmp/log0xc1
fi
check log-credit credited "$(before credit)"
page_kept() {
    local sum page
    wait_for 30 there 129 || return 1
    read -r sum page <<<"$(before log)"
    [ "$(log_page_of "$page" | sha256sum | cut -c 1-64)" = "$sum" ]
}
check log-page page_kept
# The client library finds its bytes, and goes on behind them.
client_kept() {
    local sum begin
    read -r sum begin <<<"$(before client)"
    [ "$(tidewater nvme fast read "$target" --from "$begin" --bytes 100000 | sha256sum | cut -c 1-64)" = "$sum" ]
}
check client-kept client_kept
client_goes_on() {
    local end
    end=$(credit)
    head -c 5000 /dev/urandom | tidewater nvme fast append "$target" --json >/tmp/appended
    [ "$(jq .offset /tmp/appended)" = "$end" ] && credited $((end + 5000))
}
check client-goes-on client_goes_on
