//! One connection: requests out, answers in.

use crate::{BODY_BYTES_MAX, ClientError};
use protocol::client::{AnswerBody, AnswerError, AnswerHead, parse_answer};
use protocol::http1::ChunkedDecoder;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for one read from the socket.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    /// Received and not used yet.
    input: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, input: Vec::new() })
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.socket.write_all(request).await
    }

    /// The head of the next answer; interim ones are passed over.
    pub(crate) async fn head(&mut self, is_head: bool) -> Result<AnswerHead, ClientError> {
        loop {
            match parse_answer(&self.input, is_head)? {
                Some(head) => {
                    self.input.drain(..head.head_bytes);
                    if !(100..200).contains(&head.status) {
                        return Ok(head);
                    }
                }
                None => self.fill().await?,
            }
        }
    }

    /// The whole body of an answer.
    pub(crate) async fn body(&mut self, head: &AnswerHead) -> Result<Vec<u8>, ClientError> {
        match head.body {
            AnswerBody::Length(length) if length > BODY_BYTES_MAX => {
                Err(AnswerError::TooLong.into())
            }
            AnswerBody::Length(length) => {
                let length = usize::try_from(length).expect("bounded a line above");
                while self.input.len() < length {
                    self.fill().await?;
                }
                let rest = self.input.split_off(length);
                Ok(std::mem::replace(&mut self.input, rest))
            }
            AnswerBody::Chunked => {
                let mut decoder = ChunkedDecoder::new(BODY_BYTES_MAX);
                let mut body = Vec::new();
                while !self.chunks(&mut decoder, &mut body).await? {}
                Ok(body)
            }
            AnswerBody::UntilClose => {
                while self.receive().await? > 0 {
                    if self.input.len() as u64 > BODY_BYTES_MAX {
                        return Err(AnswerError::TooLong.into());
                    }
                }
                Ok(std::mem::take(&mut self.input))
            }
        }
    }

    /// Takes what is there of a chunked body, or waits for more; whether the body is complete.
    pub(crate) async fn chunks(
        &mut self,
        decoder: &mut ChunkedDecoder,
        body: &mut Vec<u8>,
    ) -> Result<bool, ClientError> {
        if self.input.is_empty() {
            self.fill().await?;
        }
        let step = decoder.decode(&self.input, body)?;
        self.input.drain(..step.consumed);
        Ok(step.done)
    }

    /// Waits for at least one byte.
    async fn fill(&mut self) -> io::Result<()> {
        match self.receive().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn receive(&mut self) -> io::Result<usize> {
        self.input.reserve(READ_BYTES);
        self.socket.read_buf(&mut self.input).await
    }
}
