#!/bin/bash
# Runs in the guest once the jobs were unpacked into /run/guest: does one job, named with its arguments in the file `job`, judges
# the kernel's messages, and ends the machine.
#
# What the harness reads comes on the second serial line (descriptor 3), a line each (tests/guest/README.md); everything else
# goes to the console.
cd /run/guest || exit 1
exec >/dev/ttyS0 2>&1
ln -sfn /proc/self/fd /dev/fd
. ./lib.sh
read -r -a words <job
say kernel "$(uname -r)"
. "./jobs/${words[0]}.sh" "${words[@]:1}"
kernel_is_content
finish
