# The kernel's driver binds.
check controller wait_for 10 test -c /dev/nvme0
check namespace wait_for 10 test -b /dev/nvme0n1
check list shows nvme0n1 nvme list
