//! The examples at the end of each help page. A test runs every line through the parser, and
//! through what the command checks before it begins. A line that is longer than help is wide ends with a backslash
//! where it goes on, so that it can be copied.

pub(super) const TIDEWATER: &str = "\
Examples:
  tidewater replay --trace sample --report report.html
  tidewater replay --job rw=randwrite,bs=4k,iodepth=32,size=1g
  tidewater compare --vary buffer.write_policy=none,lru --trace sample
  tidewater profile list
  tidewater trace info sample
  tidewater experiment run x-ssd/fig10

Exit status: 0 success, 1 a run failed, 2 wrong input or command line, 3 a check of an experiment does not hold, \
130 Ctrl-C.";

pub(super) const REPLAY: &str = "\
Examples:
  # The bundled sample on the default drive
  tidewater replay --trace sample --report report.html

  # A trace of your own, ten times as fast as it was recorded, on another drive
  tidewater replay --trace my.csv.zst --speedup 10 --profile tlc-client

  # As fast as the drive can go, with 32 requests outstanding; the record on standard output
  tidewater replay --trace my.csv --queue-depth 32 --json -

  # Random writes to a full drive whose garbage collection is running
  tidewater replay --job rw=randwrite,bs=4k,iodepth=32,size=1g,number_ios=1m --precondition steady

  # One setting changed, one line for each request
  tidewater replay --trace my.csv --set ftl.gc_victim=cost-benefit --requests requests.csv

Ctrl-C ends a run early: record and report are written and marked as partial. A second Ctrl-C exits at once.";

pub(super) const COMPARE: &str = "\
Examples:
  # A write buffer, or none
  tidewater compare --vary buffer.write_policy=none,lru --trace sample

  # Every combination of two settings, as a page
  tidewater compare --vary nand.channels=4,8 --vary buffer.write_size=4MiB,16MiB \\
    --trace sample --report compare.html

  # A setting over five seeds: medians and their spread, and a CSV for your own plots
  tidewater compare --vary ftl.gc_victim=greedy,cost-benefit --vary seed=1..5 --csv victims.csv \\
    --job rw=randwrite,bs=4k,iodepth=32,size=1g,number_ios=200k --precondition steady

  # Two drives, and how each does at three queue depths
  tidewater compare --vary profile=generic,tlc-client --vary queue-depth=1,8,32 --trace sample";

pub(super) const SWEEP: &str = "\
Examples:
  # 2 drives, 4 settings, 5 seeds: 40 records and one table
  tidewater sweep --out study --vary profile=generic,tlc-client \\
    --vary ftl.over_provisioning=7%..28%+7% --vary seed=1..5 \\
    --job rw=randwrite,bs=4k,iodepth=32,size=1g,number_ios=200k --precondition steady

  # The same from a file, and again after it was stopped: only what is missing runs
  tidewater sweep plan.toml --out study

  # The third of 40 machines, all with one directory
  tidewater sweep plan.toml --out /shared/study --shard 3/40

A plan, docs/guide/sweeps.md:
  precondition = 'steady'
  load.job = 'rw=randwrite,bs=4k,iodepth=32,size=1g,number_ios=200k'
  [vary]
  profile = ['generic', 'tlc-client']
  'ftl.over_provisioning' = '7%..28%+7%'
  seed = '1..5'";

pub(super) const PROFILE: &str = "\
Examples:
  tidewater profile list
  tidewater profile show generic > mine.toml
  tidewater profile diff generic mine.toml
  tidewater profile check mine.toml";

pub(super) const PROFILE_LIST: &str = "\
Examples:
  tidewater profile list";

pub(super) const PROFILE_SHOW: &str = "\
Examples:
  # Every setting of the default drive
  tidewater profile show generic

  # A drive of your own, to edit
  tidewater profile show tlc-client --set nand.channels=8 > mine.toml";

pub(super) const PROFILE_SCHEMA: &str = "\
Examples:
  # An editor with TOML support (taplo) takes it by the first line of a profile:
  #   #:schema ./profile.schema.json
  tidewater profile schema > profile.schema.json";

