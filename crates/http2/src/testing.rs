//! A client in memory, driven by hand as the server's side is.
//!
//! It keeps what it was asked until the library takes it, so calls may come in any order. [`Client::poll`] moves everything as far
//! as the bytes that were received allow.

use crate::pipe::Io;
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, client};
use http::Request;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// What a connection takes if its client does not ask for more.
const NARROW_WINDOW_BYTES: u32 = 65_535;

const WIDE_WINDOW_BYTES: u32 = 16 << 20;

type Opened = (client::SendRequest<Bytes>, client::Connection<Io, Bytes>);
type Opening = Pin<Box<dyn Future<Output = Result<Opened, h2::Error>> + Send>>;

/// A client and its exchanges.
pub struct Client {
    io: Io,
    opening: Option<Opening>,
    opened: Option<Opened>,
    /// What has become of each exchange, in the order of [`Client::ask`].
    pub exchanges: Vec<Exchange>,
    /// The connection has ended.
    pub is_over: bool,
}

/// One exchange.
#[derive(Default)]
pub struct Exchange {
    request: Option<Request<()>>,
    body: Bytes,
    answer: Option<client::ResponseFuture>,
    sender: Option<SendStream<Bytes>>,
    receiver: Option<RecvStream>,
    /// Nothing of the answer's body is taken.
    pub is_stalled: bool,
    /// Nothing of the request's body is sent.
    pub is_withholding: bool,
    /// The answer's status.
    pub status: Option<u16>,
    /// The answer's fields.
    pub fields: Vec<(String, String)>,
    /// What has come of the answer's body.
    pub received: Vec<u8>,
    /// The answer has ended.
    pub is_complete: bool,
    /// The server, or the end of the connection, has ended it before.
    pub is_broken: bool,
    /// The server has reset it as what it cannot complete.
    pub is_cut: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("exchanges", &self.exchanges.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Exchange {
    /// The value of a field of the answer.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Bytes of the request's body that are not sent.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.body.len()
    }

    /// What has come of the answer's body, as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

impl Client {
    /// A client whose streams take `window_bytes` each before they must be read. All together take 64 KiB, or 16 MiB if one takes more
    /// than 64 KiB.
    #[must_use]
    pub fn new(window_bytes: u32) -> Self {
        let io = Io::default();
        let mut builder = client::Builder::new();
        builder.initial_window_size(window_bytes).enable_push(false);
        if window_bytes > NARROW_WINDOW_BYTES {
            builder.initial_connection_window_size(WIDE_WINDOW_BYTES);
        }
        builder.initial_max_send_streams(usize::MAX >> 1);
        let for_library = io.clone();
        let opening = async move { builder.handshake::<Io, Bytes>(for_library).await };
        Self {
            io,
            opening: Some(Box::pin(opening)),
            opened: None,
            exchanges: Vec::new(),
            is_over: false,
        }
    }

    /// Asks for something; the place of its exchange.
    ///
    /// # Panics
    /// If that is no request.
    pub fn ask(
        &mut self,
        method: &str,
        url: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> usize {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = Some(request.body(()).expect("a request"));
        self.exchanges.push(Exchange { request, body: body.into(), ..Exchange::default() });
        self.exchanges.len() - 1
    }

    /// Gives an exchange up.
    pub fn reset(&mut self, place: usize) {
        let exchange = &mut self.exchanges[place];
        if let Some(sender) = &mut exchange.sender {
            sender.send_reset(Reason::CANCEL);
        }
        exchange.is_broken = true;
        (exchange.answer, exchange.receiver, exchange.sender) = (None, None, None);
    }

    /// Takes bytes of the server.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.io.pipe().input.extend_from_slice(bytes);
    }

    /// The server sends no more.
    pub fn end_input(&mut self) {
        self.io.pipe().has_ended = true;
    }

    /// What the server is to get.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.io.pipe().take_output()
    }

    /// Moves everything as far as possible.
    pub fn poll(&mut self) {
        self.io.pipe().allowed_bytes = usize::MAX;
        let mut context = Context::from_waker(Waker::noop());
        if let Some(opening) = &mut self.opening {
            match opening.as_mut().poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(opened) => {
                    self.opening = None;
                    self.opened = opened.ok();
                }
            }
        }
        let Some((requests, connection)) = &mut self.opened else {
            self.is_over = true;
            return;
        };
        for _ in 0..2 {
            if Pin::new(&mut *connection).poll(&mut context).is_ready() {
                self.is_over = true;
            }
            for exchange in &mut self.exchanges {
                exchange.poll(requests, &mut context);
            }
        }
        // What was taken just now gives windows back.
        self.is_over |= Pin::new(&mut *connection).poll(&mut context).is_ready();
        if self.is_over {
            self.exchanges.iter_mut().for_each(Exchange::lose);
        }
    }
}

