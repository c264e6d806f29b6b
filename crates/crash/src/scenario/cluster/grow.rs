//! One node full of streams becomes three under a steady load. Its clients notice nothing: each request is answered with 2xx
//! at the first try.
//!
//! # How
//! Each writer appends to streams of its own in turn, at fixed moments. An append is timed from the moment at which it was
//! due, so one that waits for the one before counts as slow. At the end each stream is read whole, a third of them at
//! each node.

use crate::cluster::{Cluster, Home, NODE_COUNT};
use crate::durations::{part, spread};
use crate::http::{offset, request};
use crate::report::{Report, add};
use crate::scenario::fill::{BINARY, call, connect};
use crate::scenario::history::send_range;
use crate::trial::{Options, Outcome, Trial, Verdict, beside, in_threads};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients that append, each over a connection.
const WRITERS: usize = 20;
const APPEND_BYTES: usize = 100;
/// Connections that fill the streams, and that read them.
const FILLERS: usize = 4;
/// The load runs alone for so long, and for so long when all nodes are there.
const CALM: Duration = Duration::from_secs(3);
/// 99 of 100 appends may take so long while the cluster grows.
const P99_MAX: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
struct Shape {
    streams: usize,
    /// Of each stream, before the load.
    bytes: usize,
    /// Between two appends of a writer.
    pause: Duration,
}

/// 1 GB in all, and 2,000 appends a second.
const LONG: Shape = Shape { streams: 100_000, bytes: 10_000, pause: Duration::from_millis(10) };
const SHORT: Shape = Shape { streams: 4_000, bytes: 2_000, pause: Duration::from_millis(40) };

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let shape = if options.is_short { SHORT } else { LONG };
    let dir = options.dir.join("cluster-grow");
    let mut trial = Trial::new(options, report, "cluster-grow", &dir)?;
    let mut cluster = Cluster::of_default_sizes();
    let first = cluster.prepare(&mut trial, Home::below(&dir, 0))?;
    let address = cluster.start(first)?;
    let filled = Instant::now();
    send_range((address, FILLERS), 0..shape.streams, |stream| {
        request("PUT", &path(stream), &[BINARY], &contents(stream, shape.bytes))
    })?;
    println!("[cluster-grow] {} streams made in {:.1?}", shape.streams, filled.elapsed());
    add(&report.acknowledged, shape.streams as u64);
    let others: Vec<usize> = (1..NODE_COUNT)
        .map(|node| cluster.prepare(&mut trial, Home::below(&dir, node)))
        .collect::<Outcome<_>>()?;
    let write_all =
        |stop: &AtomicBool| in_threads(0..WRITERS, |writer| write((address, shape), writer, stop));
    let (grown, written) = beside(write_all, || {
        std::thread::sleep(CALM);
        let began = Instant::now();
        others.into_iter().try_for_each(|node| cluster.start(node).map(drop))?;
        cluster.wait_whole()?;
        let grown = began..Instant::now();
        std::thread::sleep(CALM);
        Ok(grown)
    })?;
    let took = grown.end - grown.start;
    println!("[cluster-grow] three nodes with all of it after {took:.1?}");
    let appends = || written.iter().flat_map(|writer| writer.iter().copied());
    let times = |is_it: &dyn Fn(Instant) -> bool| -> Vec<Duration> {
        appends().filter(|append| is_it(append.due)).map(|append| append.took).collect()
    };
    let mut before = times(&|due| due < grown.start);
    let mut meanwhile = times(&|due| grown.contains(&due));
    println!("[cluster-grow] appends before: {}, {}", before.len(), spread(&mut before));
    println!("[cluster-grow] appends meanwhile: {}, {}", meanwhile.len(), spread(&mut meanwhile));
    add(&report.acknowledged, appends().count() as u64);
    let addresses: Vec<_> = cluster.running().iter().map(|n| cluster.server(*n).address).collect();
    let counts: Vec<usize> = written.iter().map(Vec::len).collect();
    compare_all(&addresses, shape, &counts)?;
    add(&report.cycles, 1);
    trial.clean()?;
    let p99 = part(&mut meanwhile, 990);
    if !options.is_short && p99 > P99_MAX {
        return Err(format!("one of 100 appends took {p99:.1?} or longer while the cluster grew"));
    }
    Ok(Verdict::Done)
}

