//! What an answer to a read says, and what must be true of it.

use super::Ctx;
use crate::{
    events::{Event, decode_base64},
    history::{Deed, Moment},
    oracle::{Rule, Shape, StreamNo},
    wire::{Answer, parse_offset},
};

/// A read that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) stream: StreamNo,
    /// Where it began; `None` for the start or the tail of the moment.
    pub(crate) from: Option<u64>,
    /// The stream was known to reach to here when it was sent.
    floor: u64,
    was_closed: bool,
}

/// A reader's position after an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) next: u64,
    pub(crate) up_to_date: bool,
    pub(crate) closed: bool,
}

impl Reading {
    pub(crate) fn begin(ctx: &Ctx<'_>, stream: StreamNo, from: Option<u64>) -> Self {
        let truth = ctx.oracle.truth(stream);
        Self { stream, from, floor: truth.floor, was_closed: truth.closed_at.is_some() }
    }

    /// Takes a 200 or 204.
    pub(crate) fn take(&self, ctx: &mut Ctx<'_>, answer: &Answer) -> Option<Reached> {
        let shape = ctx.oracle.truth(self.stream).shape;
        let bytes = match stored_form(shape, &answer.body) {
            Ok(bytes) => bytes,
            Err(what) => {
                let path = &ctx.oracle.truth(self.stream).path;
                let detail = format!("{path} from {:?}: {what}", self.from);
                ctx.oracle.broken(Rule::Garbled, detail);
                return None;
            }
        };
        let Some(next) = answer.next_offset() else {
            ctx.oracle.broken(Rule::Protocol, "a read without Stream-Next-Offset");
            return None;
        };
        let reached = Reached {
            next,
            up_to_date: answer.is("stream-up-to-date"),
            closed: answer.is("stream-closed"),
        };
        self.arrive(ctx, &bytes, reached)?;
        Some(reached)
    }

    fn arrive(&self, ctx: &mut Ctx<'_>, bytes: &[u8], reached: Reached) -> Option<()> {
        let shape = ctx.oracle.truth(self.stream).shape;
        let path = ctx.oracle.truth(self.stream).path.clone();
        let length = bytes.len() as u64;
        let Some(start) = reached.next.checked_sub(length) else {
            let detail = format!("{path}: {length} bytes before offset {}", reached.next);
            ctx.oracle.broken(Rule::Garbled, detail);
            return None;
        };
        let fits = self.from.is_none_or(|from| match shape {
            Shape::Json => start <= from && reached.next >= from.min(self.floor),
            _ => start == from,
        });
        if !fits {
            let detail =
                format!("{path} asked from {:?}, got {start}..{}", self.from, reached.next);
            ctx.oracle.broken(Rule::Unseen, detail);
        }
        ctx.oracle.observe(self.stream, start, bytes);
        ctx.oracle.tail_seen(self.stream, reached.next);
        self.check_end(ctx, reached, length);
        Some(())
    }

    fn check_end(&self, ctx: &mut Ctx<'_>, reached: Reached, length: u64) {
        if reached.closed {
            ctx.oracle.closed_seen(self.stream, reached.next);
        }
        if reached.up_to_date {
            ctx.oracle.up_to_date(self.stream, reached.next, self.floor);
            if !reached.closed {
                ctx.oracle.open_seen(self.stream, reached.next, self.was_closed);
            }
        } else if length == 0 && !reached.closed {
            let path = &ctx.oracle.truth(self.stream).path;
            let detail = format!("{path} at {}: nothing, and not up to date", reached.next);
            ctx.oracle.broken(Rule::Bounds, detail);
        }
    }
}

/// The stored bytes behind the body of an answer.
pub(crate) fn stored_form(shape: Shape, body: &[u8]) -> Result<Vec<u8>, String> {
    if shape != Shape::Json || body.is_empty() {
        return Ok(body.to_vec());
    }
    if let Err(error) = serde_json::from_slice::<Vec<serde_json::Value>>(body) {
        return Err(format!("an answer that is no JSON array: {error}"));
    }
    Ok(unframed(body))
}

