//! Requests that two readers could cut at different places, and other malformed ones.
//!
//! Sources: RFC 9112 §§5, 6, 7 and 11.2; the classes of request smuggling that have been published
//! (CL.TE, TE.CL, TE.TE, CL.0, chunk extensions, line ends).

use super::client::request;

/// The text before the fields of a vector.
pub(crate) const POST: &str =
    "POST /v1/stream/victim HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";

/// Name, and what follows [`POST`]. Each must be refused and must end its connection.
pub(crate) const FIELDS: [(&str, &[u8]); 31] = [
    ("length and chunks", b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunks and length", b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
    ("chunks and no length", b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("two lengths", b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"),
    ("the same length twice", b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"),
    ("a list of lengths", b"Content-Length: 4, 4\r\n\r\nabcd"),
    ("a signed length", b"Content-Length: +4\r\n\r\nabcd"),
    ("a negative length", b"Content-Length: -4\r\n\r\nabcd"),
    ("an empty length", b"Content-Length: \r\n\r\n"),
    ("a hexadecimal length", b"Content-Length: 0x4\r\n\r\nabcd"),
    ("a length with a blank", b"Content-Length: 4 4\r\n\r\nabcd"),
    ("a length with a point", b"Content-Length: 4.0\r\n\r\nabcd"),
    ("another coding", b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunks twice", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunks in a list", b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("chunks not last", b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    (
        "identity beside chunks",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("a coding like chunks", b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("a coding with a parameter", b"Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n"),
    ("a quoted coding", b"Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    ("an obscured coding", b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    ("an empty coding", b"Transfer-Encoding: \r\n\r\n0\r\n\r\n"),
    ("a blank before the colon", b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("a tab before the colon", b"Content-Length\t: 4\r\n\r\nabcd"),
    ("a blank before the name", b" Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("a folded line", b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n"),
    ("a folded coding", b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("a NUL", b"X: a\0b\r\nContent-Length: 0\r\n\r\n"),
    ("a bare CR", b"X: a\rb\r\nContent-Length: 0\r\n\r\n"),
    ("a bare LF", b"X: a\nContent-Length: 0\r\n\r\n"),
    ("a second host", b"Host: y\r\nContent-Length: 0\r\n\r\n"),
];

/// Name and body of a chunked request. Each must be refused and must end its connection.
pub(crate) const CHUNKS: [(&str, &[u8]); 18] = [
    ("data that is too long", b"5\r\nabc\r\n0\r\n\r\n"),
    ("data that continues", b"3\r\nabcX\r\n0\r\n\r\n"),
    ("no size", b"\r\nabc\r\n"),
    ("no digit", b"g\r\n"),
    ("a signed size", b"-1\r\n"),
    ("a size with a plus", b"+3\r\nabc\r\n0\r\n\r\n"),
    ("a size with a prefix", b"0x3\r\nabc\r\n0\r\n\r\n"),
    ("a size with an underscore", b"1_0\r\nabc\r\n0\r\n\r\n"),
    ("a blank before the size", b" 3\r\nabc\r\n0\r\n\r\n"),
    ("a blank after the size", b"3 \r\nabc\r\n0\r\n\r\n"),
    ("a size beyond 64 bits", b"ffffffffffffffffff\r\n"),
    ("a size that wraps to 3", b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("the largest size", b"ffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    ("bare LFs", b"3\nabc\n0\n\n"),
    ("a bare LF in an extension", b"3;a\nGET / HTTP/1.1\r\nabc\r\n0\r\n\r\n"),
    ("a bare CR after the size", b"3\rabc\r\n0\r\n\r\n"),
    ("a NUL in an extension", b"3;a=\0\r\nabc\r\n0\r\n\r\n"),
    ("a bare LF among the trailers", b"0\r\nX: a\nY: b\r\n\r\n"),
];

/// All of them as they are sent, with a request behind that must never be answered.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let smuggled = request("DELETE", "/victim", &[], b"");
    let fields = FIELDS.iter().map(|(name, rest)| (*name, [POST.as_bytes(), rest].concat()));
    let chunked = [POST, "Transfer-Encoding: chunked\r\n\r\n"].concat();
    let chunks = CHUNKS.iter().map(|(name, rest)| (*name, [chunked.as_bytes(), rest].concat()));
    let endless = [
        ("an endless extension", [b"3;".as_slice(), &[b'a'; 60_000]].concat()),
        ("an endless size", vec![b'0'; 60_000]),
        ("endless trailers", [b"0\r\n".as_slice(), &b"X: y\r\n".repeat(10_000)].concat()),
    ];
    let endless =
        endless.into_iter().map(|(name, rest)| (name, [chunked.as_bytes(), &rest].concat()));
    let vectors = fields.chain(chunks).chain(endless);
    vectors.map(|(name, bytes)| (name, [bytes.as_slice(), &smuggled].concat())).collect()
}
