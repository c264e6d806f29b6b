//! What the library takes for a socket: two buffers.

use crate::limits::OUTPUT_BYTES_MAX;
use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// What has come and was not read.
    pub input: BytesMut,
    /// How much of it may be read until the next poll.
    pub allowed_bytes: usize,
    /// The client sends no more.
    pub has_ended: bool,
    pub output: Vec<u8>,
    /// The library had more to write.
    pub is_full: bool,
}

/// The library's end of a pipe.
#[derive(Debug, Default, Clone)]
pub(crate) struct Io(Arc<Mutex<Pipe>>);

impl Io {
    /// The pipe. One thread has both ends.
    pub(crate) fn pipe(&self) -> MutexGuard<'_, Pipe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipe {
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.is_full = false;
        std::mem::take(&mut self.output)
    }

    /// How much may be written now.
    fn room(&mut self) -> usize {
        let room = OUTPUT_BYTES_MAX.saturating_sub(self.output.len());
        self.is_full |= room == 0;
        room
    }
}

impl AsyncRead for Io {
    /// Nobody has to be woken: a poll follows on the bytes.
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.pipe();
        let count = pipe.input.len().min(pipe.allowed_bytes).min(buffer.remaining());
        if count == 0 {
            let is_over = pipe.has_ended && pipe.input.is_empty();
            return if is_over { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        buffer.put_slice(&pipe.input[..count]);
        pipe.input.advance(count);
        pipe.allowed_bytes -= count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    /// Pieces do not come together: the library would give each short one by itself then, and copies many of them into one now.
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.pipe();
        let count = bytes.len().min(pipe.room());
        if count == 0 {
            return Poll::Pending;
        }
        pipe.output.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
