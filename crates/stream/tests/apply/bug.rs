//! Rules that the reference can get wrong, to prove that the comparison would notice.

/// One wrong rule of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Accepted appends leave no trace of their producer: a repeat is taken twice.
    ForgetsProducers,
    /// A closed stream takes more data.
    WritesBehindTheEnd,
    /// A write does not start a sliding lifetime again.
    WritesAreNoUse,
    /// Nor does a read.
    ReadsAreNoUse,
    /// A deleted source goes although forks read its bytes.
    DeletesUnderForks,
    /// A checkpoint leaves out the last `Stream-Seq`.
    RestartsForgetSeqs,
    /// A trim takes bytes that forks need.
    TrimsBelowPins,
    /// What a fork gave back stays.
    KeepsWhatWasPinned,
    /// An append is taken whatever number its record gets.
    IgnoresRecords,
}

/// All of them.
pub(crate) const ALL: [Bug; 9] = [
    Bug::ForgetsProducers,
    Bug::WritesBehindTheEnd,
    Bug::WritesAreNoUse,
    Bug::ReadsAreNoUse,
    Bug::DeletesUnderForks,
    Bug::RestartsForgetSeqs,
    Bug::TrimsBelowPins,
    Bug::KeepsWhatWasPinned,
    Bug::IgnoresRecords,
];
