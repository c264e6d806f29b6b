//! One request and its answer.

use crate::{Answer, Ready, limits, ready::Knock};
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::Response;
use protocol::http2::CONTINUE;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use std::task::{Context, Poll, Wake, Waker};

/// A stream of a connection. It is reset when it is dropped before its answer has ended.
#[derive(Debug)]
pub struct Stream {
    respond: SendResponse<Bytes>,
    /// There when the head of the answer was sent.
    sender: Option<SendStream<Bytes>>,
    body: RecvStream,
    knock: Option<Arc<Knock>>,
    waker: Waker,
    unsent: Arc<Unsent>,
    /// What it takes without a question.
    held_bytes_left: usize,
    /// The last byte of the answer was given.
    has_ended: bool,
}

/// What a client has sent of a body.
#[derive(Debug)]
pub enum Data {
    /// Some of it. [`Stream::release`] lets the client send as much more.
    Bytes(Bytes),
    /// Nothing now; its key is written down when there is more.
    Nothing,
    /// There is no more.
    End,
    /// The client has reset the stream, or its connection is gone.
    Gone,
}

/// Nobody waits for the answer: the client has reset the stream, or its connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Why the server resets a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It wants no more of it.
    Cancelled,
    /// The answer cannot be completed.
    Failed,
}

/// Bytes of bodies that were given to the library for one connection since its output was taken last.
#[derive(Debug)]
pub(crate) struct Unsent {
    bytes: AtomicUsize,
    /// Bytes of requests' bodies that were read.
    read_bytes: AtomicUsize,
    /// Streams that wait for room.
    waiting: Mutex<Vec<Waker>>,
    /// Has the connection polled: its output is taken then.
    line: Waker,
}

impl Unsent {
    pub(crate) fn new(line: Waker) -> Self {
        Self { bytes: 0.into(), read_bytes: 0.into(), waiting: Mutex::default(), line }
    }

    pub(crate) fn take_read_bytes(&self) -> usize {
        self.read_bytes.swap(0, Relaxed)
    }

    fn left_bytes(&self) -> usize {
        limits::UNSENT_BYTES_MAX.saturating_sub(self.bytes.load(Relaxed))
    }

    /// As many of `wanted` bytes as there is room for. `waker` hears when there is room for more.
    fn room(&self, wanted: usize, waker: &Waker) -> usize {
        let room = self.left_bytes();
        if room < wanted {
            self.waiting().push(waker.clone());
            // The library does not wake it for what its client has no window for.
            self.line.wake_by_ref();
        }
        room.min(wanted)
    }

