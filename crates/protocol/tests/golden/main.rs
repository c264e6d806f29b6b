//! Golden files of every head that this crate writes, byte for byte.
//!
//! Each file in `testdata/golden` is a page of answers. A page shows CR as `\r`, LF as `\n` with a
//! line break, and other bytes outside printable ASCII as `\xNN`. An answer is shown in full for a
//! kept HTTP/1.1 connection. The other kinds of exchange follow with the lines that differ.
//!
//! Each answer is also written to a second wire, which must end up with the same fields.
//!
//! A head changes only on purpose. Then the failing test prints the page as it would be now.

mod answers;
mod builders;
mod other_wire;
mod page;
mod problems;
mod reads;
mod requests;
mod viewers;
mod wire;
mod writes;

use page::check;

#[test]
fn answers_to_writes_are_as_recorded() {
    check(&writes::page(), include_str!("../../testdata/golden/writes.txt"));
}

#[test]
fn answers_to_reads_are_as_recorded() {
    check(&reads::page(), include_str!("../../testdata/golden/reads.txt"));
}

#[test]
fn answers_where_pages_are_listed_are_as_recorded() {
    check(&viewers::page(), include_str!("../../testdata/golden/viewers.txt"));
}

#[test]
fn problems_are_as_recorded() {
    check(&problems::page(), include_str!("../../testdata/golden/problems.txt"));
}

#[test]
fn refused_requests_are_answered_as_recorded() {
    check(&requests::page(), include_str!("../../testdata/golden/refused_requests.txt"));
}

#[test]
fn events_chunks_and_a_clients_requests_are_as_recorded() {
    check(&wire::page(), include_str!("../../testdata/golden/wire.txt"));
}