/// The stored bytes behind a JSON array.
pub(crate) fn unframed(body: &[u8]) -> Vec<u8> {
    let inner = body.get(1..body.len() - 1).unwrap_or_default();
    let mut stored = inner.to_vec();
    if !inner.is_empty() {
        stored.push(b',');
    }
    stored
}

/// A reader of events: joins data and control events.
#[derive(Debug)]
pub(crate) struct EventReading {
    pub(crate) position: Option<u64>,
    base64: bool,
    floor: u64,
    data: Option<Event>,
    stream: StreamNo,
    pub(crate) is_closed: bool,
    called: Moment,
}

impl EventReading {
    pub(crate) fn begin(
        ctx: &mut Ctx<'_>,
        stream: StreamNo,
        from: Option<u64>,
        base64: bool,
    ) -> Self {
        let called = ctx.oracle.history.moment();
        let truth = ctx.oracle.truth(stream);
        let base64 = base64 || truth.shape == Shape::Binary;
        Self {
            position: from,
            base64,
            floor: truth.floor,
            data: None,
            stream,
            is_closed: false,
            called,
        }
    }

    pub(crate) fn take(&mut self, ctx: &mut Ctx<'_>, event: &Event) {
        let result = match event.kind.as_str() {
            "data" => match self.data.replace(event.clone()) {
                None => Ok(()),
                Some(_) => Err("two data events without control".to_owned()),
            },
            "control" => self.control(ctx, event),
            other => Err(format!("an event of kind {other:?}")),
        };
        if let Err(what) = result {
            let path = &ctx.oracle.truth(self.stream).path;
            let detail = format!("{path} at {:?}: {what}", self.position);
            ctx.oracle.broken(Rule::Garbled, detail);
        }
    }

    fn control(&mut self, ctx: &mut Ctx<'_>, event: &Event) -> Result<(), String> {
        let text = &event.data;
        let control: serde_json::Value =
            serde_json::from_str(text).map_err(|_| format!("control {text:?}"))?;
        let next = control.get("streamNextOffset").and_then(|value| value.as_str());
        let next = next.and_then(parse_offset).ok_or("control without offset")?;
        let is = |name: &str| control.get(name).and_then(serde_json::Value::as_bool) == Some(true);
        let exact = control.get("streamDataBase64").and_then(|value| value.as_str());
        let data = self.data.take();
        for event in data.iter().chain([event]) {
            if parse_offset(&event.id) != Some(next) {
                return Err(format!("an event before {next} has the id {:?}", event.id));
            }
        }
        let bytes = self.bytes(ctx, data.as_ref().map(|event| &*event.data), exact)?;
        let start = next.checked_sub(bytes.len() as u64).ok_or("more bytes than the offset")?;
        if self.position.is_some_and(|position| position != start) {
            return Err(format!("the next event covers {start}..{next}"));
        }
        self.position = Some(next);
        // Text may hold back the first bytes of a character, and is up to date all the same.
        let (up_to_date, closed) = (is("upToDate") && self.base64, is("streamClosed"));
        self.remember(ctx, Deed::Read { start, bytes: bytes[..].into(), up_to_date, closed });
        ctx.oracle.observe(self.stream, start, &bytes);
        ctx.oracle.tail_seen(self.stream, next);
        if is("streamClosed") {
            self.is_closed = true;
            ctx.oracle.closed_seen(self.stream, next);
        }
        // Text may hold back the first bytes of a character; what was said before still holds.
        if is("upToDate") && self.floor > next + 3 {
            ctx.oracle.up_to_date(self.stream, next, self.floor);
        }
        Ok(())
    }

    fn remember(&self, ctx: &mut Ctx<'_>, deed: Deed) {
        let path = ctx.oracle.truth(self.stream).path.clone();
        ctx.oracle.history.event(&path, self.called, deed);
    }

    fn bytes(
        &self,
        ctx: &Ctx<'_>,
        data: Option<&str>,
        exact: Option<&str>,
    ) -> Result<Vec<u8>, String> {
        let Some(data) = data else { return Ok(Vec::new()) };
        let decode = |text: &str| decode_base64(text).ok_or("data that is no base64".to_owned());
        match exact {
            Some(exact) => decode(exact),
            None if self.base64 => decode(data),
            None => stored_form(ctx.oracle.truth(self.stream).shape, data.as_bytes()),
        }
    }
}
