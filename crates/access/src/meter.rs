//! Limits in time: requests, creates and bytes a second, and live readers at a time.
//!
//! # How
//! GCRA, the leaky bucket kept as one number: the time at which all that was taken is paid for. Taking something is one
//! compare-and-swap, and loops of all shards share the numbers without a lock.
//!
//! # Invariants
//! - A [`MeterTable`] never grows. A slot is given to another client when it owes nothing, or when all slots of its set
//!   are in use and it was quiet for longest. Then the older client begins again with its whole limit.
//! - A limit that refuses takes nothing.

use crate::limits::{BURST_NS, METERED_MAX};
use model::Monotonic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What a principal may use, each without a limit if it is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second.
    pub requests_per_s: Option<u64>,
    /// Creates a second.
    pub creates_per_s: Option<u64>,
    /// Bytes of bodies a second.
    pub append_bytes_per_s: Option<u64>,
    /// Live readers at a time.
    pub live_readers: Option<u32>,
}

/// A limit, by its name in the access file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `requests_per_s`
    Requests,
    /// `creates_per_s`
    Creates,
    /// `append_bytes_per_s`
    AppendBytes,
    /// `live_readers`
    LiveReaders,
}

/// What one request uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// It creates a stream.
    pub creates: bool,
    /// Bytes of its body, as far as they are known before it comes.
    pub append_bytes: u64,
    /// It reads live.
    pub is_live: bool,
}

/// A limit is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Which.
    pub limit: Limit,
    /// When a request of the same cost is allowed again, in milliseconds from now.
    pub retry_after_ms: u64,
}

/// Meters of clients that have the same limits.
#[derive(Debug)]
pub struct MeterTable {
    limits: Limits,
    slots: Box<[Slot]>,
}

/// The meter of one client.
#[derive(Debug, Clone)]
pub struct Meter {
    table: Arc<MeterTable>,
    slot: usize,
}

/// A live reader that is counted until this is dropped.
#[derive(Debug)]
pub struct Seat(Meter);

#[derive(Debug, Default)]
struct Slot {
    /// Whose it is; 0 is nobody.
    client: AtomicU64,
    requests_paid_ns: AtomicU64,
    creates_paid_ns: AtomicU64,
    bytes_paid_ns: AtomicU64,
    live_readers: AtomicU32,
}

/// Slots among which the hash of a client leaves a choice.
const WAYS: usize = 8;

const NS_PER_S: u64 = 1_000_000_000;

/// How soon a live reader is asked to try again: nobody knows when another one ends.
const SEAT_RETRY_MS: u64 = 1_000;

impl Limits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Limit {
    /// As the access file names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_s",
            Self::Creates => "creates_per_s",
            Self::AppendBytes => "append_bytes_per_s",
            Self::LiveReaders => "live_readers",
        }
    }
}

impl MeterTable {
    /// The meter of a single client.
    #[must_use]
    pub fn single(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, slots: Box::new([Slot::default()]) })
    }

    /// Meters of as many clients as one table has room for.
    #[must_use]
    pub fn shared(limits: Limits) -> Arc<Self> {
        let slots = (0..METERED_MAX).map(|_| Slot::default()).collect();
        Arc::new(Self { limits, slots })
    }

    /// The limits of each client.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The meter of a client that is known by a hash.
    #[must_use]
    pub fn meter(self: &Arc<Self>, client: u64) -> Meter {
        Meter { slot: self.slot_of(client), table: Arc::clone(self) }
    }

    fn slot_of(&self, client: u64) -> usize {
        if self.slots.len() == 1 {
            return 0;
        }
        let client = client.max(1);
        let sets = self.slots.len() / WAYS;
        let first = (client as usize % sets) * WAYS;
        let set = &self.slots[first..first + WAYS];
        if let Some(way) = set.iter().position(|slot| slot.client.load(Relaxed) == client) {
            return first + way;
        }
        // A slot with a live reader is kept: its count must not pass to another client.
        let quietest = set.iter().enumerate().min_by_key(|(_, slot)| {
            let is_live = slot.live_readers.load(Relaxed) > 0;
            (is_live, slot.last_paid_ns())
        });
        let (way, slot) = quietest.expect("a set has ways");
        if slot.live_readers.load(Relaxed) == 0 {
            slot.take_over(client);
        }
        first + way
    }
}

