//! Durable streams in a program of your own: open, append, read, trim, recover. No server.
//!
//! `cargo run -p thalweg-log --example embedded`

#![expect(clippy::disallowed_methods, reason = "a program of its own chooses its directory")]

use env::{Clock, RealClock, RealDisk};
use model::{ByteOffset, StreamId};
use std::error::Error;
use std::sync::Arc;
use thalweg_log::{EmbeddedLog, LogOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("thalweg-example-{}", std::process::id()));
    let clock = RealClock::new();
    let orders = StreamId::new(1);
    let payments = StreamId::new(2);

    let mut log = EmbeddedLog::open(Arc::new(RealDisk), &dir, LogOptions::default())?;
    // Returned means durable: the bytes survive a power cut from here on.
    let tail = log.append(orders, clock.now_wall(), b"one book\n")?;
    println!("orders end at byte {tail}");
    // One sync for several appends.
    log.append_batch(clock.now_wall(), &[(orders, b"two books\n"), (payments, b"12.50\n")])?;

    let bytes = log.read(orders, ByteOffset::ZERO, 64 << 10)?;
    print!("orders:\n{}", String::from_utf8_lossy(&bytes));

    // The first order has been dealt with.
    log.trim(orders, clock.now_wall(), tail)?;
    log.close()?;

    let log = EmbeddedLog::open(Arc::new(RealDisk), &dir, LogOptions::default())?;
    let bytes = log.read(orders, tail, 64 << 10)?;
    print!("after reopening, from byte {tail}:\n{}", String::from_utf8_lossy(&bytes));
    assert!(log.read(orders, ByteOffset::ZERO, 10).is_err(), "what was trimmed is gone");
    drop(log);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