impl Exchange {
    fn lose(&mut self) {
        self.is_broken |= !self.is_complete;
    }

    fn fail(&mut self, error: &h2::Error) {
        self.is_cut = error.is_remote() && error.reason() == Some(Reason::INTERNAL_ERROR);
        self.lose();
    }

    fn poll(&mut self, requests: &mut client::SendRequest<Bytes>, context: &mut Context<'_>) {
        if self.is_broken {
            return;
        }
        self.begin(requests, context);
        // As many clients do, even if the answer is there.
        self.send(context);
        if self.is_complete {
            return;
        }
        self.take_answer(context);
        self.take_body(context);
    }

    fn begin(&mut self, requests: &mut client::SendRequest<Bytes>, context: &mut Context<'_>) {
        let Some(request) = self.request.take() else { return };
        match requests.poll_ready(context) {
            Poll::Pending => self.request = Some(request),
            Poll::Ready(Err(_)) => self.lose(),
            Poll::Ready(Ok(())) => match requests.send_request(request, self.body.is_empty()) {
                Err(_) => self.lose(),
                Ok((answer, sender)) => {
                    (self.answer, self.sender) = (Some(answer), Some(sender));
                }
            },
        }
    }

    fn send(&mut self, context: &mut Context<'_>) {
        let Some(sender) = self.sender.as_mut().filter(|_| !self.is_withholding) else { return };
        while !self.body.is_empty() {
            sender.reserve_capacity(self.body.len());
            let room = sender.capacity().min(self.body.len());
            if room == 0 {
                while let Poll::Ready(Some(Ok(_))) = sender.poll_capacity(context) {}
                return;
            }
            let bytes = self.body.split_to(room);
            if sender.send_data(bytes, self.body.is_empty()).is_err() {
                // The answer says why.
                self.body.clear();
            }
        }
    }

    fn take_answer(&mut self, context: &mut Context<'_>) {
        let Some(answer) = &mut self.answer else { return };
        match Pin::new(answer).poll(context) {
            Poll::Pending => {}
            Poll::Ready(Err(error)) => self.fail(&error),
            Poll::Ready(Ok(answer)) => {
                self.answer = None;
                let (parts, receiver) = answer.into_parts();
                self.status = Some(parts.status.as_u16());
                let text = |value: &http::HeaderValue| {
                    String::from_utf8_lossy(value.as_bytes()).into_owned()
                };
                let of = |(name, value): (&http::HeaderName, _)| (name.to_string(), text(value));
                self.fields = parts.headers.iter().map(of).collect();
                self.receiver = Some(receiver);
            }
        }
    }

    fn take_body(&mut self, context: &mut Context<'_>) {
        let Some(receiver) = self.receiver.as_mut().filter(|_| !self.is_stalled) else { return };
        loop {
            match receiver.poll_data(context) {
                Poll::Pending => return,
                Poll::Ready(None) => {
                    self.is_complete = true;
                    return;
                }
                Poll::Ready(Some(Err(error))) => return self.fail(&error),
                Poll::Ready(Some(Ok(bytes))) => {
                    self.received.extend_from_slice(&bytes);
                    let _ = receiver.flow_control().release_capacity(bytes.len());
                }
            }
        }
    }
}
