//! Bodies in chunks mean the same however they are cut.

use crate::input::Input;
use protocol::http1::{ChunkError, ChunkedDecoder, LAST_CHUNK, put_chunk};

/// Everything that decoding came to.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    body: Vec<u8>,
    consumed: usize,
    end: Result<bool, ChunkError>,
}

/// Input: body limit (2), size of pieces (1), the encoded body.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let limit_bytes = u64::from(input.short());
    let step = 1 + usize::from(input.byte());
    let bytes = input.rest();
    let whole = decode(bytes, limit_bytes, bytes.len().max(1));
    assert!(whole.body.len() as u64 <= limit_bytes, "a body keeps its limit");
    for step in [1, step] {
        let cut = decode(bytes, limit_bytes, step);
        assert_eq!((&whole.body, whole.end), (&cut.body, cut.end), "in pieces of {step}");
        if whole.end.is_ok() {
            assert_eq!(whole.consumed, cut.consumed, "in pieces of {step}");
        }
    }
    round_trip(bytes, step);
}

fn decode(bytes: &[u8], limit_bytes: u64, step: usize) -> Decoded {
    let mut decoder = ChunkedDecoder::new(limit_bytes);
    let mut decoded = Decoded { body: Vec::new(), consumed: 0, end: Ok(false) };
    for piece in bytes.chunks(step) {
        match decoder.decode(piece, &mut decoded.body) {
            Ok(done) => {
                decoded.consumed += done.consumed;
                decoded.end = Ok(done.done);
                if done.done {
                    break;
                }
                assert_eq!(done.consumed, piece.len(), "all of an unfinished body is taken");
            }
            Err(error) => {
                decoded.end = Err(error);
                break;
            }
        }
    }
    decoded
}

fn round_trip(body: &[u8], step: usize) {
    let mut encoded = Vec::new();
    body.chunks(step).for_each(|chunk| put_chunk(&mut encoded, chunk));
    encoded.extend_from_slice(LAST_CHUNK);
    let consumed = encoded.len();
    encoded.extend_from_slice(b"next");
    let back = decode(&encoded, u64::MAX, encoded.len());
    assert_eq!(back, Decoded { body: body.to_vec(), consumed, end: Ok(true) });
}

/// Bodies with extensions and trailers, and some that are refused.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let bodies: &[&[u8]] = &[
        b"4\r\nbody\r\n0\r\n\r\nGET",
        b"1;name=value\r\na\r\n00A \r\n",
        b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"10000000000000000\r\n",
        b"0\r\n\n",
        b"2\r\nab0\r\n\r\n",
    ];
    bodies.iter().map(|bytes| [&[0xff, 0x0f, 2], *bytes].concat()).collect()
}
