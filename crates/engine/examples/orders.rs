//! The log in your own process: appends, a batch, a durable cursor, a trim, reopening.
//!
//! `cargo run -p thalweg-engine --example orders`

use std::error::Error;
use thalweg_engine::{Engine, Options, ReadLimits};

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let engine = Engine::open(scratch.path(), Options::default())?;
    // Returned means durable: the entry survives a power cut from here on.
    let id = engine.append("orders", b"one book")?;
    println!("the first order is entry {id}");
    // All of a batch or none of it, with one sync.
    engine.append_batch("orders", &[b"two books", b"a lamp"])?;

    // A reader that remembers durably how far it has come.
    let from = engine.cursor("billing", "orders");
    let orders = engine.read("orders", from, ReadLimits::default())?;
    for (id, order) in orders.iter() {
        println!("{id}: {}", String::from_utf8_lossy(order));
    }
    engine.commit_cursor("billing", "orders", orders.next_id())?;

    // The first order has been dealt with.
    engine.trim("orders", 1)?;
    engine.close()?;

    let engine = Engine::open(scratch.path(), Options::default())?;
    println!("after reopening, billing goes on at {}", engine.cursor("billing", "orders"));
    assert!(engine.read("orders", 0, ReadLimits::default()).is_err(), "it was trimmed");
    Ok(())
}
