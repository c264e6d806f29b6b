//! The limits: one line each, `workload count value tolerance%`.

use super::measure::Counted;
use std::fmt;

const HEADER: &str = "\
# What one operation may cost: workload, count, value, tolerance in percent.
# Written by `cargo xtask counts --write`, checked by `cargo xtask counts`; docs/measuring.md explains
# the counts. Tolerances may be changed here and are kept.
";

/// All limits.
#[derive(Debug, Default)]
pub(super) struct Limits(Vec<Limit>);

/// What one count may be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    workload: String,
    what: String,
    value: f64,
    tolerance_percent: f64,
}

/// How a count compares with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// More than the tolerance allows, or without a limit.
    Over,
    /// As it was.
    Within,
    /// Less, by more than the tolerance.
    Under,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Over => "OVER",
            Self::Within => "ok",
            Self::Under => "fallen",
        })
    }
}

impl Limit {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [workload, what, value, tolerance] = words[..] else { return None };
        Some(Self {
            workload: workload.to_owned(),
            what: what.to_owned(),
            value: value.parse().ok()?,
            tolerance_percent: tolerance.strip_suffix('%')?.parse().ok()?,
        })
    }

    pub(super) fn judge(&self, value: f64) -> Verdict {
        // Half a unit of the last digit that is kept.
        let rounding = if digits(self.value) == 0 { 0.5 } else { 0.005 };
        let allowed = self.value * self.tolerance_percent / 100.0 + rounding;
        if value > self.value + allowed {
            Verdict::Over
        } else if value < self.value - allowed {
            Verdict::Under
        } else {
            Verdict::Within
        }
    }

    pub(super) fn shown(&self) -> String {
        shown(self.value)
    }
}

impl Limits {
    /// Reads the file.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let parse = |(number, line): (usize, &str)| {
            Limit::parse(line).ok_or_else(|| format!("line {number} of the limits is none: {line}"))
        };
        lines.map(parse).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn of(&self, workload: &str, what: &str) -> Option<&Limit> {
        self.0.iter().find(|limit| limit.workload == workload && limit.what == what)
    }

    /// How many limits nothing was counted for.
    pub(super) fn missing_in(&self, counted: &[Counted]) -> usize {
        let has = |limit: &&Limit| {
            counted.iter().any(|count| count.workload == limit.workload && count.what == limit.what)
        };
        self.0.len() - self.0.iter().filter(has).count()
    }

    /// The same with what was counted; limits of what was not counted are kept.
    pub(super) fn updated(mut self, counted: &[Counted]) -> Self {
        for count in counted {
            let same =
                |limit: &&mut Limit| limit.workload == count.workload && limit.what == count.what;
            match self.0.iter_mut().find(same) {
                Some(limit) => limit.value = count.value,
                None => self.0.push(Limit {
                    workload: count.workload.to_owned(),
                    what: count.what.to_owned(),
                    value: count.value,
                    tolerance_percent: count.tolerance_percent,
                }),
            }
        }
        self
    }

    pub(super) fn render(&self) -> String {
        let line = |limit: &Limit| {
            let Limit { workload, what, value, tolerance_percent } = limit;
            format!("{workload:14} {what:15} {:>10} {tolerance_percent}%\n", shown(*value))
        };
        HEADER.to_owned() + &self.0.iter().map(line).collect::<String>()
    }
}

/// Large numbers whole, small ones with two digits behind the point.
pub(super) fn shown(value: f64) -> String {
    format!("{value:.*}", digits(value))
}

const fn digits(value: f64) -> usize {
    if value < 10_000.0 { 2 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: f64) -> Counted {
        Counted { workload: "append-32", what: "allocations", value, tolerance_percent: 1.0 }
    }

    #[test]
    fn a_count_is_over_its_limit_within_it_or_has_fallen() {
        let limit = Limit::parse("append-32 instructions 10000 3%").unwrap();
        assert_eq!(limit.judge(10_302.0), Verdict::Over);
        assert_eq!(limit.judge(10_299.0), Verdict::Within);
        assert_eq!(limit.judge(9_701.0), Verdict::Within);
        assert_eq!(limit.judge(9_698.0), Verdict::Under);
    }

    #[test]
    fn a_limit_without_tolerance_forgives_its_own_rounding_only() {
        let limit = Limit::parse("read allocations 2.34 0%").unwrap();
        assert_eq!(limit.judge(2.344), Verdict::Within);
        assert_eq!(limit.judge(2.35), Verdict::Over);
    }

    #[test]
    fn new_counts_replace_values_and_keep_tolerances() {
        let text = "# words\n\nappend-32 allocations 3 5%\nread instructions 9000 3%\n";
        let limits = Limits::parse(text).unwrap().updated(&[count(2.0)]);
        assert_eq!(limits.missing_in(&[count(2.0)]), 1);
        let again = Limits::parse(&limits.render()).unwrap();
        let limit = Limit::parse("append-32 allocations 2.00 5%");
        assert_eq!(again.of("append-32", "allocations"), limit.as_ref());
        assert_eq!(again.of("read", "instructions"), limits.of("read", "instructions"));
    }

    #[test]
    fn a_line_that_is_no_limit_is_named() {
        assert!(Limits::parse("\nread instructions many 3%").unwrap_err().starts_with("line 2"));
    }
}