pub(super) const PROFILE_CHECK: &str = "\
Examples:
  tidewater profile check mine.toml
  tidewater profile check generic --set drive.capacity=64GiB";

pub(super) const PROFILE_DIFF: &str = "\
Examples:
  tidewater profile diff generic tlc-client
  tidewater profile diff generic mine.toml";

pub(super) const TRACE: &str = "\
Examples:
  tidewater trace info sample
  tidewater trace convert my.csv my.iolog
  tidewater trace synth like-financial.spc --like financial";

pub(super) const TRACE_INFO: &str = "\
Examples:
  tidewater trace info sample
  tidewater trace info my.trace.zst --format mqsim --json -";

pub(super) const TRACE_CONVERT: &str = "\
Examples:
  # For fio --read_iolog
  tidewater trace convert my.csv my.iolog

  # The first 1000 requests, for MQSim
  tidewater trace convert my.csv first.trace --to mqsim --slice ..1000";

pub(super) const TRACE_SYNTH: &str = "\
Examples:
  # 100,000 requests, two thirds of them writes, over 256 MiB
  tidewater trace synth busy.spc --requests 100000 --write-percent 66 --footprint-mib 256

  # A stand-in for a confidential trace
  tidewater trace synth stand-in.spc --like secret.csv.gz --format msr";

pub(super) const LOG: &str = "\
Examples:
  # TPC-C on 8 workers, its log on the fast side and on the conventional side
  tidewater log

  # All four places, one worker at a time
  tidewater log --to none,memory,fast,conventional --workers 1

  # A ring in DRAM, and a smaller intake queue
  tidewater log --to fast --set fast.memory=fast-dram --set fast.size=128MiB \\
    --set fast.queue_size=8KiB

  # A log of your own, of lines like 1.25,4096
  tidewater log --log mylog.csv --time-unit ms --json -

  # A page with the latencies of each side, and what waits in the ring over time
  tidewater log --report log.html";

pub(super) const EXPERIMENT: &str = "\
Examples:
  tidewater experiment list
  tidewater experiment ledger --counts
  tidewater experiment run x-ssd/fig10 --report fig10.html
  tidewater experiment run --all --report papers.html";

pub(super) const EXPERIMENT_LIST: &str = "\
Examples:
  tidewater experiment list";

pub(super) const EXPERIMENT_LEDGER: &str = "\
Examples:
  # How many statements of each paper are shown, shown by a fit, or differ
  tidewater experiment ledger --counts

  # Those of one paper, each with what decides it
  tidewater experiment ledger --source x-ssd

  # What differs, and why
  tidewater experiment ledger --json | jq '.[] | select(.verdict == \"differs\")'

  # The same of a run of your own
  tidewater experiment run --all --json all.json
  tidewater experiment ledger --from all.json";

pub(super) const EXPERIMENT_TEMPLATE: &str = "\
Examples:
  tidewater experiment template > mine.toml";

pub(super) const EXPERIMENT_RUN: &str = "\
Examples:
  # One figure, its statements on the terminal and its plots in a page
  tidewater experiment run x-ssd/fig10 --report fig10.html

  # Every figure of every paper, on one page
  tidewater experiment run --all --report papers.html

  # The raw measurements
  tidewater experiment run x-ssd/fig9 x-ssd/fig11 --json - | jq '.[].rows'

  # A first look
  tidewater experiment run x-ssd/fig12 --quick

  # One of your own
  tidewater experiment template > mine.toml
  tidewater experiment run mine.toml --report mine.html

Exit status: 0 every check holds, 3 a check does not hold (all results are written all the same). Ctrl-C ends early: \
results of the completed experiments are written.";