impl Slot {
    fn last_paid_ns(&self) -> u64 {
        let [one, two, three] =
            [&self.requests_paid_ns, &self.creates_paid_ns, &self.bytes_paid_ns]
                .map(|paid| paid.load(Relaxed));
        one.max(two).max(three)
    }

    fn take_over(&self, client: u64) {
        self.client.store(client, Relaxed);
        for paid in [&self.requests_paid_ns, &self.creates_paid_ns, &self.bytes_paid_ns] {
            paid.store(0, Relaxed);
        }
    }
}

impl Meter {
    fn slot(&self) -> &Slot {
        &self.table.slots[self.slot]
    }

    /// Takes what a request costs, and a seat if it reads live.
    ///
    /// # Errors
    /// [`Exceeded`] names the limit that is used up. Nothing was taken then but what other limits had room for.
    pub fn take(&self, cost: Cost, now: Monotonic) -> Result<Option<Seat>, Exceeded> {
        let limits = &self.table.limits;
        let seat = if cost.is_live { self.take_seat()? } else { None };
        if let Some(rate) = limits.append_bytes_per_s.filter(|_| cost.append_bytes > 0) {
            // One request may overshoot: a body that is longer than a second's share must pass, too.
            take_paid(&self.slot().bytes_paid_ns, price_ns(cost.append_bytes, rate), BURST_NS, now)
                .map_err(|ns| exceeded(Limit::AppendBytes, ns))?;
        }
        if let Some(rate) = limits.creates_per_s.filter(|_| cost.creates) {
            take(&self.slot().creates_paid_ns, rate, now)
                .map_err(|ns| exceeded(Limit::Creates, ns))?;
        }
        if let Some(rate) = limits.requests_per_s {
            take(&self.slot().requests_paid_ns, rate, now)
                .map_err(|ns| exceeded(Limit::Requests, ns))?;
        }
        Ok(seat)
    }

    /// Charges bytes whose number was not known when the request was allowed.
    pub fn charge_bytes(&self, bytes: u64, now: Monotonic) {
        if let Some(rate) = self.table.limits.append_bytes_per_s {
            let _ = take_paid(&self.slot().bytes_paid_ns, price_ns(bytes, rate), u64::MAX, now);
        }
    }

    fn take_seat(&self) -> Result<Option<Seat>, Exceeded> {
        let Some(max) = self.table.limits.live_readers else { return Ok(None) };
        let readers = &self.slot().live_readers;
        let before = readers.fetch_add(1, Relaxed);
        let seat = Seat(self.clone());
        if before < max {
            return Ok(Some(seat));
        }
        Err(Exceeded { limit: Limit::LiveReaders, retry_after_ms: SEAT_RETRY_MS })
    }

