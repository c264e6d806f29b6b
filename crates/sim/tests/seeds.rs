//! Fixed seeds must hold, the same seed must give the same run, and every checker must fire.

use thalweg_sim::{FaultKind, Mutant, Plan, Rule, run, shrink};

/// Seeds below this one keep the faults and the course that they had before there were later faults.
const LATER_SEEDS: u64 = 300;

/// The plan of a seed that once failed, with the course that it had then.
fn old(seed: u64) -> Plan {
    let mut plan = Plan { has_access: false, ..Plan::of_seed(seed) };
    plan.faults.retain(|fault| *fault != FaultKind::LostSegment);
    plan
}

/// Seeds that every change must pass. `cargo xtask sim` runs others.
fn pass(seeds: std::ops::Range<u64>) {
    let mut broken = Vec::new();
    for seed in seeds {
        let is_later = seed >= LATER_SEEDS;
        let plan = if is_later { Plan::of_seed(seed) } else { Plan::with_first_faults(seed) };
        if let Err(failure) = run(&plan) {
            broken.push(failure.to_string());
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Another trim had overtaken a trim; a clock that was set back had put one off for long; one dropped young data, for a chunk could not
/// be opened. And a start could not write down which segment it had lost.
#[test]
fn seeds_that_found_defects_of_trims_and_of_a_start_hold() {
    let seeds = [650378385365, 650378385730, 650378387499, 650378387776, 650378395804];
    seeds.into_iter().for_each(|seed| pass(seed..seed + 1));
}

/// Six connections were allowed, and clients kept as many without a request: the last reader was refused until the end.
#[test]
fn a_seed_whose_clients_kept_all_connections_holds() {
    pass(761777551974..761777551975);
}

#[test]
fn seeds_0_to_49_hold() {
    pass(0..50);
}

#[test]
fn seeds_50_to_99_hold() {
    pass(50..100);
}

#[test]
fn seeds_100_to_149_hold() {
    pass(100..150);
}

#[test]
fn seeds_150_to_199_hold() {
    pass(150..200);
}

#[test]
fn seeds_200_to_249_hold() {
    pass(200..250);
}

#[test]
fn seeds_250_to_299_hold() {
    pass(250..300);
}

#[test]
fn seeds_300_to_349_hold() {
    pass(300..350);
}

#[test]
fn seeds_350_to_399_hold() {
    pass(350..400);
}

/// Found by a small disk: it refused deletions although merges were about to make room.
#[test]
fn seeds_that_once_refused_deletions_hold() {
    for seed in [5008, 5135, 5140] {
        let plan = Plan { faults: vec![FaultKind::SmallDisk], ..old(seed) };
        if let Err(failure) = run(&plan) {
            panic!("{failure}");
        }
    }
}

/// After 30 s without an answer a client's new connection was one too many: that says nothing of the disk.
#[test]
fn a_seed_that_refused_a_connection_after_the_disk_was_emptied_holds() {
    pass(527_976_710_415..527_976_710_416);
}

/// A chunk of which most was dead stayed: that was counted after the last merge, and nobody looked again.
#[test]
fn a_seed_that_counted_what_was_dead_after_the_last_merge_holds() {
    if let Err(failure) = run(&old(1_065_466_834_250)) {
        panic!("{failure}");
    }
}

/// A group that kept no old segment was sealed into the room that those which do needed.
#[test]
fn a_seed_whose_seals_took_the_room_of_deletions_holds() {
    if let Err(failure) = run(&old(788_984_888_816)) {
        panic!("{failure}");
    }
}

/// The clock had jumped before the first start that left anything: there is no earlier time to compare it with.
#[test]
fn a_seed_whose_first_start_follows_a_jump_holds() {
    if let Err(failure) = run(&old(51310)) {
        panic!("{failure}");
    }
}

/// The clock jumped between the start of a shard and its first request.
#[test]
fn a_seed_whose_clock_jumps_before_the_first_request_holds() {
    if let Err(failure) = run(&old(272_555_232_185)) {
        panic!("{failure}");
    }
}

#[test]
fn a_seed_replays_to_the_byte() {
    for seed in [3, 17, 40, 301, 302, 303] {
        let plan = Plan::of_seed(seed);
        let of = |result: Result<thalweg_sim::Report, Box<thalweg_sim::Failure>>| match result {
            Ok(report) => format!("{report:?}"),
            Err(failure) => failure.to_string(),
        };
        let (first, second) = (of(run(&plan)), of(run(&plan)));
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn another_seed_is_another_run() {
    let hash = |seed| run(&Plan::of_seed(seed)).map(|report| report.trace_hash).ok();
    assert_ne!(hash(1), hash(2));
}

/// What is wrong if the mutant is not found out within some seeds by a rule about its defect.
fn missed(mutant: Mutant, rules: &[Rule]) -> Option<String> {
    let mut others = Vec::new();
    for seed in 0..40 {
        let faults = match mutant {
            Mutant::LyingSync | Mutant::LostBlock => vec![FaultKind::PowerLoss],
            Mutant::Gullible => vec![FaultKind::ClockJump],
            Mutant::BrittleReads => vec![FaultKind::UnreadableBlock],
            Mutant::LateRename => vec![FaultKind::Kill, FaultKind::SlowJobs],
            Mutant::NoReserve => vec![FaultKind::SmallDisk],
            Mutant::RewrittenBlocks => vec![FaultKind::TornSector],
            Mutant::ZeroedReads => vec![FaultKind::LostChunkBlock],
            Mutant::BrittleNames => vec![FaultKind::FailedStart, FaultKind::Kill],
            Mutant::LostLists => vec![FaultKind::LostLastBatch],
            Mutant::RetriedSync => vec![FaultKind::EvictedPages, FaultKind::Kill],
            Mutant::StickyReads => vec![FaultKind::FailedRead],
            Mutant::WorkOnLoop => vec![FaultKind::CostlyWork],
            Mutant::BrittleSyncs => vec![FaultKind::FailedStart, FaultKind::Kill],
            Mutant::StickyOpens => vec![FaultKind::FailedOpens],
            Mutant::BrittleSegments => vec![FaultKind::LostSegment],
            Mutant::BrittleLeftovers => vec![FaultKind::DamagedEnd],
            Mutant::SwallowedErrors => vec![FaultKind::FailedNames, FaultKind::PowerLoss],
            Mutant::NoProducer | Mutant::NoSequence | Mutant::WrongRepeat => {
                vec![FaultKind::Vanish, FaultKind::Kill]
            }
            _ => vec![],
        };
        let is_of_frames = matches!(mutant, Mutant::CrossedBodies | Mutant::DeafToWindows);
        let http2_percent = if is_of_frames { 100 } else { 0 };
        let has_access = mutant.is_of_access();
        let plan =
            Plan { faults, mutant: Some(mutant), http2_percent, has_access, ..Plan::of_seed(seed) };
        if let Err(failure) = run(&plan) {
            if rules.contains(&failure.violation.rule) {
                return None;
            }
            others.push(failure.violation.to_string());
        }
    }
    Some(format!("{mutant:?} was not found out by {rules:?}; others: {others:#?}"))
}

#[test]
fn every_mutant_is_found_out() {
    let missed: Vec<String> =
        Mutant::ALL.iter().filter_map(|(mutant, rules)| missed(*mutant, rules)).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// To every other client, a request behind an append may as well have overtaken it. A writer with a condition knows its
/// place, too.
#[test]
fn only_clients_that_know_their_place_find_a_request_that_is_judged_too_early() {
    let mutant = Some(Mutant::EarlyRead);
    let plan = |seed| Plan { faults: vec![], mutant, ..Plan::of_seed(seed) };
    let found: Vec<_> = (0..20).filter_map(|seed| run(&plan(seed)).err()).collect();
    assert!(found.len() > 2, "found out by {} of 20 seeds", found.len());
    for failure in found {
        let rules = [Rule::Pipelined, Rule::Contended];
        assert!(rules.contains(&failure.violation.rule), "{failure}");
    }
}

/// Without it, what a clock that has jumped ahead does to lifetimes and ages is what a clock does.
#[test]
fn only_lifetimes_and_ages_find_a_server_that_believes_every_clock() {
    let mutant = Some(Mutant::Gullible);
    let plan = |seed| Plan { faults: vec![FaultKind::ClockJump], mutant, ..Plan::of_seed(seed) };
    let found: Vec<_> = (0..20).filter_map(|seed| run(&plan(seed)).err()).collect();
    assert!(found.len() > 2, "found out by {} of 20 seeds", found.len());
    for failure in found {
        let rules = [Rule::Lifetime, Rule::Kept];
        assert!(rules.contains(&failure.violation.rule), "{failure}");
    }
}

#[test]
fn a_failure_that_needs_no_fault_and_little_time_is_shrunk_to_that() {
    let drawn = Plan::of_seed(1);
    let faults = vec![FaultKind::Kill, FaultKind::Vanish, FaultKind::Reshard];
    let plan = Plan { faults, seconds: 60, mutant: Some(Mutant::StaleRead), ..drawn };
    let smaller = shrink(*run(&plan).expect_err("a mutant"));
    assert_eq!(smaller.violation.rule, Rule::UpToDate);
    assert!(smaller.plan.faults.is_empty(), "{smaller}");
    assert!(smaller.plan.seconds < 10, "{smaller}");
}

/// A mutant that the first faults do not find, in so many seeds.
fn is_found_only_by(mutant: Mutant, without: &[FaultKind], rules: &[Rule]) {
    assert_eq!(missed(mutant, rules), None);
    for seed in 0..6 {
        let plan = Plan { faults: without.to_vec(), mutant: Some(mutant), ..Plan::of_seed(seed) };
        if let Err(failure) = run(&plan) {
            panic!("{mutant:?} is found without its fault: {failure}");
        }
    }
}

#[test]
fn only_a_small_disk_finds_a_log_that_keeps_no_room_for_deletions() {
    let without = [FaultKind::FullDisk, FaultKind::Kill, FaultKind::SlowJobs];
    is_found_only_by(Mutant::NoReserve, &without, &[Rule::FullDisk]);
}

#[test]
fn only_a_torn_sector_finds_a_log_that_writes_durable_blocks_again() {
    let rules = [Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten, Rule::Damage];
    is_found_only_by(Mutant::RewrittenBlocks, &[FaultKind::PowerLoss, FaultKind::SlowJobs], &rules);
}

#[test]
fn only_evicted_pages_find_a_sync_that_is_tried_again_while_the_power_stays() {
    let rules = [Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten, Rule::Damage];
    is_found_only_by(Mutant::RetriedSync, &[FaultKind::FailedSync, FaultKind::Kill], &rules);
}

#[test]
fn only_a_chunk_that_loses_a_block_in_use_finds_zeroes_in_its_place() {
    let rules = [Rule::Unseen, Rule::Garbled, Rule::ForkPrefix];
    is_found_only_by(Mutant::ZeroedReads, &[FaultKind::FailedSync, FaultKind::FailedNames], &rules);
}

#[test]
fn only_a_start_that_cannot_open_or_remove_finds_errors_that_refuse_it() {
    let without = [FaultKind::FailedNames, FaultKind::Kill, FaultKind::FailedRead];
    is_found_only_by(Mutant::BrittleNames, &without, &[Rule::Refused]);
}

#[test]
fn only_costly_work_finds_background_work_on_the_loop() {
    let without = [FaultKind::SlowJobs, FaultKind::Kill];
    is_found_only_by(Mutant::WorkOnLoop, &without, &[Rule::LongTurn]);
}

#[test]
fn only_a_start_whose_names_cannot_be_synced_finds_syncs_that_refuse_it() {
    let without = [FaultKind::FailedNames, FaultKind::Kill, FaultKind::FailedRead];
    is_found_only_by(Mutant::BrittleSyncs, &without, &[Rule::Refused]);
}

#[test]
fn only_opens_that_fail_in_use_find_a_file_that_is_given_up() {
    let without = [FaultKind::FailedNames, FaultKind::Kill, FaultKind::FailedRead];
    is_found_only_by(Mutant::StickyOpens, &without, &[Rule::Damage]);
}

#[test]
fn only_a_segment_that_stays_closed_finds_a_start_that_is_refused_for_it() {
    let without = [FaultKind::FailedStart, FaultKind::FailedOpens, FaultKind::Kill];
    is_found_only_by(Mutant::BrittleSegments, &without, &[Rule::Refused]);
}

#[test]
fn only_a_read_that_fails_once_finds_a_block_that_is_given_up_for_it() {
    let without = [FaultKind::FailedNames, FaultKind::FailedOpens, FaultKind::Kill];
    is_found_only_by(Mutant::StickyReads, &without, &[Rule::Damage]);
}

#[test]
fn only_an_unreadable_block_finds_a_start_that_is_refused_for_it() {
    let without = [FaultKind::FailedNames, FaultKind::FailedOpens, FaultKind::Kill];
    is_found_only_by(Mutant::BrittleReads, &without, &[Rule::Refused]);
}

#[test]
fn only_names_that_fail_find_errors_that_are_swallowed() {
    let rules = [Rule::AckedLost, Rule::Unseen, Rule::Damage, Rule::Refused];
    is_found_only_by(Mutant::SwallowedErrors, &[FaultKind::PowerLoss, FaultKind::Kill], &rules);
}

#[test]
fn only_a_lost_last_batch_finds_lists_that_are_not_written() {
    let rules = [Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten];
    is_found_only_by(Mutant::LostLists, &[FaultKind::PowerLoss, FaultKind::Kill], &rules);
}

#[test]
fn only_http2_finds_what_is_wrong_with_its_frames() {
    for mutant in [Mutant::CrossedBodies, Mutant::DeafToWindows] {
        let plan = |seed, http2_percent| Plan {
            faults: vec![],
            mutant: Some(mutant),
            http2_percent,
            ..Plan::of_seed(seed)
        };
        for seed in 0..6 {
            assert!(run(&plan(seed, 0)).is_ok(), "{mutant:?} is found without HTTP/2");
        }
        let found = (0..20).filter(|seed| run(&plan(*seed, 100)).is_err()).count();
        assert!(found > 2, "{mutant:?} is found out by {found} of 20 seeds");
    }
}

#[test]
fn only_guests_find_rules_that_let_in_too_much() {
    for mutant in
        [Mutant::OpenDoor, Mutant::EndlessTokens, Mutant::WideGrants, Mutant::DeafToReloads]
    {
        let plan = |seed, has_access| Plan {
            faults: vec![],
            mutant: Some(mutant),
            has_access,
            ..Plan::of_seed(seed)
        };
        for seed in 0..6 {
            assert!(run(&plan(seed, false)).is_ok(), "{mutant:?} is found without an access file");
        }
        let found: Vec<_> = (0..20).filter_map(|seed| run(&plan(seed, true)).err()).collect();
        assert!(found.len() > 2, "{mutant:?} is found out by {} of 20 seeds", found.len());
        for failure in found {
            assert_eq!(failure.violation.rule, Rule::Access, "{failure}");
        }
    }
}

/// What is kept for nobody harms no client of a run.
#[test]
fn only_bounds_find_what_is_kept_for_nobody() {
    let hoarders = [
        Mutant::DeafToUnwatch,
        Mutant::KeptFiles,
        Mutant::EndlessMemory,
        Mutant::NoMerges,
        Mutant::KeptChunks,
    ];
    for mutant in hoarders {
        let plan = |seed| Plan { faults: vec![], mutant: Some(mutant), ..Plan::of_seed(seed) };
        let found: Vec<_> = (0..20).filter_map(|seed| run(&plan(seed)).err()).collect();
        assert!(found.len() > 2, "{mutant:?} is found out by {} of 20 seeds", found.len());
        for failure in found {
            assert_eq!(failure.violation.rule, Rule::Hoarded, "{failure}");
        }
    }
}
