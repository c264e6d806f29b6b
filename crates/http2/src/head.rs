//! The head of a request, as the protocol reads it.

use http::request::Parts as HttpParts;
use protocol::{
    http1::{HeadError, HeadLimits},
    http2::{Head as ReadHead, Parts, read},
};

/// A head that has come.
#[derive(Debug)]
pub struct Head {
    parts: HttpParts,
    is_end: bool,
}

impl Head {
    pub(crate) fn new(parts: HttpParts, is_end: bool) -> Self {
        Self { parts, is_end }
    }

    /// Its fields, for [`Self::read`].
    #[must_use]
    pub fn fields(&self) -> Vec<httparse::Header<'_>> {
        let mut fields = Vec::with_capacity(self.parts.headers.len());
        for (name, value) in &self.parts.headers {
            fields.push(httparse::Header { name: name.as_str(), value: value.as_bytes() });
        }
        fields
    }

    /// Whether the answer has no body, whatever its head says.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.parts.method == http::Method::HEAD
    }

    /// Reads it; `fields` are its own.
    ///
    /// # Errors
    /// The [`HeadError`] to answer.
    pub fn read<'h, 'b>(
        &'b self,
        fields: &'h [httparse::Header<'b>],
        limits: &HeadLimits,
    ) -> Result<ReadHead<'h, 'b>, HeadError> {
        let parts = Parts {
            method: self.parts.method.as_str(),
            target: self.parts.uri.path_and_query().map_or("", |target| target.as_str()),
            authority: self.parts.uri.authority().map(http::uri::Authority::as_str),
            fields,
            is_end: self.is_end,
        };
        read(&parts, limits)
    }
}