    /// A seat beyond the limit, for a reader that has one already under another meter.
    pub(crate) fn keep_seat(&self) -> Option<Seat> {
        self.table.limits.live_readers?;
        self.slot().live_readers.fetch_add(1, Relaxed);
        Some(Seat(self.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.slot().live_readers.fetch_sub(1, Relaxed);
    }
}

fn exceeded(limit: Limit, wait_ns: u64) -> Exceeded {
    Exceeded { limit, retry_after_ms: wait_ns.div_ceil(1_000_000) }
}

/// One unit of so many a second, with a burst of [`BURST_NS`].
fn take(paid_ns: &AtomicU64, rate: u64, now: Monotonic) -> Result<(), u64> {
    let price = price_ns(1, rate);
    take_paid(paid_ns, price, BURST_NS.saturating_sub(price), now)
}

fn price_ns(units: u64, rate_per_s: u64) -> u64 {
    let price = u128::from(units) * u128::from(NS_PER_S) / u128::from(rate_per_s.max(1));
    u64::try_from(price).unwrap_or(u64::MAX)
}

/// Adds `price_ns` if at most `ahead_ns_max` is owed; else says how long to wait.
fn take_paid(
    paid_ns: &AtomicU64,
    price_ns: u64,
    ahead_ns_max: u64,
    now: Monotonic,
) -> Result<(), u64> {
    let now_ns = now.get();
    let update = paid_ns.fetch_update(Relaxed, Relaxed, |paid| {
        let from = paid.max(now_ns);
        (from - now_ns <= ahead_ns_max).then(|| from.saturating_add(price_ns))
    });
    update.map(drop).map_err(|paid| paid - now_ns - ahead_ns_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Cost = Cost { creates: false, append_bytes: 0, is_live: false };

    fn at_ms(ms: u64) -> Monotonic {
        Monotonic::new(1_000_000_000_000).plus_ms(ms)
    }

    fn meter(limits: Limits) -> Meter {
        MeterTable::single(limits).meter(1)
    }

    #[test]
    fn a_rate_is_kept_after_the_first_second() {
        let meter = meter(Limits { requests_per_s: Some(100), ..Limits::default() });
        let taken = |from_ms: u64| {
            (0..10_000).filter(|ms| meter.take(REQUEST, at_ms(from_ms + ms)).is_ok()).count()
        };
        let first = taken(0);
        assert!((1_095..=1_105).contains(&first), "{first}");
        let next = taken(10_000);
        assert!((995..=1_005).contains(&next), "{next}");
    }

    #[test]
    fn the_time_to_wait_is_exact() {
        for rate in [1, 3, 100] {
            let meter = meter(Limits { requests_per_s: Some(rate), ..Limits::default() });
            while meter.take(REQUEST, at_ms(0)).is_ok() {}
            let Exceeded { limit, retry_after_ms } = meter.take(REQUEST, at_ms(0)).unwrap_err();
            assert_eq!(limit, Limit::Requests);
            assert!(meter.take(REQUEST, at_ms(retry_after_ms - 1)).is_err(), "{rate}: too soon");
            assert!(
                meter.take(REQUEST, at_ms(retry_after_ms)).is_ok(),
                "{rate}: {retry_after_ms} ms"
            );
        }
    }

    #[test]
    fn bytes_overshoot_by_one_request() {
        let meter = meter(Limits { append_bytes_per_s: Some(1_000), ..Limits::default() });
        let take = |bytes, ms| meter.take(Cost { append_bytes: bytes, ..REQUEST }, at_ms(ms));
        assert!(take(10_000, 0).is_ok());
        let wait_ms = take(1, 0).unwrap_err().retry_after_ms;
        assert!((9_000..=9_001).contains(&wait_ms), "{wait_ms}");
        assert!(take(1, wait_ms).is_ok());
        meter.charge_bytes(5_000, at_ms(wait_ms));
        assert!(take(1, wait_ms + 4_000).is_err());
    }

    #[test]
    fn seats_come_back() {
        let meter = meter(Limits { live_readers: Some(2), ..Limits::default() });
        let live = Cost { is_live: true, ..REQUEST };
        let one = meter.take(live, at_ms(0)).unwrap();
        let _two = meter.take(live, at_ms(0)).unwrap();
        assert_eq!(meter.take(live, at_ms(0)).unwrap_err().limit, Limit::LiveReaders);
        drop(one);
        assert!(meter.take(live, at_ms(0)).is_ok());
    }

    #[test]
    fn clients_do_not_pay_for_each_other() {
        let table = MeterTable::shared(Limits { requests_per_s: Some(1), ..Limits::default() });
        for client in 1..10_000_u64 {
            let meter = table.meter(client.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert!(meter.take(REQUEST, at_ms(0)).is_ok(), "{client}");
            assert!(meter.take(REQUEST, at_ms(0)).is_err(), "{client}");
        }
    }

    #[test]
    fn a_client_with_a_live_reader_keeps_its_slot() {
        let table = MeterTable::shared(Limits { live_readers: Some(1), ..Limits::default() });
        let live = Cost { is_live: true, ..REQUEST };
        let seat = table.meter(7).take(live, at_ms(0)).unwrap();
        let sets = (METERED_MAX / WAYS) as u64;
        (1..100).for_each(|other| drop(table.meter(7 + other * sets)));
        assert!(table.meter(7).take(live, at_ms(0)).is_err());
        drop(seat);
        assert!(table.meter(7).take(live, at_ms(0)).is_ok());
    }
}
