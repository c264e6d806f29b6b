//! The calls.

use crate::connection::Connection;
use crate::follow::Follow;
use crate::{ClientError, IDLE_CONNECTIONS_MAX, Producer, ReadFrom};
use model::ByteOffset;
use protocol::client::{self, AnswerHead, Target};
use protocol::request::Live;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

/// How long calls may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A connection may take this long to open.
    pub connect: Duration,
    /// A whole call may take this long, the wait of a long-poll included.
    pub call: Duration,
    /// An event stream may be silent this long; servers send comments in between.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(60),
            silence: Duration::from_secs(60),
        }
    }
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    host: String,
    timeouts: Timeouts,
    idle: Mutex<Vec<Connection>>,
}

/// Bytes of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The bytes, in the form of the stream's media type.
    pub data: Vec<u8>,
    /// Where to read on.
    pub next: ByteOffset,
    /// Nothing followed at that moment.
    pub up_to_date: bool,
    /// Nothing will ever follow.
    pub closed: bool,
    /// To be given to the next live read.
    pub cursor: Option<u64>,
}

/// The answer to a HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The offset after the last byte.
    pub tail: ByteOffset,
    /// Nothing will ever follow.
    pub closed: bool,
    /// The media type.
    pub media_type: Option<Box<str>>,
}

impl Client {
    /// A client of the server at `address`.
    #[must_use]
    pub fn new(address: SocketAddr, timeouts: Timeouts) -> Self {
        Self { address, host: address.to_string(), timeouts, idle: Mutex::default() }
    }

    /// Creates a stream; one that exists with the same settings counts as created.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn create(&self, path: &str, media_type: &str) -> Result<(), ClientError> {
        let mut request = Vec::new();
        client::put_create(&mut request, self.target(path), media_type, b"");
        self.call(request, false).await.map(drop)
    }

    /// Appends `body`; with `producer` a repeated call stores it once. Returns the new tail.
    ///
    /// # Errors
    /// [`ClientError`]; whether the bytes were stored is unknown if the connection failed.
    pub async fn append(
        &self,
        path: &str,
        media_type: &str,
        producer: Option<&Producer>,
        body: &[u8],
    ) -> Result<ByteOffset, ClientError> {
        let mut request = Vec::with_capacity(body.len() + 256);
        client::put_append(&mut request, self.target(path), media_type, producer, body);
        let (head, _) = self.call(request, false).await?;
        next(&head)
    }

    /// Closes a stream: nothing can be appended any more.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn close(&self, path: &str) -> Result<(), ClientError> {
        let mut request = Vec::new();
        client::put_close(&mut request, self.target(path));
        self.call(request, false).await.map(drop)
    }

    /// Deletes a stream.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        let mut request = Vec::new();
        client::put_delete(&mut request, self.target(path));
        self.call(request, false).await.map(drop)
    }

    /// What a stream's state is.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn head(&self, path: &str) -> Result<StreamState, ClientError> {
        let mut request = Vec::new();
        client::put_head(&mut request, self.target(path));
        let (head, _) = self.call(request, true).await?;
        Ok(StreamState { tail: next(&head)?, closed: head.closed, media_type: head.media_type })
    }

    /// Reads one page; [`Page::up_to_date`] says whether another one is worth asking for.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn read(&self, path: &str, from: ReadFrom) -> Result<Page, ClientError> {
        self.page(path, from, Live::CatchUp, None).await
    }

    /// Waits for the next append; an empty page says that none came in the server's time.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn long_poll(
        &self,
        path: &str,
        from: ReadFrom,
        cursor: Option<u64>,
    ) -> Result<Page, ClientError> {
        self.page(path, from, Live::LongPoll, cursor).await
    }

    /// Reads all that is there now.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn read_all(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        let mut page = self.read(path, ReadFrom::Begin).await?;
        let mut data = std::mem::take(&mut page.data);
        while !page.up_to_date && !page.closed {
            page = self.read(path, ReadFrom::At(page.next)).await?;
            data.append(&mut page.data);
        }
        Ok(data)
    }

    /// Follows a stream by server-sent events, on a connection of its own.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn follow(&self, path: &str, from: ReadFrom) -> Result<Follow, ClientError> {
        let mut request = Vec::new();
        client::put_read(&mut request, self.target(path), from, Live::Sse, None);
        let mut connection = self.connect().await?;
        let head = self.in_time(async {
            connection.send(&request).await?;
            connection.head(false).await
        });
        let head = head.await?;
        if !head.is_success() {
            let body = self.in_time(connection.body(&head)).await?;
            return Err(refused(&head, &body));
        }
        Ok(Follow::new(connection, &head, self.timeouts.silence))
    }

    async fn page(
        &self,
        path: &str,
        from: ReadFrom,
        live: Live,
        cursor: Option<u64>,
    ) -> Result<Page, ClientError> {
        let mut request = Vec::new();
        client::put_read(&mut request, self.target(path), from, live, cursor);
        let (head, data) = self.call(request, false).await?;
        let AnswerHead { up_to_date, closed, cursor, .. } = head;
        Ok(Page { data, next: next(&head)?, up_to_date, closed, cursor })
    }

    fn target<'a>(&'a self, path: &'a str) -> Target<'a> {
        Target { host: &self.host, path }
    }

    async fn call(
        &self,
        request: Vec<u8>,
        is_head: bool,
    ) -> Result<(AnswerHead, Vec<u8>), ClientError> {
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let exchange = async {
            connection.send(&request).await?;
            let head = connection.head(is_head).await?;
            let body = connection.body(&head).await?;
            Ok((head, body))
        };
        let (head, body) = self.in_time(exchange).await?;
        if head.keep_alive {
            self.keep(connection);
        }
        if head.is_success() { Ok((head, body)) } else { Err(refused(&head, &body)) }
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        limited(self.timeouts.connect, async { Ok(Connection::open(self.address).await?) }).await
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        limited(self.timeouts.call, call).await
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle.lock().expect("nobody panics with the lock").pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().expect("nobody panics with the lock");
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connection);
        }
    }
}

/// `call`, or an error when `limit` has passed.
pub(crate) async fn limited<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let in_time = tokio::time::timeout(limit, call).await;
    in_time.unwrap_or(Err(ClientError::TimedOut { limit_ms }))
}

fn next(head: &AnswerHead) -> Result<ByteOffset, ClientError> {
    head.next.ok_or(ClientError::Incomplete { missing: "next offset" })
}

fn refused(head: &AnswerHead, body: &[u8]) -> ClientError {
    ClientError::Refused {
        status: head.status,
        explanation: String::from_utf8_lossy(body).into(),
        retry_after_seconds: head.retry_after_seconds,
    }
}
