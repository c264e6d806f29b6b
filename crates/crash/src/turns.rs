//! How long the turns of a server's loops were, as `/metrics` tells it.

use crate::http::admin;
use crate::server::Server;
use crate::trial::Outcome;

/// How many turns of the loops took at most how long, over all shards.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Turns(Vec<(f64, u64)>);

impl Turns {
    /// What `/metrics` says now.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub(crate) fn of(server: &Server) -> Outcome<Self> {
        let (_, text) =
            admin(server.admin, "/metrics").map_err(|error| format!("/metrics: {error}"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut turns: Vec<(f64, u64)> = Vec::new();
        let lines =
            text.lines().filter_map(|line| line.strip_prefix("thalweg_turn_seconds_bucket{"));
        for line in lines {
            let bound = line.split_once("le=\"").and_then(|(_, rest)| rest.split('"').next());
            let seconds = match bound {
                Some("+Inf") => f64::INFINITY,
                bound => bound.and_then(|bound| bound.parse().ok()).unwrap_or(f64::INFINITY),
            };
            let count = line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            match turns.iter_mut().find(|(known, _)| *known == seconds) {
                Some((_, known)) => *known += count,
                None => turns.push((seconds, count)),
            }
        }
        Self(turns)
    }

    /// Turns of each range since then; a range has no turns of the one before.
    #[must_use]
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut below = 0;
        let ranges = self.0.iter().map(|(bound, count)| {
            let then = before.0.iter().find(|(known, _)| known == bound).map_or(0, |(_, of)| *of);
            let within = (count - then).saturating_sub(below);
            below += within;
            (*bound, within)
        });
        Self(ranges.collect())
    }

    #[must_use]
    pub(crate) fn shown(&self) -> String {
        let ranges = self.0.iter().filter(|(_, count)| *count > 0);
        let ranges: Vec<_> =
            ranges.map(|(bound, count)| format!("{count} up to {:.2} ms", bound * 1e3)).collect();
        ranges.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_range_over_all_shards() {
        let line = |le, shard, count| {
            format!("thalweg_turn_seconds_bucket{{le=\"{le}\",shard=\"{shard}\"}} {count}\n")
        };
        let text = |most| {
            let few = [line("0.00005", 0, 3), line("0.0001", 0, 5), line("+Inf", 0, 5)].concat();
            few + &[line("0.00005", 1, 1), line("0.0001", 1, 2), line("+Inf", 1, most)].concat()
        };
        let (before, after) = (Turns::parse(&text(2)), Turns::parse(&text(4)));
        assert_eq!(before.0, [(0.00005, 4), (0.0001, 7), (f64::INFINITY, 7)]);
        assert_eq!(after.since(&before).0, [(0.00005, 0), (0.0001, 0), (f64::INFINITY, 2)]);
        assert_eq!(
            after.since(&Turns::default()).shown(),
            "4 up to 0.05 ms, 3 up to 0.10 ms, 2 up to inf ms"
        );
    }
}
