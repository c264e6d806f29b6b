//! Frames of HTTP/2, written by hand.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET` or `POST http://localhost/v1/stream/…` in HPACK, without tables.
pub(crate) fn head(method: &str, path: &str) -> Vec<u8> {
    let path = format!("/v1/stream/{path}");
    let method = if method == "GET" { 0x82 } else { 0x83 };
    let mut block = vec![method, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(&[0x01, 9]);
    block.extend_from_slice(b"localhost");
    block
}

/// A whole request without a body.
pub(crate) fn request(stream: u32, method: &str, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head(method, path))
}

/// The frames that are whole in `bytes`: kind, flags, stream, payload.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(head) = bytes.get(..9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let Some(payload) = bytes.get(9..9 + length) else { break };
        frames.push((head[3], head[4], stream, payload.to_vec()));
        bytes = &bytes[9 + length..];
    }
    frames
}