pub(super) const REPORT: &str = "\
Examples:
  # The page of a run made yesterday
  tidewater report run.json -o report.html

  # Two runs side by side, as a table and as a page
  tidewater report before.json after.json
  tidewater report before.json after.json -o compare.html

  # The page of experiments run yesterday
  tidewater report fig9.json fig10.json -o papers.html

  # A figure for a paper's column, and the names there are
  tidewater report run.json --figure latency-tail -o tail.pdf
  tidewater report run.json --list-figures

  # A sweep: its page, and medians over one setting with a colour for each value of another
  tidewater report study --pages -o study.html
  tidewater report study --x nand.channels --colour profile --y read_p99_us -o p99.pdf";

pub(super) const COMPLETIONS: &str = "\
Examples:
  tidewater completions bash > ~/.local/share/bash-completion/completions/tidewater
  tidewater completions zsh > ~/.zfunc/_tidewater
  tidewater completions fish > ~/.config/fish/completions/tidewater.fish";

pub(super) const MAN: &str = "\
Examples:
  tidewater man | man -l -
  tidewater man ~/.local/share/man/man1";

pub(super) const SERVE: &str = "\
Examples:
  # A drive of 8 GiB in a file, for a virtual machine
  tidewater serve --image drive.img --capacity 8GiB --vfio-user /run/tidewater/vfio.sock

  # As fast as the file allows, for remote hosts on this machine
  tidewater serve --image drive.img --capacity 8GiB --set serve.timing=none \\
    --nvme-tcp 127.0.0.1:4420

  # Two namespaces, one with blocks of 4 KiB; metrics; data in memory only
  tidewater serve --image memory --capacity 4GiB --namespaces 1GiB,rest:4k \\
    --vfio-user vfio.sock --metrics 127.0.0.1:9464

  # A block device for programs that know no NVMe: qemu-img, nbd-client, nbdfuse, fio
  tidewater serve --image drive.img --capacity 8GiB --nbd unix:nbd.sock

  # Every command as Wireshark reads it
  tidewater serve --image drive.img --capacity 8GiB --vfio-user vfio.sock --commands seen.pcapng

  # Record all inputs, to replay them in virtual time
  tidewater serve --profile tiny --image memory --vfio-user vfio.sock --input-log run.log

It prints how to attach. Ctrl-C or SIGTERM flushes, shuts down cleanly and exits.";

pub(super) const RERUN: &str = "\
Examples:
  tidewater rerun run.log

Exit status: 0 every output was the same, 1 an output differed (the message names it).";

pub(super) const PROBE: &str = "\
Examples:
  # A simulated drive, seen from outside
  tidewater probe generic --set buffer.read_policy=lru --capacity 4GiB

  # A real drive or a file on it, only reading
  tidewater probe /dev/nvme0n1 --report probe.html --json probe.json

  # A spare drive, everything; all data on it is lost
  tidewater probe /dev/nvme1n1 --destroy DATA-LOSS-CONFIRMED --json probe.json

Ctrl-C ends a probe early: findings so far are written.";

pub(super) const LOG_DEVICE: &str = "\
Examples:
  # A log device, and PostgreSQL on it
  tidewater log-device log &
  tidewater run --device log --log 'data/pg_wal/0*' -- postgres -D data

  # Its ring in memory, where the system never writes its pages to a disk
  tidewater log-device log --ring /dev/shm/tidewater-ring

  # Watched by Prometheus, and in a browser
  tidewater log-device log --metrics 127.0.0.1:9464 --page 127.0.0.1:8080";

pub(super) const STATUS: &str = "\
Examples:
  tidewater status
  tidewater status --watch
  tidewater status --device /run/tidewater/control.sock --json";

pub(super) const FAULT: &str = "\
Examples:
  # Reads of a block fail, as of a worn-out page
  tidewater fault error --lba 2048..2056

  # Data held only in volatile memory is lost, and the drive powers up a second later
  tidewater fault power-cut --off 1s

  # The power of a mount fails, and all that was not synced is lost
  tidewater fault power-cut --device DIR

  tidewater fault list
  tidewater fault clear";

