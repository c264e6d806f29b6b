//! Why a request is not carried out.

use crate::{grant::Operation, meter::Exceeded};
use model::Timestamp;
use std::sync::Arc;

/// Why a request is denied. Nothing in it depends on what exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The sender has shown nothing, and may not do this without.
    Missing {
        /// What was asked.
        operation: Operation,
        /// Of which path.
        path: Box<str>,
    },
    /// What it has shown is not valid.
    Invalid(Invalid),
    /// It was valid once.
    Expired {
        /// Until then.
        at: Timestamp,
    },
    /// It will be valid later.
    NotYet {
        /// From then on.
        from: Timestamp,
    },
    /// It is valid and allows other things.
    Insufficient {
        /// What was asked.
        operation: Operation,
        /// Of which path.
        path: Box<str>,
        /// By whom.
        who: Arc<str>,
    },
    /// A limit is used up.
    Limited(Exceeded),
}

impl Denied {
    /// The client, if it is known.
    #[must_use]
    pub fn who(&self) -> Option<&Arc<str>> {
        match self {
            Self::Insufficient { who, .. } => Some(who),
            _ => None,
        }
    }
}

/// What is wrong with a credential. It is shown to its sender, so it says nothing that helps to forge one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Not a bearer token.
    Scheme,
    /// Longer than any token.
    TooLong,
    /// A static token that is malformed, or mistyped.
    Malformed,
    /// A static token that is not in the access file.
    Unknown,
    /// Neither a static token nor a JWT.
    NoToken,
    /// A JWT whose header is not acceptable.
    Head,
    /// An algorithm that its issuer does not use.
    Algorithm,
    /// A JWT of an issuer that is not in the access file.
    Issuer,
    /// A JWT for somebody else.
    Audience,
    /// A key that its issuer does not have.
    Key,
    /// A signature that is wrong.
    Signature,
    /// Claims that are missing or malformed.
    Claims,
    /// A signed URL whose parameters are malformed, or whose key is unknown.
    Url,
    /// A signed URL that ends later than its key allows.
    UrlLifetime,
}

impl Invalid {
    /// What is wrong, as a sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Scheme => {
                "The credentials are not a bearer token; send `Authorization: Bearer TOKEN`."
            }
            Self::TooLong => "The token is longer than 8 KiB.",
            Self::Malformed => {
                "The token is incomplete or mistyped; send it as `thalweg token add` printed it."
            }
            Self::Unknown => "The token is not known here; it may have been removed.",
            Self::NoToken => "The token is neither one of this server nor a JWT.",
            Self::Head => "The header of the JWT is not acceptable.",
            Self::Algorithm => "The issuer of the JWT does not use this algorithm here.",
            Self::Issuer => "The issuer of the JWT is not known here.",
            Self::Audience => "The JWT is meant for another audience.",
            Self::Key => "The key of the JWT is not known here.",
            Self::Signature => "The signature is wrong.",
            Self::Claims => "A claim of the JWT is missing or malformed.",
            Self::Url => "The signature of the URL is malformed, or its key is not known here.",
            Self::UrlLifetime => {
                "The URL is valid for longer than its key allows (lifetime_s_max)."
            }
        }
    }
}
