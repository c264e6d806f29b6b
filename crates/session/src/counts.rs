//! What a session counts. Adding to a number cannot fail; who shows the numbers reads them when it likes.

/// Totals of one session since its start; those of what is there now say so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Appends acknowledged, without duplicates.
    pub appends: u64,
    /// Payload bytes of those appends.
    pub append_bytes: u64,
    /// Appends answered from a producer's memory, because they had been acknowledged before.
    pub duplicates: u64,
    /// Streams created.
    pub creates: u64,
    /// Streams closed.
    pub closes: u64,
    /// Streams deleted on request.
    pub deletes: u64,
    /// Reads, catch-up and live.
    pub reads: u64,
    /// Payload bytes of their answers.
    pub read_bytes: u64,
    /// Requests refused because a limit was reached (429, 503).
    pub rejected: u64,
    /// Requests refused because of who asked (401, 403).
    pub denied: u64,
    /// Lines of the logs that found no room.
    pub log_lines_lost: u64,
    /// Connections taken.
    pub connections_accepted: u64,
    /// Answers by class of status: `[0]` counts 1xx, `[4]` counts 5xx.
    pub answers: [u64; 5],
    /// Connections open now.
    pub connections: u64,
    /// Long-polls and SSE answers waiting now.
    pub live_readers: u64,
}

impl Counts {
    /// Counts an answer by its status code. A code that no answer has is not counted.
    pub(crate) fn count_answer(&mut self, status: u16) {
        let class = usize::from(status / 100).checked_sub(1);
        if let Some(count) = class.and_then(|class| self.answers.get_mut(class)) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_class() {
        let mut counts = Counts::default();
        [204, 204, 503, 999, 7].into_iter().for_each(|status| counts.count_answer(status));
        assert_eq!(counts.answers, [0, 2, 0, 0, 1]);
    }
}
