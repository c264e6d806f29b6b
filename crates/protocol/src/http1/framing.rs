//! Where the body of a request ends and what becomes of the connection.
//!
//! Each rule here refuses a request that two parsers could cut at different places. Source: RFC
//! 9112 §6 and §11.2.

use super::head::{Framing, HeadError, HeadLimits, Version};
use crate::field;

pub(super) struct Connection<'b> {
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
    pub(super) expect_continue: bool,
    pub(super) host: Option<&'b str>,
}

#[derive(Default)]
struct Seen<'b> {
    host: Option<&'b [u8]>,
    length: Option<&'b [u8]>,
    encoding: Option<&'b [u8]>,
    expects: bool,
    wants_close: bool,
    wants_keep_alive: bool,
}

pub(super) fn decide<'b>(
    fields: &[httparse::Header<'b>],
    version: Version,
    limits: &HeadLimits,
) -> Result<Connection<'b>, HeadError> {
    let mut seen = Seen::default();
    for item in fields {
        seen.take(item)?;
    }
    let keep_alive = !seen.wants_close && (version == Version::Http11 || seen.wants_keep_alive);
    Ok(Connection {
        framing: seen.framing(version, limits)?,
        keep_alive,
        // RFC 9110 §10.1.1: an expectation in an HTTP/1.0 request is ignored.
        expect_continue: seen.expects && version == Version::Http11,
        host: seen.host(version)?,
    })
}

impl<'b> Seen<'b> {
    fn take(&mut self, item: &httparse::Header<'b>) -> Result<(), HeadError> {
        match item.name.len() {
            4 if item.name.eq_ignore_ascii_case(field::HOST) => {
                once(&mut self.host, item.value, HeadError::HostInvalid)
            }
            6 if item.name.eq_ignore_ascii_case(field::EXPECT) => {
                self.expects = item.value.eq_ignore_ascii_case(b"100-continue");
                if self.expects { Ok(()) } else { Err(HeadError::Expect) }
            }
            10 if item.name.eq_ignore_ascii_case(field::CONNECTION) => {
                self.take_options(item.value);
                Ok(())
            }
            14 if item.name.eq_ignore_ascii_case(field::CONTENT_LENGTH) => {
                once(&mut self.length, item.value, HeadError::ContentLength)
            }
            17 if item.name.eq_ignore_ascii_case(field::TRANSFER_ENCODING) => {
                once(&mut self.encoding, item.value, HeadError::TransferEncoding)
            }
            _ => Ok(()),
        }
    }

    fn take_options(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            self.wants_close |= option.eq_ignore_ascii_case(b"close");
            self.wants_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn framing(&self, version: Version, limits: &HeadLimits) -> Result<Framing, HeadError> {
        match (self.length, self.encoding) {
            (Some(_), Some(_)) => Err(HeadError::LengthAndEncoding),
            (None, None) => Ok(Framing::None),
            (Some(length), None) => length_of(length, limits.body_bytes_max),
            (None, Some(coding)) => {
                let is_chunked =
                    coding.eq_ignore_ascii_case(b"chunked") && version == Version::Http11;
                if is_chunked { Ok(Framing::Chunked) } else { Err(HeadError::TransferEncoding) }
            }
        }
    }

    fn host(&self, version: Version) -> Result<Option<&'b str>, HeadError> {
        match self.host {
            None if version == Version::Http11 => Err(HeadError::HostMissing),
            None | Some([]) => Ok(None),
            Some(value) if is_authority(value) => Ok(std::str::from_utf8(value).ok()),
            Some(_) => Err(HeadError::HostInvalid),
        }
    }
}

fn once<'b>(
    slot: &mut Option<&'b [u8]>,
    value: &'b [u8],
    error: HeadError,
) -> Result<(), HeadError> {
    if slot.replace(value).is_some() { Err(error) } else { Ok(()) }
}

fn length_of(value: &[u8], limit_bytes: u64) -> Result<Framing, HeadError> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::ContentLength);
    }
    let length_bytes = value
        .iter()
        .fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    match length_bytes {
        0 => Ok(Framing::None),
        _ if length_bytes > limit_bytes => {
            Err(HeadError::BodyTooLong { length_bytes, limit_bytes })
        }
        _ => Ok(Framing::Length(length_bytes)),
    }
}

/// Whether the authority of a URL may have every byte (RFC 3986 §3.2), so that it can be
/// written back into one. User names are refused: no `Host` has them.
pub(super) fn is_authority(value: &[u8]) -> bool {
    value.iter().all(|byte| IN_AUTHORITY[usize::from(*byte)])
}

/// By byte, whether it is allowed there.
const IN_AUTHORITY: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~%!$&'()*+,;=:[]";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};
