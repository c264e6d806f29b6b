//! Why a request head is refused.

#[cfg(doc)]
use crate::limits::TARGET_BYTES_MAX;

/// Why a head was refused. The connection cannot be used afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// The bytes are not the beginning of an HTTP/1 request (TLS on a plain port, for example).
    NotHttp,
    /// The client speaks plain HTTP on a port of TLS.
    PlainOnTls,
    /// The client begins with the HTTP/2 connection preface.
    Http2Preface,
    /// The version is neither 1.0 nor 1.1.
    Version,
    /// A request line that does not parse.
    RequestLine,
    /// A field name that is not a token, is followed by a blank, or begins with one (obs-fold).
    FieldName,
    /// A control character in a field value.
    FieldValue,
    /// A line that does not end with CR LF.
    LineEnd,
    /// The head is longer than the limit.
    HeadTooLong {
        /// The limit.
        limit_bytes: usize,
    },
    /// More fields than the limit.
    TooManyFields,
    /// The target is longer than [`TARGET_BYTES_MAX`].
    TargetTooLong,
    /// The target is not a URL or path, or holds raw non-ASCII characters.
    Target,
    /// `CONNECT`: this is no proxy.
    Connect,
    /// HTTP/1.1 without `Host`.
    HostMissing,
    /// More than one `Host`, or one that no URL could hold.
    HostInvalid,
    /// A `Content-Length` that is not digits only, or more than one.
    ContentLength,
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndEncoding,
    /// A `Transfer-Encoding` other than exactly `chunked`, once, on HTTP/1.1.
    TransferEncoding,
    /// The announced body is longer than the limit.
    BodyTooLong {
        /// What `Content-Length` says (`u64::MAX` if it is even more).
        length_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// An `Expect` other than `100-continue`.
    Expect,
}

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::HeaderName => Self::FieldName,
            httparse::Error::HeaderValue => Self::FieldValue,
            httparse::Error::NewLine => Self::LineEnd,
            httparse::Error::TooManyHeaders => Self::TooManyFields,
            httparse::Error::Version => Self::Version,
            httparse::Error::Status | httparse::Error::Token => Self::RequestLine,
        }
    }
}