pub(super) const MOUNT: &str = "\
Examples:
  # In memory, until Ctrl-C
  mkdir disk
  tidewater mount disk

  # What was synced is kept, also when the command is killed
  tidewater mount disk --image disk.img

  # In another terminal: the power fails; each fsync takes five seconds; the next one fails
  tidewater fault power-cut --device disk
  tidewater fault stall --for 5s --device disk
  tidewater fault eio --on sync --device disk";

pub(super) const CRASH_TEST: &str = "\
Examples:
  # A log of your own, and a check that reads it again
  tidewater crash-test --check 'python3 ../check.py' -- python3 ../write.py

  # Every operation, sectors, what ext4 promises; the result for a CI system
  tidewater crash-test --cuts 2000 --at every --tear sector --rules ext4 --junit crash.xml \\
    --check './app --verify' -- ./app --load 1000

  # A failure, again
  tidewater crash-test --replay crash-test.failure

Exit status: 0 every state passes, 1 a state fails or the program did, 2 wrong command line.";

pub(super) const GROUP: &str = "\
Examples:
  # Two devices on one machine, for a first try; on two machines, give their addresses
  tidewater log-device a --node 0 --peer-listen 127.0.0.1:7420 --peer 1=127.0.0.1:7421 &
  tidewater log-device b --node 1 --peer-listen 127.0.0.1:7421 --peer 0=127.0.0.1:7420 &
  tidewater cluster group form --device b --members 0,1 --mode eager
  tidewater cluster group form --device a --members 0,1 --mode eager --primary
  tidewater run --device a --level remote-ring --log 'pg_wal/*' -- postgres -D data

  # The primary's machine is gone
  tidewater cluster group promote --device b
  tidewater recover --device b";

pub(super) const GROUP_DEMOTE: &str = "\
Examples:
  tidewater cluster group demote --device a";

pub(super) const GROUP_LEAVE: &str = "\
Examples:
  tidewater cluster group leave --device b";

pub(super) const GROUP_REBUILD: &str = "\
Examples:
  # `group status` says that its log is stale
  tidewater cluster group rebuild --device b";

pub(super) const GROUP_FORM: &str = "\
Examples:
  tidewater cluster group form --device b --members 0,1 --mode eager
  tidewater cluster group form --device a --members 0,1 --mode eager --primary";

pub(super) const GROUP_PROMOTE: &str = "\
Examples:
  # The primary is gone, and the others answer
  tidewater cluster group promote --device b

  # Without node 0 from now on
  tidewater cluster group promote --device b --members 1,2 --mode eager";

pub(super) const GROUP_DEADLINE: &str = "\
Examples:
  # A program of yours that watches the devices says this each second
  tidewater cluster group deadline --device a --lasts 8s

  # `group status` says that the device is frozen, and no other member is primary
  tidewater cluster group deadline --device a --none";

pub(super) const KEEPER: &str = "\
Examples:
  # Once: the members, and when a byte counts as replicated
  tidewater cluster keeper group --etcd http://10.0.0.9:2379 --members 0,1,2 --mode quorum

  # On each machine: its device has --node and --peer
  tidewater cluster keeper run --etcd http://10.0.0.9:2379 --device a &

  # Anywhere
  tidewater cluster keeper status --etcd http://10.0.0.9:2379";

pub(super) const KEEPER_RUN: &str = "\
Examples:
  tidewater cluster keeper run --etcd http://10.0.0.9:2379 --device a

  # A load balancer asks http://10.0.0.1:9465/primary, Prometheus /metrics there
  tidewater cluster keeper run --etcd http://10.0.0.9:2379 --device a --metrics 10.0.0.1:9465

  # A program that runs where the primary is: see tidewater cluster keeper program
  tidewater cluster keeper run --etcd http://10.0.0.9:2379 --device a --program

  # etcd's data was wiped, and that is known
  tidewater cluster keeper run --etcd http://10.0.0.9:2379 --device a --new-etcd";

pub(super) const KEEPER_PROGRAM: &str = "\
Examples:
  # On each machine, beside its device and `tidewater cluster keeper run --program`
  tidewater cluster keeper program --device a -- ./app";

