//! What recovery finds, as transcripts: see `transcript`.

#[test]
fn a_torn_tail_is_cut_and_damage_is_told() {
    crate::transcript::check(include_str!("testdata/torn_or_damaged.txt"));
}

#[test]
fn losses_at_the_end_keep_their_indexes() {
    crate::transcript::check(include_str!("testdata/lost_ends.txt"));
}
