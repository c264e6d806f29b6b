//! Content types, producers and forks as bytes. The codec below them knows only plain fields.

use crate::{
    ContentType, ForkPoint, ForkRequest, Lineage, Pin, PinToken, Producer, Span,
    codec::{DecodeError, Reader, Writer},
};
use model::{ByteOffset, StreamPath, Term};

/// The number of a content type that is written out.
const OTHER_TYPE: u8 = 255;

impl Writer<'_> {
    pub(crate) fn token(&mut self, token: PinToken) {
        self.number(token.fork_group.get().into());
        self.number(token.term.get());
        self.0.extend_from_slice(&token.nonce.to_le_bytes());
    }

    pub(crate) fn content_type(&mut self, content_type: &ContentType) {
        match content_type.known_number() {
            Some(number) => self.byte(number),
            None => {
                self.byte(OTHER_TYPE);
                self.text(content_type.as_str());
            }
        }
    }

    pub(crate) fn pin(&mut self, token: PinToken, from: ByteOffset, fork_path: &StreamPath) {
        self.token(token);
        self.number(from.get());
        self.text(fork_path.as_str());
    }

    pub(crate) fn fork(&mut self, fork: &ForkPoint) {
        self.text(fork.request.source.as_str());
        self.option(fork.request.offset, |w, offset| w.number(offset.get()));
        self.number(fork.request.sub_offset);
        self.key(fork.source);
        self.token(fork.token);
        self.number(fork.at.get());
        self.number(fork.head.get());
        self.number(fork.head_record);
        self.number(fork.records);
        self.option(fork.mark, |w, mark| w.number(mark));
        self.lifetime(fork.lifetime);
        self.lineage(&fork.lineage);
    }

    pub(crate) fn lineage(&mut self, lineage: &Lineage) {
        self.number(lineage.spans().len() as u64);
        for Span { end, next_record, owner } in lineage.spans() {
            self.number(end.get());
            self.number(*next_record);
            self.key(*owner);
        }
    }

    pub(crate) fn producer(&mut self, producer: &Producer) {
        self.text(&producer.id);
        self.number(producer.epoch);
        self.number(producer.seq);
    }
}

impl Reader<'_> {
    pub(crate) fn token(&mut self) -> Result<PinToken, DecodeError> {
        let (fork_group, term) = (self.group()?, Term::new(self.number()?));
        let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
        Ok(PinToken { fork_group, term, nonce: u64::from_le_bytes(bytes) })
    }

    pub(crate) fn content_type(&mut self) -> Result<ContentType, DecodeError> {
        match self.byte()? {
            OTHER_TYPE => self.text().map(ContentType::new),
            number => ContentType::of_known_number(number).ok_or_else(|| self.failure()),
        }
    }

    pub(crate) fn pin(&mut self) -> Result<Pin, DecodeError> {
        Ok(Pin { token: self.token()?, from: self.position()?, fork_path: self.path()? })
    }

    pub(crate) fn fork(&mut self) -> Result<ForkPoint, DecodeError> {
        let request = ForkRequest {
            source: self.path()?,
            offset: self.option(Self::offset)?,
            sub_offset: self.number()?,
        };
        let fork = ForkPoint {
            request,
            source: self.key()?,
            token: self.token()?,
            at: self.position()?,
            head: self.position()?,
            head_record: self.count()?,
            records: self.count()?,
            mark: self.option(Self::number)?,
            lifetime: self.lifetime()?,
            lineage: self.lineage()?,
        };
        let is_possible = fork.head <= fork.at && fork.head_record <= fork.records;
        let spans = fork.lineage.spans().last();
        let is_within = spans.is_none_or(|span| span.next_record <= fork.records);
        if is_possible && is_within { Ok(fork) } else { self.error() }
    }

    pub(crate) fn lineage(&mut self) -> Result<Lineage, DecodeError> {
        let count = self.number()?;
        let mut spans: Vec<Span> = Vec::new();
        for _ in 0..count {
            let (end, next_record) = (self.position()?, self.count()?);
            let span = Span { end, next_record, owner: self.key()? };
            let follows = |last: &Span| last.end < end && last.next_record <= next_record;
            if !spans.last().is_none_or(follows) {
                return self.error();
            }
            spans.push(span);
        }
        Ok(Lineage::from_spans(spans))
    }

    pub(crate) fn producer(&mut self) -> Result<Producer, DecodeError> {
        let id = self.text()?.into();
        Ok(Producer { id, epoch: self.producer_number()?, seq: self.producer_number()? })
    }
}