pub(super) const KEEPER_STATUS: &str = "\
Examples:
  tidewater cluster keeper status --json

  # Also says whether this is the etcd that the keeper of device a knew, or one that went back
  tidewater cluster keeper status --device a";

pub(super) const KEEPER_SWITCHOVER: &str = "\
Examples:
  # The machine of the primary is to be restarted
  tidewater cluster keeper switchover
  tidewater cluster keeper switchover --to 2";

pub(super) const KEEPER_PAUSE: &str = "\
Examples:
  # Work on etcd, or on the keepers
  tidewater cluster keeper pause
  tidewater cluster keeper resume";

pub(super) const KEEPER_REINIT: &str = "\
Examples:
  # `keeper status` says that the log of node 2 is stale
  tidewater cluster keeper reinit --node 2";

pub(super) const KEEPER_GROUP: &str = "\
Examples:
  tidewater cluster keeper group --members 0,1,2 --mode quorum

  # Node 0 is replaced by node 3, whose device and keeper run
  tidewater cluster keeper group --members 1,2,3 --mode quorum";

pub(super) const GROUP_STATUS: &str = "\
Examples:
  tidewater cluster group status --device a";

pub(super) const CLUSTER: &str = "\
Examples:
  # Once: certificates, and the members
  tidewater cluster identity init certs --nodes 3
  tidewater cluster keeper group --etcd http://10.0.0.9:2379 --members 0,1,2 --mode quorum

  # On each machine, beside its device
  tidewater cluster keeper run --etcd http://10.0.0.9:2379 --device a &

  # Without etcd: promote a member by hand
  tidewater cluster group promote --device b";

pub(super) const IDENTITY: &str = "\
Examples:
  tidewater cluster identity init certs --cluster shop --nodes 3
  tidewater log-device a --node 0 --cluster shop --peer-identity certs/node-0 \\
    --peer-listen 10.0.0.1:7420 --peer 1=10.0.0.2:7420 --peer 2=10.0.0.3:7420";

pub(super) const IDENTITY_INIT: &str = "\
Examples:
  tidewater cluster identity init certs --cluster shop --nodes 3
  tidewater cluster identity init certs --nodes 2 --days 90";

pub(super) const IDENTITY_ADD_NODE: &str = "\
Examples:
  tidewater cluster identity add-node certs --node 3

  # Before its certificate expires
  tidewater cluster identity add-node certs --node 0 --renew";

pub(super) const NVME: &str = "\
Examples:
  tidewater nvme smart-log tcp:127.0.0.1:4420
  tidewater nvme id-ctrl vfio-user:/run/tidewater/vfio.sock -o json
  tidewater nvme fast-status pci:0000:01:00.0
  tidewater nvme id-ns tcp:127.0.0.1:4420 --nsid 1 --json
  tidewater nvme fast append pci:0000:01:00.0 commit.bin
  tidewater nvme window pin pci:01:00.0 --entry 1 --lba 4096 --blocks 8";

pub(super) const RUN: &str = "\
Examples:
  # A log device, in one terminal
  tidewater log-device log

  # An SQLite shell whose write-ahead log is on it, in another
  tidewater run --device log --log 'app.db-wal' -- sqlite3 app.db

  # Redis, with commits that survive a crash of Redis or the device
  tidewater run --device log --level ring --log 'appendonlydir/*.aof' -- redis-server redis.conf

  # PostgreSQL
  tidewater run --device log --log 'data/pg_wal/*' -- postgres -D data";

pub(super) const BENCH: &str = "\
Examples:
  # Commits of SQLite, in a new database each time
  tidewater bench --device log --log 'app.db-wal' \\
    -- sh -c 'rm -f app.db*; sqlite3 app.db < load.sql'

  # At the level that survives crashes of processes
  tidewater bench --device log --level ring --log '*.log' --rounds 9 -- ./load";

