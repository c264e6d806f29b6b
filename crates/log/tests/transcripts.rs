//! What recovery finds, as transcripts: see `transcript`.

mod support;
mod transcript;

#[test]
fn a_torn_tail_is_cut_and_damage_is_told() {
    transcript::check(include_str!("testdata/torn_or_damaged.txt"));
}

#[test]
fn losses_at_the_end_keep_their_indexes() {
    transcript::check(include_str!("testdata/lost_ends.txt"));
}
