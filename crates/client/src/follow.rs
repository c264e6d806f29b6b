//! A stream followed live.

use crate::ClientError;
use crate::calls::limited;
use crate::connection::Connection;
use crate::events::{Event, EventReader};
use model::ByteOffset;
use protocol::client::AnswerHead;
use protocol::http1::ChunkedDecoder;
use std::collections::VecDeque;
use std::time::Duration;

/// One answer of server-sent events.
#[derive(Debug)]
pub struct Follow {
    connection: Connection,
    chunks: ChunkedDecoder,
    reader: EventReader,
    ready: VecDeque<Event>,
    base64: bool,
    silence: Duration,
    ended: bool,
}

/// One step of a followed stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Bytes, as text, as a JSON array or in base64, see [`Follow::is_base64`].
    Data(Vec<u8>),
    /// The reader's position after the data before it.
    Control {
        /// Where to continue after a lost connection.
        next: ByteOffset,
        /// Nothing followed at that moment.
        up_to_date: bool,
        /// Nothing will ever follow.
        closed: bool,
    },
}

impl Follow {
    pub(crate) fn new(connection: Connection, head: &AnswerHead, silence: Duration) -> Self {
        Self {
            connection,
            chunks: ChunkedDecoder::new(u64::MAX),
            reader: EventReader::default(),
            ready: VecDeque::new(),
            base64: head.base64,
            silence,
            ended: false,
        }
    }

    /// Whether data comes in base64.
    #[must_use]
    pub fn is_base64(&self) -> bool {
        self.base64
    }

    /// The next step; `None` when the server has ended the answer: the stream is closed, or the
    /// reader shall connect again.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn next(&mut self) -> Result<Option<Progress>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                match progress(event)? {
                    Some(progress) => return Ok(Some(progress)),
                    None => continue,
                }
            }
            if self.ended {
                return Ok(None);
            }
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> Result<(), ClientError> {
        let mut body = Vec::new();
        let more = self.connection.chunks(&mut self.chunks, &mut body);
        self.ended = limited(self.silence, more).await?;
        let ready = &mut self.ready;
        self.reader.push(&body, |event| ready.push_back(event))?;
        Ok(())
    }
}

fn progress(event: Event) -> Result<Option<Progress>, ClientError> {
    match event.kind.as_str() {
        "data" => Ok(Some(Progress::Data(event.data))),
        "control" => control(&event.data).map(Some),
        _ => Ok(None),
    }
}

fn control(data: &[u8]) -> Result<Progress, ClientError> {
    let missing = || ClientError::Incomplete { missing: "next offset in a control event" };
    let value: serde_json::Value = serde_json::from_slice(data).map_err(|_| missing())?;
    let next = value["streamNextOffset"]
        .as_str()
        .and_then(|text| protocol::offset::parse(text.as_bytes()).ok());
    let is = |key: &str| value[key].as_bool() == Some(true);
    let (up_to_date, closed) = (is("upToDate"), is("streamClosed"));
    Ok(Progress::Control { next: next.ok_or_else(missing)?, up_to_date, closed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_event_has_the_readers_position() {
        let data = br#"{"streamNextOffset":"0000000000000042_0000000000000000","upToDate":true}"#;
        let next = ByteOffset::new(42);
        let wanted = Progress::Control { next, up_to_date: true, closed: false };
        assert_eq!(control(data).unwrap(), wanted);
        assert!(control(b"{}").is_err());
        assert!(control(b"no JSON").is_err());
    }

    #[test]
    fn events_of_other_kinds_are_passed_over() {
        let event = Event { kind: "news".to_owned(), data: Vec::new() };
        assert_eq!(progress(event).unwrap(), None);
    }
}