fn path(stream: usize) -> String {
    format!("/grow/{stream}")
}

/// Bytes that no other stream has.
fn contents(stream: usize, bytes: usize) -> Vec<u8> {
    format!("{stream:08} ").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// An append to a stream that has had so many.
fn append(stream: usize, number: usize) -> Vec<u8> {
    let mut bytes = format!("{stream:08}.{number:08}").into_bytes();
    bytes.resize(APPEND_BYTES, b'.');
    bytes
}

/// An append that was acknowledged at once.
#[derive(Debug, Clone, Copy)]
struct Done {
    due: Instant,
    took: Duration,
}

/// Where a writer's append goes, and how many appends are there before.
const fn place(shape: Shape, writer: usize, number: usize) -> (usize, usize) {
    let own = shape.streams / WRITERS;
    (writer + number % own * WRITERS, number / own)
}

fn write(
    (address, shape): (SocketAddr, Shape),
    writer: usize,
    is_over: &AtomicBool,
) -> Outcome<Vec<Done>> {
    let mut connection = connect(address)?;
    let mut done = Vec::new();
    // Not all of them at the same moment.
    let mut due = Instant::now() + shape.pause * writer as u32 / WRITERS as u32;
    while !is_over.load(Ordering::SeqCst) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (stream, number) = place(shape, writer, done.len());
        let body = append(stream, number);
        let answer = call(&mut connection, &request("POST", &path(stream), &[BINARY], &body))?;
        if !answer.is_success() {
            return Err(format!("an append is answered {}", answer.shown()));
        }
        done.push(Done { due, took: due.elapsed() });
        due += shape.pause;
    }
    Ok(done)
}

/// Reads all streams, each at one of the nodes. `counts` has the appends of each writer.
fn compare_all(addresses: &[SocketAddr], shape: Shape, counts: &[usize]) -> Outcome<()> {
    let read = |reader: usize| -> Outcome<()> {
        let mut connections =
            addresses.iter().map(|address| connect(*address)).collect::<Outcome<Vec<_>>>()?;
        for stream in (reader..shape.streams).step_by(FILLERS) {
            let at = stream / FILLERS % connections.len();
            let expected = expected(shape, stream, counts[stream % WRITERS]);
            let target = format!("{}?offset={}", path(stream), offset(0));
            let answer = call(&mut connections[at], &request("GET", &target, &[], b""))?;
            if answer.status != 200 || answer.body != expected {
                let (status, bytes) = (answer.status, answer.body.len());
                return Err(format!(
                    "stream {stream} at node {}: {status} with {bytes} bytes; {} were written, or others",
                    at + 1,
                    expected.len()
                ));
            }
        }
        Ok(())
    };
    in_threads(0..FILLERS, read).map(drop)
}

/// What a stream holds after so many appends of its writer.
fn expected(shape: Shape, stream: usize, of_writer: usize) -> Vec<u8> {
    let own = shape.streams / WRITERS;
    let before = stream / WRITERS;
    let count = of_writer.saturating_sub(before).div_ceil(own);
    let appends = (0..count).map(|number| append(stream, number));
    [contents(stream, shape.bytes)].into_iter().chain(appends).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_what_the_writers_send() {
        let (writer, sent) = (3, SHORT.streams / WRITERS + 2);
        let mut streams = std::collections::BTreeMap::<usize, Vec<u8>>::new();
        for sent in 0..sent {
            let (stream, number) = place(SHORT, writer, sent);
            let bytes = streams.entry(stream).or_insert_with(|| contents(stream, SHORT.bytes));
            bytes.extend(append(stream, number));
        }
        assert_eq!(streams.len(), SHORT.streams / WRITERS);
        for (stream, bytes) in streams {
            assert_eq!(expected(SHORT, stream, sent), bytes, "stream {stream}");
        }
        let later = (WRITERS * 7) + writer;
        assert_eq!(expected(SHORT, later, 7), contents(later, SHORT.bytes));
    }
}
