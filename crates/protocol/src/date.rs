//! The `Date` field, rendered once per second by the owner of the clock.

use http::HeaderValue;
use model::Timestamp;
use time::OffsetDateTime;

/// A time as HTTP writes it, `Sun, 06 Nov 1994 08:49:37 GMT`. Source: RFC 9110 §5.6.7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpDate(HeaderValue);

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl HttpDate {
    /// Renders `now`; a time after the year 9999 shows as its last second.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let date = utc(now);
        let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
        let day = usize::from(date.weekday().number_days_from_monday());
        text[..3].copy_from_slice(DAYS[day].as_bytes());
        let month = usize::from(u8::from(date.month()));
        text[8..11].copy_from_slice(MONTHS[month - 1].as_bytes());
        two(&mut text[5..7], date.day());
        let year = u16::try_from(date.year()).expect("the year lies between 1970 and 9999");
        two(&mut text[12..14], (year / 100) as u8);
        two(&mut text[14..16], (year % 100) as u8);
        two(&mut text[17..19], date.hour());
        two(&mut text[20..22], date.minute());
        two(&mut text[23..25], date.second());
        Self(HeaderValue::from_bytes(&text).expect("a date is plain"))
    }

    /// The second of `at` as RFC 3339 writes it, without a zone: `2026-11-25T09:50:12`.
    pub(crate) fn rfc3339_second(at: Timestamp) -> String {
        let date = utc(at);
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let (hour, minute, second) = date.to_hms();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The text as a value of a field, without a copy.
    #[must_use]
    pub fn value(&self) -> HeaderValue {
        self.0.clone()
    }
}

fn two(place: &mut [u8], value: u8) {
    place[0] = b'0' + value / 10;
    place[1] = b'0' + value % 10;
}

/// The last millisecond of the year 9999.
const CALENDAR_MS_MAX: u64 = 253_402_300_799_999;

/// The calendar form of `at`, at most the end of the year 9999.
pub(crate) fn utc(at: Timestamp) -> OffsetDateTime {
    let ms = at.get().min(CALENDAR_MS_MAX);
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .expect("the year is at most 9999")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_comes_out() {
        let date = HttpDate::new(Timestamp::new(784_111_777_000));
        assert_eq!(date.as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn times_beyond_the_calendar_show_its_end() {
        assert_eq!(
            HttpDate::new(Timestamp::new(u64::MAX)).as_bytes(),
            b"Fri, 31 Dec 9999 23:59:59 GMT"
        );
    }
}
