//! Access to streams: tokens, grants and limits, as values and pure functions.
//!
//! # Why
//! One place decides, for every way into the server. So this crate knows no HTTP, no stream, no file and no clock: a
//! credential, a path and the time come in, a decision goes out. The simulator and the fuzzer run what ships.
//!
//! # Code map
//! - `grant`: operations on paths; `token`, `jwt`, `signed_url`: what a client can show; `principal`: who it is then.
//! - `access`: the rules in force, and [`Access::authenticate`]; `verified`: what was verified lately.
//! - `decide`: [`Access::decide`], the only maker of [`Authorized`].
//! - `meter`: limits in time; `denied`: why not; `file`: the access file.
//!
//! # Refused
//! A table of users with roles: a grant says the same in one line. Denials in grants: their order would matter.

mod access;
mod decide;
mod denied;
pub mod file;
mod grant;
mod jwt;
pub mod limits;
mod meter;
mod principal;
mod signed_url;
mod token;
mod verified;

pub use access::{Access, AnonymousRule, Refused, Rules, Who};
pub use decide::{Authorized, Named, Need, Now, Permit};
pub use denied::{Denied, Invalid};
pub use grant::{Grant, GrantError, GrantTemplate, Operation, Operations};
pub use meter::{Cost, Exceeded, Limit, Limits, Meter, MeterTable, Seat};
pub use principal::{Client, Credential, Principal, PrincipalKind};
pub use signed_url::{SignedUrl, sign};
pub use token::{Secret, SecretHash, StaticToken, is_id};
pub use verified::Verified;
