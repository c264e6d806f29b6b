//! The least, the median and the greatest of a few values.

use serde::Serialize;

/// How far values lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// None of no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = sorted.first().zip(sorted.last())?;
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { least: *least, median, most: *most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let of = |values| Spread::of(values).map(|s| (s.least, s.median, s.most));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(of(&[2.0, 9.0, 1.0]), Some((1.0, 2.0, 9.0)));
        assert_eq!(of(&[]), None);
    }
}
