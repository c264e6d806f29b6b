//! The one table from problem to status.
//!
//! Names and their meaning are a promise to clients: new ones may be added, none may change.

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// `malformed-request`: The bytes are not a well-formed HTTP/1 request.
    MalformedRequest,
    /// `ambiguous-framing`: Two parsers could cut the request at different places.
    AmbiguousFraming,
    /// `head-too-long`: The request head is longer than the limit, or has too many fields.
    HeadTooLong,
    /// `target-too-long`: The request target is longer than the limit.
    TargetTooLong,
    /// `transfer-coding`: A transfer coding other than chunked.
    TransferCoding,
    /// `http-version`: Neither HTTP/1.0 nor HTTP/1.1.
    HttpVersion,
    /// `connect`: The method is `CONNECT`.
    Connect,
    /// `expectation`: An expectation other than 100-continue.
    Expectation,
    /// `body-too-large`: The body is longer than the limit.
    BodyTooLarge,
    /// `request-timeout`: The head or body did not arrive in time.
    RequestTimeout,
    /// `unknown-route`: No route has this path.
    UnknownRoute,
    /// `reserved-path`: A path under the reserved `__ds` prefix.
    Reserved,
    /// `method-not-allowed`: A stream does not know this method.
    MethodNotAllowed,
    /// `invalid-path`: The stream path cannot be decoded or holds what no path may hold.
    InvalidPath,
    /// `invalid-query`: A query parameter that the protocol defines has a bad value or comes twice.
    InvalidQuery,
    /// `invalid-offset`: An offset that is none of `-1`, `now` and a well-formed token.
    InvalidOffset,
    /// `offset-missing`: A live read without an offset.
    OffsetMissing,
    /// `invalid-header`: A header field that the protocol defines has a bad value or comes twice.
    InvalidHeader,
    /// `precondition-unsupported`: A creation, a deletion or a change with `If-Match`, which only appends are judged by.
    ///
    /// The status is 412 and not 501. Clients of the protocol repeat every 5xx forever. For every other
    /// client, 412 says the truth: the write was not applied (docs/adr/0021).
    PreconditionUnsupported,
    /// `precondition-failed`: The stream is not as `If-Match` says.
    PreconditionFailed,
    /// `record-mismatch`: The next record has another number than `Stream-Record-Match`.
    RecordMismatch,
    /// `empty-change`: A `PATCH` that changes nothing, or two things.
    EmptyChange,
    /// `beyond-tail`: The stream has no such record or byte yet.
    BeyondTail,
    /// `invalid-content-type`: Data without a content type, or with one that is no media type.
    InvalidContentType,
    /// `content-encoding`: The body is compressed.
    ContentEncoding,
    /// `invalid-lifetime`: `Stream-TTL` or `Stream-Expires-At` is malformed, or both are there.
    InvalidLifetime,
    /// `invalid-producer`: Producer fields that are incomplete or malformed.
    InvalidProducer,
    /// `invalid-fork`: Fork fields that are malformed or name a place that the source does not have.
    InvalidFork,
    /// `empty-append`: An append without data that does not close either.
    EmptyAppend,
    /// `invalid-json`: The body of a JSON stream is not one JSON value.
    InvalidJson,
    /// `token-missing`: The request shows no credential and needs one.
    TokenMissing,
    /// `token-invalid`: The credential is not valid.
    TokenInvalid,
    /// `token-expired`: The credential was valid once.
    TokenExpired,
    /// `access-denied`: The credential is valid and does not allow this.
    AccessDenied,
    /// `producer-denied`: The same for a producer. Official producers take every 403 for a newer epoch and repeat the
    /// request without end.
    ProducerDenied,
    /// `foreign-host`: The request names a host that is not this server's, as a page does that was bound to it by DNS.
    ForeignHost,
    /// `foreign-origin`: A web page of another origin wants to change something.
    ForeignOrigin,
    /// `stream-not-found`: No stream has this path.
    NotFound,
    /// `stream-gone`: The stream is deleted and only kept for its forks.
    Gone,
    /// `offset-trimmed`: The offset lies before the first retained byte.
    OffsetTrimmed,
    /// `path-blocked`: The path belongs to a deleted stream that forks still read.
    PathBlocked,
    /// `stream-closed`: The stream is closed.
    Closed,
    /// `content-type-mismatch`: The content type is not the stream's.
    ContentTypeMismatch,
    /// `stream-seq-conflict`: `Stream-Seq` is not greater than the last accepted one. Adapters of
    /// other clients know it by the word `sequence` in its body.
    StreamSeqConflict,
    /// `stale-producer-epoch`: A newer epoch of this producer is known.
    StaleEpoch,
    /// `producer-epoch-start`: A new producer epoch that does not begin at 0.
    EpochStart,
    /// `producer-sequence-gap`: Sequences of this producer are missing in between.
    SeqGap,
    /// `configuration-mismatch`: The stream exists with another configuration.
    ConfigMismatch,
    /// `fork-source-not-found`: The source of a fork does not exist.
    ForkSourceNotFound,
    /// `fork-source-gone`: The source of a fork is deleted.
    ForkSourceGone,
    /// `fork-too-deep`: The chain of forks would be too long.
    ForkDepth,
    /// `stream-damaged`: Bytes of the stream on disk are damaged.
    Damaged,
    /// `overloaded`: A queue is full.
    Overloaded,
    /// `rate-limited`: This client sends too much.
    RateLimited,
    /// `disk-full`: There is no room on disk.
    DiskFull,
    /// `storage-failed`: The shard's disk failed before this request came.
    StorageFailed,
    /// `write-unknown`: The disk failed, or the leader changed, while the write was under way.
    WriteUnknown,
    /// `no-leader`: The stream's group has no leader that could take the request.
    NotLeader,
    /// `shutting-down`: The server takes no new requests.
    ShuttingDown,
    /// `internal`: A defect of the server.
    Internal,
}

