//! Every way in which a replicated log can be hurt, and what tries it.

use crate::nets::tally::Tally;
use crate::nets::{links, roles, stops, storage};

/// How long a case takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A few seconds: it is tried by each run of the tests.
    Quick,
    /// It is tried by `make torture`.
    Long,
    /// The same, and not each try need hit.
    Chance,
}

/// The test of a case.
#[derive(Clone, Copy)]
pub enum By {
    /// These tests, on machines of their own.
    Here(Length, fn() -> Option<Tally>),
    /// Tests elsewhere: file and function.
    Tests(&'static [(&'static str, &'static str)]),
    /// None, and why.
    None(&'static str),
}

/// A way in which something fails.
pub struct Case {
    pub section: &'static str,
    pub what: &'static str,
    pub by: By,
}

const fn here(section: &'static str, what: &'static str, length: Length, act: fn() -> Option<Tally>) -> Case {
    Case { section, what, by: By::Here(length, act) }
}

const fn tests(section: &'static str, what: &'static str, tests: &'static [(&'static str, &'static str)]) -> Case {
    Case { section, what, by: By::Tests(tests) }
}

const fn none(section: &'static str, what: &'static str, why: &'static str) -> Case {
    Case { section, what, by: By::None(why) }
}

use Length::{Chance, Long, Quick};

const MAIN: &str = "tests/tests/replication/mod.rs";
const RELAY: &str = "tests/tests/replication/relay.rs";
const IDENTITY: &str = "tests/tests/replication/identity.rs";
const UPGRADE: &str = "tests/tests/replication/upgrade.rs";
const MEMBERS: &str = "tests/tests/keeper/members.rs";
const LIVES: &str = "tests/tests/replication/campaign.rs";
const CLIENTS: &str = "tests/tests/replication/clients.rs";
const COPIES: &str = "tests/tests/replication/copies.rs";
const DESTAGED: &str = "tests/tests/replication/destaged.rs";
const DEATHS: &str = "tests/tests/rings/deaths.rs";
const KEEPER: &str = "tests/tests/keeper/failures.rs";
const DISKS: &str = "tests/tests/keeper/disks.rs";
const VERBS: &str = "tests/tests/keeper/verbs.rs";
const NETS: &str = "tests/tests/nets/campaign.rs";
const PEERS: &str = "crates/serve/src/peers/tests/mod.rs";
const SECURED: &str = "crates/serve/src/peers/tests/secured.rs";
const HOSTILE: &str = "crates/serve/tests/image/hostile.rs";
const SCENARIOS: &str = "crates/core/src/fast/transport/tests/scenarios.rs";
const MEMORY: &str = "crates/core/src/fast/transport/tests/memory.rs";
const TORTURE: &str = "crates/core/src/fast/transport/tests/torture.rs";
const MODEL: &str = "crates/core/src/fast/transport/tests/model/mod.rs";
const HISTORY: &str = "crates/wire/src/replication/history.rs";

/// All cases, by section.
pub const CASES: &[Case] = &[
    here("links", "cut one way, each direction of two links", Long, links::cut_one_way),
    here("links", "cut both ways, one link at a time", Long, links::cut_both_ways),
    here("links", "cut between the secondaries only", Long, links::cut_between_secondaries),
    here("links", "each packet 10 ms late", Long, links::slow),
    here("links", "1 % of the packets lost", Long, links::lossy),
    here("links", "up to 40 ms late, so that packets overtake each other", Long, links::unsteady),
    here("links", "a tenth of the packets twice", Long, links::twice),
    here("links", "late, lost, twice and out of order at once", Quick, links::all_at_once),
    here("links", "4 KB a second to a replica", Long, links::a_trickle),
    here("links", "long packets lost in silence (MTU black hole)", Long, links::mtu_black_hole),
    here("links", "cut and whole again in each keep-alive period", Chance, links::flapping),
    here("links", "the peer's machine gone without FIN (half-open)", Long, links::half_open),
    here("links", "the primary cut off, and another promoted", Quick, links::a_primary_behind_a_cut),
    here("links", "an eager group with one direction cut names who is late", Long, links::an_eager_group_waits),
    here("links", "cut for 40 s, and used again soon after", Long, links::a_long_cut),
    tests(
        "links",
        "connections ended amid a frame, again and again; a few bytes at a time; single bits changed",
        &[(RELAY, "torture_changed_and_cut_bytes_reach_no_log_and_connections_come_back")],
    ),
    tests(
        "links",
        "a crowd at the listener, that says nothing or nonsense",
        &[
            (PEERS, "what_is_no_peer_is_closed_and_disturbs_no_connection"),
            (SECURED, "one_address_does_not_keep_out_another"),
            (SECURED, "a_refused_stranger_can_not_send_for_ever"),
        ],
    ),
    tests(
        "links",
        "the address of a peer used by another cluster, or by a copy of an image",
        &[(PEERS, "each_side_says_why_it_refuses_the_other")],
    ),
    tests("links", "a second connection of the same peer", &[(PEERS, "a_peer_that_was_started_anew_is_known_as_such")]),
    tests(
        "links",
        "a certificate that has expired",
        &[
            (IDENTITY, "a_peer_whose_certificate_has_expired_is_refused_until_it_has_a_new_one"),
            (SECURED, "a_certificate_that_has_expired_is_named_on_both_sides"),
        ],
    ),
    tests(
        "links",
        "a certificate that is renewed while devices replicate, by the same CA and by another one",
        &[
            (IDENTITY, "renewed_certificates_are_taken_up_while_devices_replicate"),
            (SECURED, "a_renewed_certificate_is_shown_by_new_connections_and_ends_none"),
        ],
    ),
    tests(
        "links",
        "renewed files that are half-written, or do not fit together",
        &[
            (IDENTITY, "renewed_files_that_can_not_be_used_are_named_and_the_ones_before_stay_in_use"),
            (SECURED, "files_that_can_not_be_used_are_named_once_and_whole_ones_are_taken"),
            (MEMBERS, "a_keeper_takes_up_renewed_certificates_and_goes_on_by_those_before_while_new_ones_are_broken"),
        ],
    ),
    tests(
        "links",
        "a certificate of the wrong node",
        &[
            (IDENTITY, "an_identity_of_another_node_or_cluster_and_an_open_key_are_refused_at_the_start"),
            (SECURED, "a_certificate_with_another_name_is_refused_in_words_on_both_sides"),
        ],
    ),
    tests(
        "links",
        "a certificate of another CA, and none",
        &[
            (IDENTITY, "a_peer_of_another_ca_is_refused_in_words_on_both_sides"),
            (IDENTITY, "a_peer_without_an_identity_is_refused_in_words_on_both_sides"),
        ],
    ),
    here("processes", "SIGKILL of the primary and its keeper", Long, stops::primary_killed),
    here("processes", "SIGKILL of a secondary", Long, stops::secondary_killed),
    here("processes", "SIGKILL (or out of memory) of the primary's keeper", Long, stops::keeper_killed),
    tests(
        "processes",
        "SIGKILL of devices at any moment, by seed",
        &[(LIVES, "torture_what_was_acknowledged_is_on_every_later_primary")],
    ),
    tests(
        "processes",
        "SIGKILL of a client",
        &[(DEATHS, "a_client_that_is_killed_amid_its_records_leaves_those_that_it_was_told_of")],
    ),
    here("processes", "SIGSTOP of the primary: 1 s, 15 s, 60 s", Long, stops::primary_stopped),
    here("processes", "SIGSTOP of a secondary: 1 s, 15 s, 60 s", Long, stops::secondary_stopped),
    here("processes", "SIGSTOP of the primary's keeper: 1 s, 15 s, 60 s", Long, stops::keeper_stopped),
    here("processes", "a device out of descriptors", Long, stops::out_of_descriptors),
    tests(
        "processes",
        "two processes of one node",
        &[(HOSTILE, "an_image_is_for_one_process_one_owner_and_one_shape")],
    ),
    tests(
        "processes",
        "members of the last release beside members of this one, in every mixture",
        &[
            (UPGRADE, "a_group_is_upgraded_and_goes_back_whatever_the_order_is"),
            (UPGRADE, "a_group_is_upgraded_and_goes_back_with_the_primary_last"),
            (UPGRADE, "the_commands_of_the_guide_upgrade_a_group"),
        ],
    ),
    here("storage", "the sync of a candidate's promise fails", Long, storage::a_promise_that_does_not_sync),
    here("storage", "the sync of an acceptance fails", Long, storage::an_acceptance_that_does_not_sync),
    none(
        "storage",
        "an error of the disk below a program's files that a sync of another program gets before a checkpoint",
        "Linux says it once to those that open a file later: see \"What is guaranteed\" in databases.md",
    ),
    here("storage", "a replica's disk is full", Long, storage::a_replica_with_a_full_disk),
    here("storage", "the primary's disk is full", Long, storage::a_primary_with_a_full_disk),
    here("storage", "the primary's disk does not sync", Long, storage::a_primary_that_does_not_sync),
    tests(
        "storage",
        "the primary's disk can't be written or synced, below keepers",
        &[
            (DISKS, "a_primary_whose_disk_dies_gives_its_lead_away_and_nothing_is_lost"),
            (DISKS, "a_switchover_needs_nothing_of_a_primary_whose_disk_is_dead"),
            (DISKS, "torture_disks_that_die_cost_seconds_and_no_byte"),
        ],
    ),
    tests(
        "storage",
        "a disk is full for a while, below keepers: the primary's, a replica's",
        &[(DISKS, "a_device_whose_disk_was_full_comes_back_by_itself_when_there_is_room")],
    ),
    tests(
        "storage",
        "the primary's disk is slow for long",
        &[(DISKS, "a_disk_that_is_slow_for_long_gives_the_lead_away_where_that_was_asked_for")],
    ),
    here("storage", "a disk stands still for 30 s: a replica's, the primary's", Long, storage::stalled_disks),
    here("storage", "the image is lost, with the same node number", Long, storage::an_image_that_is_lost),
    here("storage", "a member that lost its image does not vote", Long, storage::a_lost_image_does_not_vote),
    here(
        "storage",
        "a member that lost its image meets a deposed primary first",
        Long,
        storage::a_lost_image_and_a_deposed_primary,
    ),
    none(
        "storage",
        "the same without keepers",
        "then no leader deadline stops that primary: see \"A member lost its image\" in the guide",
    ),
    here("storage", "image and ring restored from an old copy", Long, storage::an_image_of_long_ago),
    none(
        "storage",
        "restored from an old copy while another member lacks bytes and the third is away",
        "a device can't know by itself; restore an image only as a new one (`group form`)",
    ),
    tests(
        "storage",
        "all rings lost, and the images kept",
        &[(DESTAGED, "what_is_destaged_on_replicas_outlives_the_memory_of_all_machines")],
    ),
    tests(
        "storage",
        "bits of the control block changed",
        &[
            (HOSTILE, "damaged_bytes_are_an_error_in_words_or_do_no_harm"),
            (HOSTILE, "forged_records_are_an_error_or_a_drive"),
        ],
    ),
    tests(
        "storage",
        "a power cut between a promise and its sync",
        &[
            (MODEL, "all_that_a_power_cut_can_do_to_a_promotion_loses_nothing"),
            (MODEL, "a_promise_that_is_said_before_it_is_durable_is_found"),
            (MODEL, "a_cut_before_the_reason_is_durable_is_found"),
        ],
    ),
    tests(
        "storage",
        "the memory of a primary's machine lost, and the primary promoted again",
        &[
            (MEMORY, "a_primary_that_lost_its_memory_does_not_vote"),
            (MEMORY, "a_primary_that_lost_its_memory_is_promoted_by_force"),
            (MAIN, "a_primary_whose_memory_is_gone_takes_over_what_a_replica_has"),
        ],
    ),
    tests(
        "storage",
        "the memory of a secondary's machine lost, and it promoted before it is in step",
        &[
            (MODEL, "a_loss_of_memory_loses_nothing_that_another_has"),
            (MEMORY, "a_replica_that_lost_its_memory_does_not_vote"),
            (MAIN, "a_replica_whose_memory_is_gone_takes_over_what_another_has"),
        ],
    ),
    tests(
        "roles",
        "two candidates at once, and a promotion while another is under way",
        &[(MODEL, "torture_two_promotions_a_change_and_a_power_cut")],
    ),
    tests(
        "roles",
        "a change of the group during a promotion, and a member that does not finish it",
        &[(MODEL, "a_promotion_and_a_change_of_the_group_at_once_lose_nothing")],
    ),
    tests(
        "roles",
        "groups that grow and shrink, and the primary taken out",
        &[
            (TORTURE, "groups_that_change_keep_what_they_acknowledge"),
            (VERBS, "a_switchover_a_pause_and_another_group_lose_nothing"),
        ],
    ),
    tests(
        "roles",
        "a quorum of some of two to five, with candidates and sources that die in the pull",
        &[(TORTURE, "quorums_keep_what_they_acknowledge")],
    ),
    tests(
        "roles",
        "a lazy primary alone, and a forced promotion beside it",
        &[(SCENARIOS, "a_lazy_suffix_that_a_forced_promotion_leaves_behind_is_reported_and_cut")],
    ),
    tests(
        "roles",
        "the log trimmed while a member is away",
        &[(SCENARIOS, "what_is_trimmed_everywhere_makes_a_peer_stale_until_it_is_rebuilt")],
    ),
    tests(
        "roles",
        "a history of more than 16 epochs",
        &[(HISTORY, "a_full_history_forgets_its_oldest_and_takes_nothing_that_descends")],
    ),
    here("roles", "`--force` by two operators on two sides", Long, roles::force_on_two_sides),
    none("roles", "all epochs used up", "it takes 2^56 promotions; the command is refused by name then"),
    here("etcd", "one of three members gone, each once", Long, stops::a_member_of_etcd_killed),
    here("etcd", "all members gone, for two leases", Long, stops::etcd_killed),
    here("etcd", "SIGSTOP: 1 s, 15 s, 60 s", Long, stops::etcd_stopped),
    here("etcd", "the primary's machine cut off with its member", Long, stops::the_primarys_machine_cut_off),
    here("etcd", "the primary reaches etcd, and no replica", Long, stops::the_primary_with_etcd_alone),
    here("etcd", "compactions while keepers watch", Long, stops::compactions),
    tests(
        "etcd",
        "gone with another member: nothing is acknowledged until one of them is back",
        &[(KEEPER, "without_etcd_the_primary_goes_on_while_all_members_answer")],
    ),
    tests(
        "etcd",
        "a lease lost by a pause of its keeper",
        &[(KEEPER, "a_keeper_that_stands_still_makes_its_device_acknowledge_nothing_more")],
    ),
    tests(
        "etcd",
        "its data wiped or of long ago, and another etcd",
        &[(KEEPER, "an_etcd_that_lost_its_data_is_refused_by_name_until_an_operator_takes_it")],
    ),
    none("etcd", "a clock that jumps by an hour", "devices and keepers read no clock of the day"),
    none("etcd", "an expired token of authentication", "the etcd of these tests asks for no password"),
    tests(
        "clients",
        "acknowledged just before a cut, and appends during a promotion",
        &[(NETS, "torture_clusters_on_machines_of_their_own_lose_nothing_that_was_acknowledged")],
    ),
    tests("clients", "moved by more than one fail-over", &[(CLIENTS, "torture_programs_live_through_fail_overs")]),
    tests(
        "clients",
        "a reader on a replica whose bytes a promotion cuts",
        &[(COPIES, "a_reader_on_a_replica_sees_what_arrives_and_names_what_a_promotion_cuts")],
    ),
    tests(
        "clients",
        "`REMOTE_DESTAGED` while a replica stands still",
        &[(DESTAGED, "a_replica_that_does_not_sync_is_named_or_not_needed")],
    ),
];

/// The text before the list.
const HEAD: &str = "\
# How a replicated log can fail

Each way that was thought of, and the test that tries it. Those of `nets` run devices, keepers and a real etcd on
machines of their own: network namespaces, joined by a relay that cuts, loses, delays, repeats and reorders packets by
seed. The history of appends and reads is judged by a checker of ours and by
[Porcupine](https://github.com/anishathalye/porcupine). `make torture ARGS=every_case` prints for each case how often it
was tried, how often the fault was seen at work, and what went wrong. `make torture ARGS=clusters_on_machines` lets all
kinds of faults happen by seed, for 45 minutes or as many as `TIDEWATER_TORTURE_MINUTES` says.

This page is generated: `UPDATE_DOCS=1 cargo test -p tidewater-tests --test groups page_of_cases`.
";

/// The page that lists them.
fn page() -> String {
    let mut text = HEAD.to_owned();
    let mut last = "";
    for Case { section, what, by } in CASES {
        if *section != last {
            text += &format!("\n## {}{}\n\n", section[..1].to_uppercase(), &section[1..]);
            last = section;
        }
        text += &match by {
            By::Here(Quick, _) => format!("- {what}: `nets`, with each run of the tests\n"),
            By::Here(..) => format!("- {what}: `nets`\n"),
            By::None(why) => format!("- {what}: not tried, since\n  {why}\n"),
            By::Tests(tests) => {
                let each = tests.iter().map(|(file, test)| format!("  - `{test}`\n    of `{file}`\n"));
                format!("- {what}:\n{}", each.collect::<String>())
            }
        };
    }
    text
}

#[test]
fn the_page_of_cases_lists_them_all() {
    let path = tidewater_tests::root().join("docs/internals/failure-cases.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).expect("the checkout can be written");
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(is == page(), "{} is not what the table says; set UPDATE_DOCS=1", path.display());
}

#[test]
fn each_test_that_a_case_names_is_there() {
    for case in CASES {
        let By::Tests(tests) = case.by else { continue };
        for (file, test) in tests {
            let text = std::fs::read_to_string(tidewater_tests::root().join(file)).unwrap_or_default();
            assert!(text.contains(&format!("fn {test}(")), "{}: {file} has no {test}", case.what);
        }
    }
}
