//! How long requests took, in words.

use std::time::Duration;

/// So many thousandths are at most as long.
pub(crate) fn part(taken: &mut [Duration], thousandths: usize) -> Duration {
    taken.sort_unstable();
    let last = taken.len().saturating_sub(1);
    taken.get(last * thousandths / 1000).copied().unwrap_or_default()
}

pub(crate) fn spread(taken: &mut [Duration]) -> String {
    let [p50, p99, p999, most] = [500, 990, 999, 1000].map(|of| part(taken, of));
    format!("p50 {p50:.2?}, p99 {p99:.2?}, p99.9 {p999:.2?}, longest {most:.2?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_durations_are_found_in_any_order() {
        let mut taken: Vec<_> = (1..=1001).rev().map(Duration::from_millis).collect();
        assert_eq!(part(&mut taken, 990), Duration::from_millis(991));
        assert_eq!(part(&mut [], 500), Duration::ZERO);
    }
}