/// Whether the write of the request took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Surely not, or the request writes nothing.
    No,
    /// Perhaps; only a retry with producer fields, or a read, can tell.
    Unknown,
}

/// What a code means on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// The stable name.
    pub name: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// One line that is the same for every occurrence.
    pub title: &'static str,
    /// The detail when nothing more is known: what to do.
    pub advice: &'static str,
    /// Whether the write took place.
    pub applied: Applied,
    /// `Retry-After` when the caller knows no better.
    pub retry_after_seconds: Option<u32>,
    /// The connection must be closed after the answer.
    pub closes: bool,
}

const fn row(
    name: &'static str,
    status: u16,
    title: &'static str,
    advice: &'static str,
) -> Meaning {
    let (applied, retry_after_seconds, closes) = (Applied::No, None, false);
    Meaning { name, status, title, advice, applied, retry_after_seconds, closes }
}

impl Meaning {
    const fn unknown(mut self) -> Self {
        self.applied = Applied::Unknown;
        self
    }

    const fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    const fn closing(mut self) -> Self {
        self.closes = true;
        self
    }
}

impl Code {
    /// Every code, in the order of the table.
    pub const ALL: &'static [Self] = &[
        Self::MalformedRequest,
        Self::AmbiguousFraming,
        Self::HeadTooLong,
        Self::TargetTooLong,
        Self::TransferCoding,
        Self::HttpVersion,
        Self::Connect,
        Self::Expectation,
        Self::BodyTooLarge,
        Self::RequestTimeout,
        Self::UnknownRoute,
        Self::Reserved,
        Self::MethodNotAllowed,
        Self::InvalidPath,
        Self::InvalidQuery,
        Self::InvalidOffset,
        Self::OffsetMissing,
        Self::InvalidHeader,
        Self::PreconditionUnsupported,
        Self::PreconditionFailed,
        Self::RecordMismatch,
        Self::EmptyChange,
        Self::BeyondTail,
        Self::InvalidContentType,
        Self::ContentEncoding,
        Self::InvalidLifetime,
        Self::InvalidProducer,
        Self::InvalidFork,
        Self::EmptyAppend,
        Self::InvalidJson,
        Self::TokenMissing,
        Self::TokenInvalid,
        Self::TokenExpired,
        Self::AccessDenied,
        Self::ProducerDenied,
        Self::ForeignHost,
        Self::ForeignOrigin,
        Self::NotFound,
        Self::Gone,
        Self::OffsetTrimmed,
        Self::PathBlocked,
        Self::Closed,
        Self::ContentTypeMismatch,
        Self::StreamSeqConflict,
        Self::StaleEpoch,
        Self::EpochStart,
        Self::SeqGap,
        Self::ConfigMismatch,
        Self::ForkSourceNotFound,
        Self::ForkSourceGone,
        Self::ForkDepth,
        Self::Damaged,
        Self::Overloaded,
        Self::RateLimited,
        Self::DiskFull,
        Self::StorageFailed,
        Self::WriteUnknown,
        Self::NotLeader,
        Self::ShuttingDown,
        Self::Internal,
    ];

    /// The table.
    #[must_use]
    #[rustfmt::skip] // one row per line
    pub const fn meaning(self) -> Meaning {
        match self {
            Code::MalformedRequest => row("malformed-request", 400, "The request is not well-formed HTTP/1.1", "The bytes do not form an HTTP/1.1 request; check the client or the proxy before this server.").closing(),
            Code::AmbiguousFraming => row("ambiguous-framing", 400, "The end of the request body is ambiguous", "Send either one Content-Length of digits or `Transfer-Encoding: chunked`, never both.").closing(),
            Code::HeadTooLong => row("head-too-long", 431, "The request head is too long", "Send fewer or shorter header fields.").closing(),
            Code::TargetTooLong => row("target-too-long", 414, "The request target is too long", "Use a shorter stream path or query.").closing(),
            Code::TransferCoding => row("transfer-coding", 501, "The transfer coding is not supported", "Only `Transfer-Encoding: chunked` is supported, and only on HTTP/1.1.").closing(),
            Code::HttpVersion => row("http-version", 505, "The HTTP version is not supported", "Use HTTP/1.1 on this port.").closing(),
            Code::Connect => row("connect", 501, "CONNECT is not supported", "This server is no proxy; send the request to the target itself.").closing(),
            Code::Expectation => row("expectation", 417, "The expectation cannot be met", "Only `Expect: 100-continue` is understood.").closing(),
            Code::BodyTooLarge => row("body-too-large", 413, "The body is too large", "Split the data over several appends.").closing(),
            Code::RequestTimeout => row("request-timeout", 408, "The request did not arrive in time", "Send the whole request without long pauses.").closing(),
            Code::UnknownRoute => row("unknown-route", 404, "There is nothing at this path", "Streams live under /v1/stream/{path}."),
            Code::Reserved => row("reserved-path", 501, "This path is reserved", "Paths that begin with __ds are reserved for subscriptions, which this server does not offer."),
            Code::MethodNotAllowed => row("method-not-allowed", 405, "The method is not allowed here", "See the Allow field."),
            Code::InvalidPath => row("invalid-path", 400, "The stream path is invalid", "Percent-encode the path as UTF-8, without control characters or `.` and `..` segments."),
            Code::InvalidQuery => row("invalid-query", 400, "A query parameter is invalid", "See the detail."),
            Code::InvalidOffset => row("invalid-offset", 400, "The offset is invalid", "Use -1, now, or a value of Stream-Next-Offset as it came."),
            Code::OffsetMissing => row("offset-missing", 400, "Live reads need an offset", "Add offset=-1, offset=now, or a value of Stream-Next-Offset."),
            Code::InvalidHeader => row("invalid-header", 400, "A header field is invalid", "See the detail."),
            Code::PreconditionUnsupported => row("precondition-unsupported", 412, "Only appends are judged by If-Match", "Nothing was applied; send the request without If-Match."),
            Code::PreconditionFailed => row("precondition-failed", 412, "The stream is not in the state that If-Match names", "Nothing was applied; read on from your offset, or ask with HEAD for the present tag, and decide again."),
            Code::RecordMismatch => row("record-mismatch", 412, "The next record has another number", "Nothing was applied; Stream-Record-Next is its number. Read what came meanwhile and decide again."),
            Code::EmptyChange => row("empty-change", 400, "There is nothing to change", "Send Stream-Retention-Age, -Bytes or -Records, or else Stream-Trim-Before or Stream-Trim-Before-Record."),
            Code::BeyondTail => row("beyond-tail", 416, "The stream does not reach so far", "Stream-Next-Offset is its tail and Stream-Record-Next the record that comes next; add clamp=true to read from there."),
            Code::InvalidContentType => row("invalid-content-type", 400, "The content type is missing or invalid", "Send the Content-Type that the stream was created with."),
            Code::ContentEncoding => row("content-encoding", 415, "The content encoding is not supported", "Send the body as it is, without Content-Encoding."),
            Code::InvalidLifetime => row("invalid-lifetime", 400, "The lifetime is invalid", "Send either Stream-TTL in whole seconds or Stream-Expires-At as an RFC 3339 time."),
            Code::InvalidProducer => row("invalid-producer", 400, "The producer fields are invalid", "Send Producer-Id, Producer-Epoch and Producer-Seq together; numbers are decimal and at most 2^53-1."),
            Code::InvalidFork => row("invalid-fork", 400, "The fork fields are invalid", "Send Stream-Forked-From as /v1/stream/{path}, with an offset of that stream."),
            Code::EmptyAppend => row("empty-append", 400, "There is nothing to append", "Send a body, or `Stream-Closed: true` to close the stream."),
            Code::InvalidJson => row("invalid-json", 400, "The body is not valid JSON", "Send one JSON value, or an array of messages."),
            Code::TokenMissing => row("token-missing", 401, "A token is needed", "Send `Authorization: Bearer TOKEN`."),
            Code::TokenInvalid => row("token-invalid", 401, "The credentials are not valid", "See the detail; send a token of this server, or of an issuer that it knows."),
            Code::TokenExpired => row("token-expired", 401, "The credentials have expired", "Get a new token, or a new signed URL."),
            Code::AccessDenied => row("access-denied", 403, "The credentials do not allow this", "Use a token whose grants name this operation and path."),
            Code::ProducerDenied => row("producer-denied", 401, "The credentials do not allow this producer to append", "Use a token whose grants name this operation and path."),
            Code::ForeignHost => row("foreign-host", 421, "This server is not known by the name in Host", "Use its address or localhost, or name the host in the setting allowed_hosts."),
            Code::ForeignOrigin => row("foreign-origin", 403, "Web pages of this origin may not change streams", "Name the origin in the setting cors_origins if its pages may write and delete here."),
            Code::NotFound => row("stream-not-found", 404, "There is no such stream", "Create it with PUT; a stream with a lifetime may have expired."),
            Code::Gone => row("stream-gone", 410, "The stream is deleted", "Forks still read its bytes, but it is gone for its own clients."),
            Code::OffsetTrimmed => row("offset-trimmed", 410, "The offset is no longer retained", "Read from offset=-1 to begin at the first retained byte."),
            Code::PathBlocked => row("path-blocked", 409, "The path is still in use", "A deleted stream of this path is kept for its forks; use another path."),
            Code::Closed => row("stream-closed", 409, "The stream is closed", "No append can follow; Stream-Next-Offset is the final offset."),
            Code::ContentTypeMismatch => row("content-type-mismatch", 409, "The content type differs from the stream's", "Send the content type that the stream was created with."),
            Code::StreamSeqConflict => row("stream-seq-conflict", 409, "The sequence in Stream-Seq does not increase", "Send a sequence that sorts bytewise after the last accepted one."),
            Code::StaleEpoch => row("stale-producer-epoch", 403, "A newer producer has taken over", "Producer-Epoch is the current epoch; begin a greater one at Producer-Seq 0."),
            Code::EpochStart => row("producer-epoch-start", 400, "A new epoch begins at sequence 0", "Send Producer-Seq: 0 with a new Producer-Epoch."),
            Code::SeqGap => row("producer-sequence-gap", 409, "Producer sequences are missing", "Send the missing appends first, beginning at Producer-Expected-Seq."),
            Code::ConfigMismatch => row("configuration-mismatch", 409, "The stream exists with another configuration", "Repeat the configuration that it was created with, or use another path."),
            Code::ForkSourceNotFound => row("fork-source-not-found", 404, "The source of the fork does not exist", "Stream-Forked-From must name an existing stream of this server."),
            Code::ForkSourceGone => row("fork-source-gone", 409, "The source of the fork is deleted", "A deleted stream takes no new forks."),
            Code::ForkDepth => row("fork-too-deep", 409, "The chain of forks is too long", "Fork from a stream nearer to the origin of the chain."),
            Code::Damaged => row("stream-damaged", 500, "Records of the stream are damaged on disk", "Intact parts stay readable; the operator finds file and range in the log."),
            Code::Overloaded => row("overloaded", 503, "The server is overloaded", "Nothing was applied; repeat the request after the time in Retry-After.").retry_after(1),
            Code::RateLimited => row("rate-limited", 429, "Too many requests", "Nothing was applied; repeat the request after the time in Retry-After.").retry_after(1),
            Code::DiskFull => row("disk-full", 507, "The disk is full", "Nothing was applied; delete streams or add space, then repeat the request.").retry_after(10),
            Code::StorageFailed => row("storage-failed", 503, "The storage of this stream has failed", "Nothing was applied; a person must look at the disk and restart the server.").retry_after(10),
            Code::WriteUnknown => row("write-unknown", 500, "It is not known whether the write was applied", "Repeat it with the same producer fields, or read the stream to find out.").unknown(),
            Code::NotLeader => row("no-leader", 503, "The stream has no leader at the moment", "Nothing was applied; repeat the request.").retry_after(1),
            Code::ShuttingDown => row("shutting-down", 503, "The server is shutting down", "Nothing was applied; repeat the request.").retry_after(2).closing(),
            Code::Internal => row("internal", 500, "The server has a defect", "Repeat a write with the same producer fields; please report this.").unknown().closing(),
        }
    }
}
