//! How long something lasts, as people write it: `90d`, `12h`, `30m`, `45s`.

use model::Timestamp;
use std::str::FromStr;

/// A time span of at least a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifeSpan {
    seconds: u64,
}

/// Longest span: a hundred years.
const SECONDS_MAX: u64 = 100 * 366 * 86_400;

impl FromStr for LifeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
        let found =
            units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
        let seconds = found.and_then(|(count, unit)| count.parse::<u64>().ok()?.checked_mul(unit));
        let seconds = seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
        let seconds = seconds.ok_or("write it as 90d, 12h, 30m or 45s, up to a hundred years")?;
        Ok(Self { seconds })
    }
}

impl LifeSpan {
    /// When something ends that begins now, in seconds of Unix time.
    #[must_use]
    pub fn end_s(self, now: Timestamp) -> u64 {
        now.get() / 1000 + self.seconds
    }

    /// The same as the access file writes it.
    pub(super) fn after(self, now: Timestamp) -> String {
        let end = i64::try_from(self.end_s(now)).unwrap_or(i64::MAX);
        let end =
            time::OffsetDateTime::from_unix_timestamp(end).expect("a time within two centuries");
        end.format(&time::format_description::well_known::Rfc3339).expect("a year of four digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        let seconds = |text: &str| text.parse::<LifeSpan>().map(|span| span.seconds).ok();
        assert_eq!(
            [seconds("90d"), seconds("12h"), seconds("30m"), seconds("1s")],
            [Some(7_776_000), Some(43_200), Some(1_800), Some(1)]
        );
        for text in ["", "d", "0s", "-1d", "1.5h", "10", "1w", "99999999d", "18446744073709551615d"]
        {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn an_end_is_a_time_of_the_access_file() {
        let span: LifeSpan = "1d".parse().unwrap();
        assert_eq!(span.after(Timestamp::new(1_800_000_000_123)), "2027-01-16T08:00:00Z");
    }
}
