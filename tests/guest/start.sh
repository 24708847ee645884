#!/bin/bash
# Runs in the guest once the jobs were unpacked into /run/guest: does those named, with their arguments, in the file
# `job`, a line each, and ends the machine.
#
# What the harness reads comes on the second serial line (descriptor 3), a line each (tests/guest/README.md); everything
# else goes to the console.
cd /run/guest || exit 1
exec >/dev/ttyS0 2>&1
ln -sfn /proc/self/fd /dev/fd
. ./lib.sh
say kernel "$(uname -r)"
while read -r -a words <&4; do
    (
        exec 4<&-
        . "./jobs/${words[0]}.sh" "${words[@]:1}"
        kernel_is_content
    )
    # The next job answers for what the kernel says from now on.
    dmesg -C
done 4<job
finish