pub(super) const RECOVER: &str = "\
Examples:
  # After a crash, without starting the program again
  tidewater recover --device log

  # Show what would be done
  tidewater recover --device log --dry-run

  # Only these files
  tidewater recover --device log --log 'data/pg_wal/*'

  # As root: only files of this user, regardless of whose the device is
  tidewater recover --device log --allow-owner postgres

  # On a replica's machine: copy the primary's /srv/data in between, and keep it up to date
  tidewater tail --device b --position
  tidewater recover --device b --onto /srv/data=/srv/copy --copied-at 86016 --follow

  # When the replica was promoted: the copy is complete
  tidewater recover --device b --onto /srv/data=/srv/copy";

pub(super) const TAIL: &str = "\
Examples:
  # What is there, one line a record
  tidewater tail --device b

  # What arrives from now on, as it is
  tidewater tail --device b --from end --follow --raw";

pub(super) const DRAIN: &str = "\
Examples:
  # Before the device is removed
  tidewater drain --device log";

pub(super) const CHECK: &str = "\
Examples:
  # Before a database is started without `tidewater run`
  tidewater check /var/lib/postgresql/15/main && postgres -D /var/lib/postgresql/15/main

  # In a systemd unit
  ExecStartPre=/usr/bin/tidewater check /var/lib/redis";

pub(super) const FAST: &str = "\
Examples:
  tidewater nvme fast append pci:0000:01:00.0 commit.bin
  tidewater nvme fast read vfio-user:/run/tidewater/vfio.sock --from 0 --bytes 4KiB";

pub(super) const FAST_APPEND: &str = "\
Examples:
  tidewater nvme fast append pci:0000:01:00.0 commit.bin
  tidewater nvme fast append tcp:127.0.0.1:4420 --record --lane 1 commit.bin";

pub(super) const FAST_READ: &str = "\
Examples:
  tidewater nvme fast read pci:01:00.0 --from 4096 --bytes 100 > bytes";

pub(super) const FAST_TRIM: &str = "\
Examples:
  tidewater nvme fast trim pci:01:00.0 --to 1048576";

pub(super) const FAST_STATUS: &str = "\
Examples:
  tidewater nvme fast status pci:01:00.0
  tidewater nvme fast status vfio-user:/run/tidewater/vfio.sock --json";

pub(super) const WINDOW: &str = "\
Examples:
  tidewater nvme window pin pci:01:00.0 --entry 1 --lba 4096 --blocks 8
  tidewater nvme window store pci:01:00.0 --entry 1 --sync page.bin
  tidewater nvme window flush pci:01:00.0 --entry 1";

pub(super) const WINDOW_PIN: &str = "\
Examples:
  tidewater nvme window pin pci:01:00.0 --entry 1 --lba 4096 --blocks 8
  tidewater nvme window pin vfio-user:/run/vfio.sock --entry 2 --lba 0 --blocks 16 --at 8192";

pub(super) const WINDOW_STORE: &str = "\
Examples:
  tidewater nvme window store pci:01:00.0 --entry 1 --at 100 --sync bytes.bin";

pub(super) const WINDOW_LOAD: &str = "\
Examples:
  tidewater nvme window load pci:01:00.0 --entry 1 > page
  tidewater nvme window load pci:01:00.0 --entry 1 --at 100 --bytes 64 --dma > bytes";

pub(super) const WINDOW_SYNC: &str = "\
Examples:
  tidewater nvme window sync pci:01:00.0 --entry 1";

pub(super) const WINDOW_INFO: &str = "\
Examples:
  tidewater nvme window info tcp:127.0.0.1:4420 --entry 1 --json";

pub(super) const WINDOW_FLUSH: &str = "\
Examples:
  tidewater nvme window flush pci:01:00.0 --entry 1";

pub(super) const WINDOW_UNPIN: &str = "\
Examples:
  tidewater nvme window unpin pci:01:00.0 --entry 1";

pub(super) const WINDOW_STATUS: &str = "\
Examples:
  tidewater nvme window status pci:01:00.0";
