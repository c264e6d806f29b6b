//! What is asked of Kafka before and after a measurement, one request at a time.

use super::wire::{Fields, Request, whole};
use super::{TIMEOUT_MS, partition_of, records};
use crate::failure::{Doing, Failure, Outcome};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const FETCH: (i16, i16) = (1, 4);
const CREATE_TOPICS: (i16, i16) = (19, 2);

const TIMEOUT: Duration = Duration::from_secs(120);

/// How long leaders of new partitions are waited for.
const LEADERS_TIMEOUT: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(50);

/// More partitions are not given to one broker: each has files of its own.
const PARTITIONS_MAX: u64 = 4000;

/// Bounds of one answer to a read.
const READ_BYTES_MAX: i32 = 8 << 20;

/// What a read found of one partition.
#[derive(Debug)]
struct Fetched<'a> {
    error: i16,
    /// Where the partition ends, as readers may see it.
    end: i64,
    stored: &'a [u8],
}

/// Makes `topic` with `count` partitions, and waits until all can be written.
pub(crate) fn make_topic(address: SocketAddr, topic: &str, count: u64) -> Outcome<()> {
    let partitions = i32::try_from(count).ok().filter(|_| count <= PARTITIONS_MAX);
    let Some(partitions) = partitions else {
        let what = format!("{count} partitions are too many for one broker of Kafka");
        return Err(Failure::new(format!("{what}: at most {PARTITIONS_MAX} are tried")));
    };
    let start = Instant::now();
    let mut session = Session::open(address)?;
    let mut error = session.create(topic, partitions)?;
    // A broker that listens may still be joining its cluster of one.
    while error != 0 && start.elapsed() < LEADERS_TIMEOUT {
        std::thread::sleep(INTERVAL);
        error = session.create(topic, partitions)?;
    }
    if error != 0 {
        return Err(Failure::new(format!("Kafka made no topic {topic}: its error {error}")));
    }
    while session.unready(topic, partitions)? > 0 {
        if start.elapsed() > LEADERS_TIMEOUT {
            return Err(Failure::new(format!("partitions of {topic} are without a leader")));
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}

/// All values of the partition of `stream`, in order.
pub(crate) fn read_partition(address: SocketAddr, stream: &str) -> Outcome<Vec<u8>> {
    let (topic, partition) = partition_of(stream);
    let mut session = Session::open(address)?;
    let (mut data, mut next) = (Vec::new(), 0);
    loop {
        let answer = session.fetch(topic, &[partition], next)?;
        let fetched = all_fetched(&answer).and_then(|mut all| all.pop());
        let fetched = fetched.ok_or_else(|| Failure::new("Kafka answered a read in part"))?;
        if fetched.error != 0 {
            let error = fetched.error;
            return Err(Failure::new(format!("{stream}: Kafka's error {error} to a read")));
        }
        let before = next;
        next = records::read(fetched.stored, next, &mut data)?;
        if next >= fetched.end || next == before {
            return Ok(data);
        }
    }
}

/// What an answer to a read holds of each partition.
fn all_fetched(answer: &[u8]) -> Option<Vec<Fetched<'_>>> {
    let mut fields = Fields(answer);
    let _correlation = fields.i32()?;
    let _throttled_ms = fields.i32()?;
    let mut all = Vec::new();
    for _ in 0..fields.i32()? {
        fields.text()?;
        for _ in 0..fields.i32()? {
            let _partition = fields.i32()?;
            let error = fields.i16()?;
            let end = fields.i64()?;
            let _stable = fields.i64()?;
            for _ in 0..fields.i32()? {
                let _aborted = (fields.i64()?, fields.i64()?);
            }
            all.push(Fetched { error, end, stored: fields.sized()? });
        }
    }
    Some(all)
}

/// A connection that waits for each answer.
#[derive(Debug)]
struct Session {
    socket: TcpStream,
}

impl Session {
    fn open(address: SocketAddr) -> Outcome<Self> {
        let socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        Ok(Self { socket })
    }

    /// Sends a request and takes its answer, without the length.
    fn ask(&mut self, request: &[u8]) -> Outcome<Vec<u8>> {
        self.socket.write_all(request)?;
        let mut answer = vec![0; 4];
        self.socket.read_exact(&mut answer).doing(|| "an answer of Kafka".to_owned())?;
        let length = Fields(&answer).i32().and_then(|length| usize::try_from(length).ok());
        answer.resize(4 + length.unwrap_or_default(), 0);
        self.socket.read_exact(&mut answer[4..]).doing(|| "an answer of Kafka".to_owned())?;
        let found = whole(&answer)?.map(|(answer, _)| answer.to_vec());
        found.ok_or_else(|| Failure::new("Kafka answered in part"))
    }

    /// Asks for a topic; the error, 0 if it is there now.
    fn create(&mut self, topic: &str, partitions: i32) -> Outcome<i16> {
        let mut out = Vec::new();
        let mut request = Request::start(&mut out, CREATE_TOPICS);
        request.i32(1);
        request.text(topic);
        request.i32(partitions);
        request.i16(1);
        // Neither replicas of our choice nor settings of its own.
        request.i32(0);
        request.i32(0);
        request.i32(TIMEOUT_MS);
        request.i8(0);
        request.end();
        let answer = self.ask(&out)?;
        let mut fields = Fields(&answer);
        let error = fields.bytes(4 + 4 + 4).and_then(|_| fields.text()).and_then(|_| fields.i16());
        error.ok_or_else(|| Failure::new("Kafka answered the making of a topic in part"))
    }

    fn fetch(&mut self, topic: &str, partitions: &[i32], offset: i64) -> Outcome<Vec<u8>> {
        let mut out = Vec::new();
        let mut request = Request::start(&mut out, FETCH);
        request.i32(-1);
        // Nothing is waited for.
        request.i32(0);
        request.i32(0);
        request.i32(READ_BYTES_MAX);
        request.i8(0);
        request.i32(1);
        request.text(topic);
        request.i32(i32::try_from(partitions.len()).unwrap_or(i32::MAX));
        for partition in partitions {
            request.i32(*partition);
            request.i64(offset);
            request.i32(READ_BYTES_MAX);
        }
        request.end();
        self.ask(&out)
    }

    /// How many partitions cannot be used yet.
    fn unready(&mut self, topic: &str, count: i32) -> Outcome<usize> {
        let partitions: Vec<i32> = (0..count).collect();
        let answer = self.fetch(topic, &partitions, 0)?;
        let all = all_fetched(&answer).unwrap_or_default();
        let ready = all.iter().filter(|fetched| fetched.error == 0).count();
        Ok(partitions.len() - ready.min(partitions.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with one partition.
    fn answer(error: i16, aborted: &[i64], stored: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 8];
        out.extend([0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 5]);
        out.extend(error.to_be_bytes());
        out.extend(17_i64.to_be_bytes());
        out.extend(17_i64.to_be_bytes());
        let count = i32::try_from(aborted.len() / 2).unwrap();
        out.extend(count.to_be_bytes());
        aborted.iter().for_each(|number| out.extend(number.to_be_bytes()));
        out.extend(i32::try_from(stored.len()).unwrap().to_be_bytes());
        out.extend(stored);
        out
    }

    #[test]
    fn fetched_records_are_reported_by_partition() {
        for aborted in [&[][..], &[1, 2]] {
            let answer = answer(3, aborted, b"xy");
            let all = all_fetched(&answer).unwrap();
            let Fetched { error, end, stored } = &all[0];
            assert_eq!((all.len(), *error, *end, *stored), (1, 3, 17, b"xy".as_slice()));
            assert!(all_fetched(&answer[..answer.len() - 1]).is_none());
        }
    }

    #[test]
    fn too_many_partitions_are_refused() {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let failure = make_topic(nobody, "a", PARTITIONS_MAX + 1).unwrap_err().to_string();
        assert!(failure.contains("4001 partitions are too many"), "{failure}");
    }
}
