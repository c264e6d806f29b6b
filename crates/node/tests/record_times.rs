//! Times that clients give move what is found by time, and nothing else: an age is of arrivals, and a stream's own times
//! are when it was made and written.

use env::MemoryDisk;
use log::LogOptions;
use model::StreamPath;
use stream::{Append, Change, Keep, Outcome, RecordTime, RetentionChange};
use thalweg_node::Request;
use thalweg_node::testing::{Ask, Process, fork_of, options, path, text};

const YEAR_4000_MS: u64 = 64_060_588_800_000;

fn with(record_time: Option<u64>) -> Append {
    Append { record_time: record_time.map(RecordTime::Given), ..text() }
}

/// Keeps what has arrived in the last minute.
fn keep_a_minute(process: &mut Process, path: &StreamPath) {
    let retention = RetentionChange { age_seconds: Some(Keep::AtLeast(60)), ..Default::default() };
    let request = Request::Change { path: path.clone(), change: Change { retention } };
    assert!(matches!(process.outcome(Ask { request, data: &[] }), Outcome::Changed(_)));
}

#[test]
fn an_age_is_of_arrivals_whatever_times_clients_give() {
    for given in [None, Some(0), Some(YEAR_4000_MS)] {
        let mut process = Process::open(&MemoryDisk::new(), 1);
        let path = path("aged");
        process.create(&path, "text/plain");
        keep_a_minute(&mut process, &path);
        process.append(&path, with(given), b"old ");
        process.wait_ms(40_000);
        process.append(&path, with(given), b"new");
        process.wait_ms(15_000);
        assert_eq!(process.bytes(&path), b"old new", "{given:?}: 55 seconds");
        let now = process.now;
        let mut process = Process::open(&process.kill(), 2);
        process.now = now;
        process.wait_ms(10_000);
        assert_eq!(process.head(&path).1.head.get(), 4, "{given:?}: 65 and 25 seconds");
        process.wait_ms(40_000);
        assert_eq!(process.head(&path).1.head.get(), 7, "{given:?}: 65 seconds of the last");
    }
}

#[test]
fn a_stream_and_its_fork_keep_when_they_were_made_and_written() {
    // From the log, and from checkpoints.
    for checkpoint_bytes in [1 << 30, 1] {
        let options = LogOptions { checkpoint_bytes, ..options() };
        let mut process = Process::open_with(&MemoryDisk::new(), 1, options.clone());
        let (source, fork) = (path("source"), path("fork"));
        let mut times = Vec::new();
        let mut later = |process: &mut Process| {
            process.wait_ms(10_000);
            times.push(process.now.wall);
        };
        later(&mut process);
        process.create(&source, "text/plain");
        later(&mut process);
        process.append(&source, with(Some(YEAR_4000_MS)), b"written");
        later(&mut process);
        process.fork(&fork, fork_of(&source, None, 0));
        later(&mut process);
        process.append(&fork, with(Some(0)), b" and more");
        let [made, written, forked, more] = times[..] else { panic!("four times: {times:?}") };
        for life in 0..2 {
            for (path, expected) in [(&source, (made, written)), (&fork, (forked, more))] {
                let info = process.head(path).1;
                assert_eq!((info.created_at, info.written_at), expected, "{path}, life {life}");
            }
            let now = process.now;
            process = Process::open_with(&process.kill(), 1, options.clone());
            process.now = now;
        }
    }
}