    /// What the clients of all streams had a window for was written.
    pub(crate) fn clear(&self) {
        self.bytes.store(0, Relaxed);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.iter().for_each(Waker::wake_by_ref);
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    pub(crate) fn new(respond: SendResponse<Bytes>, body: RecvStream, unsent: Arc<Unsent>) -> Self {
        let (knock, waker) = (None, Waker::noop().clone());
        let (sender, held_bytes_left, has_ended) = (None, 0, false);
        Self { respond, sender, body, knock, waker, unsent, held_bytes_left, has_ended }
    }

    /// Gives a stream that was accepted the key that it writes down.
    pub fn name(&mut self, key: u64, ready: &Arc<Ready>) {
        let knock = Knock::new(key, ready);
        self.waker = Waker::from(Arc::clone(&knock));
        self.knock = Some(knock);
    }

    /// Looks whether the client still waits for the answer. Its key is written down when that or its room changes.
    ///
    /// # Errors
    /// [`Gone`] if it does not.
    pub fn look(&mut self) -> Result<(), Gone> {
        if let Some(knock) = &self.knock {
            knock.answer();
        }
        if self.has_ended {
            return Ok(());
        }
        let mut context = Context::from_waker(&self.waker);
        let polled = match &mut self.sender {
            Some(sender) => sender.poll_reset(&mut context),
            None => self.respond.poll_reset(&mut context),
        };
        if polled.is_pending() { Ok(()) } else { Err(Gone) }
    }

    /// Wants to be looked at.
    pub fn knock(&self) {
        if let Some(knock) = &self.knock {
            knock.wake_by_ref();
        }
    }

    /// The next bytes of the request's body.
    pub fn read(&mut self) -> Data {
        let mut context = Context::from_waker(&self.waker);
        match self.body.poll_data(&mut context) {
            Poll::Pending => Data::Nothing,
            Poll::Ready(None) => Data::End,
            Poll::Ready(Some(Ok(bytes))) => {
                self.unsent.read_bytes.fetch_add(bytes.len(), Relaxed);
                Data::Bytes(bytes)
            }
            Poll::Ready(Some(Err(_))) => Data::Gone,
        }
    }

    /// So many bytes of the body were used: the client may send as many more.
    pub fn release(&mut self, bytes: usize) {
        // An error says that the stream is gone, which the next look finds.
        let _ = self.body.flow_control().release_capacity(bytes);
    }

    /// Whether all of the request has come and was read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Asks for the body of a request that waits for that.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits.
    pub fn invite(&mut self) -> Result<(), Gone> {
        let head = Response::builder().status(CONTINUE).body(()).expect("a status");
        self.respond.send_informational(head).map_err(|_| Gone)
    }

    /// Sends the head of the answer; `is_end` if nothing follows.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits.
    pub fn answer(&mut self, answer: Answer, is_end: bool) -> Result<(), Gone> {
        let sender = self.respond.send_response(answer.into_head(), is_end).map_err(|_| Gone)?;
        self.sender = Some(sender);
        self.has_ended = is_end;
        Ok(())
    }

    /// Whether a short piece may be given without asking for [`Self::room`]. The client had room when that was asked last. What it has no
    /// room for by now, the library holds. Asking costs more than sending.
    #[must_use]
    pub fn takes(&self, bytes: usize) -> bool {
        bytes <= self.held_bytes_left && bytes <= self.unsent.left_bytes()
    }

    /// How many of `wanted` bytes may be given now. If not all, its key is written down when there is more room.
    pub fn room(&mut self, wanted: usize) -> usize {
        let Some(sender) = &mut self.sender else { return 0 };
        let is_more = wanted > limits::STREAM_UNSENT_BYTES_MAX;
        let wanted = wanted.min(limits::STREAM_UNSENT_BYTES_MAX);
        // The library wakes the task that waits for a reset, too, when it gives capacity.
        match &self.knock {
            Some(knock) => knock.while_looking(|| sender.reserve_capacity(wanted)),
            None => sender.reserve_capacity(wanted),
        }
        let capacity = sender.capacity().min(wanted);
        let mut context = Context::from_waker(&self.waker);
        if capacity < wanted {
            // It says once that capacity has come, which was just looked at, and then registers the waker.
            while let Poll::Ready(Some(Ok(_))) = sender.poll_capacity(&mut context) {}
            self.held_bytes_left = 0;
        } else {
            self.held_bytes_left = limits::STREAM_HELD_BYTES_MAX;
            if sender.poll_reset(&mut context).is_ready() {
                self.waker.wake_by_ref();
            }
        }
        let room = self.unsent.room(capacity, &self.waker);
        if is_more && room == wanted {
            // When this was given there may be room for the rest.
            self.waker.wake_by_ref();
        }
        room
    }

    /// Gives bytes of the answer's body, no more than there is [`Self::room`] for or than it [takes](Self::takes); `is_end` if they are
    /// the last.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits.
    pub fn send(&mut self, bytes: Bytes, is_end: bool) -> Result<(), Gone> {
        let Some(sender) = &mut self.sender else { return Err(Gone) };
        self.unsent.bytes.fetch_add(bytes.len(), Relaxed);
        self.held_bytes_left = self.held_bytes_left.saturating_sub(bytes.len());
        sender.send_data(bytes, is_end).map_err(|_| Gone)?;
        self.has_ended = is_end;
        Ok(())
    }

    /// Ends the answer, if it has not ended.
    pub fn end(&mut self) {
        if let Some(sender) = self.sender.as_mut().filter(|_| !self.has_ended) {
            // An error says that nobody waits.
            let _ = sender.send_data(Bytes::new(), true);
            self.has_ended = true;
        }
    }

    /// Resets the stream.
    pub fn reset(&mut self, why: Why) {
        let reason = match why {
            Why::Cancelled => Reason::CANCEL,
            Why::Failed => Reason::INTERNAL_ERROR,
        };
        match &mut self.sender {
            Some(sender) if !self.has_ended => sender.send_reset(reason),
            Some(_) => {}
            None => self.respond.send_reset(reason),
        }
    }
}
