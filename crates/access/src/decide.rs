//! The decision: whether a client may do what it asks.
//!
//! # Invariants
//! - [`Authorized`] is made here and nowhere else (`xtask tidy` checks it). So what holds one was decided.
//! - A decision looks at operations, paths and limits, never at streams: what is denied does not tell what exists.

use crate::{
    access::{Access, Refused, Who},
    denied::Denied,
    grant::Operation,
    meter::{Cost, Seat},
    principal::{Client, Credential, Principal},
    verified::Verified,
};
use model::{Monotonic, Timestamp};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

/// The time, as decisions need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For what ends at a date.
    pub wall: Timestamp,
    /// For rates.
    pub monotonic: Monotonic,
}

/// Something that a client must be allowed to do, and with which path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need<'a> {
    /// What.
    pub operation: Operation,
    /// With which path.
    pub path: &'a str,
}

/// A request that says all that it needs.
pub trait Named {
    /// All that must be allowed: at most two, as for a fork. A request without any is for everybody.
    fn needs(&self) -> [Option<Need<'_>>; 2];

    /// What it uses of limits.
    fn cost(&self) -> Cost;
}

/// A request that its sender may make. Only [`Access::decide`] makes one.
#[derive(Debug)]
pub struct Authorized<R> {
    request: R,
    permit: Permit,
}

/// The client that may do what an [`Authorized`] says, and what is held for it while it lasts.
#[derive(Debug)]
pub struct Permit {
    /// Nobody in particular if there is none.
    who: Option<Arc<Principal>>,
    /// A live reader is counted until this is dropped.
    _seat: Option<Box<Seat>>,
    /// Its address, if a proxy has said it.
    forwarded: Option<Box<IpAddr>>,
}

impl Permit {
    const NOBODY: Self = Self { who: None, _seat: None, forwarded: None };

    /// The address that is charged. `client` is who the connection is of.
    fn address(&self, client: Client<'_>) -> IpAddr {
        self.forwarded.as_deref().copied().unwrap_or(client.address)
    }
}

impl Access {
    /// Decides whether `who` may make a request, and charges its limits.
    ///
    /// # Errors
    /// [`Denied`] says what is missing.
    pub fn decide<R: Named>(
        &self,
        who: Who,
        client: Client<'_>,
        request: R,
        now: Now,
    ) -> Result<Authorized<R>, Denied> {
        if self.is_open() {
            return Ok(self.decide_open(request));
        }
        self.check_needs(&who, request.needs())?;
        let is_for_everybody = request.needs()[0].is_none();
        let meter = if is_for_everybody { None } else { self.meter(&who, client.address) };
        let seat = match meter {
            None => None,
            Some(meter) => meter.take(request.cost(), now.monotonic).map_err(Denied::Limited)?,
        };
        let forwarded = client.is_forwarded.then(|| Box::new(client.address));
        let permit = Permit { who: known(who), _seat: seat.map(Box::new), forwarded };
        Ok(Authorized { request, permit })
    }

    /// A request where everybody may do everything.
    ///
    /// # Panics
    /// If these rules are others.
    #[inline]
    pub fn decide_open<R>(&self, request: R) -> Authorized<R> {
        assert!(self.is_open(), "only open rules let everybody do everything");
        Authorized { request, permit: Permit::NOBODY }
    }

    /// Judges again what was decided under other rules. It lasts, so new rules count for it, too. `need` is what it
    /// needs while it lasts.
    ///
    /// # Errors
    /// [`Refused`] if these rules do not allow it.
    pub fn decide_again<R>(
        &self,
        authorized: &mut Authorized<R>,
        need: for<'r> fn(&'r R) -> Need<'r>,
        verified: &mut Verified,
        client: Client<'_>,
        now: Timestamp,
    ) -> Result<(), Refused> {
        if self.is_open() {
            authorized.permit = Permit::NOBODY;
            return Ok(());
        }
        if authorized.permit.is_of(self) {
            return Ok(());
        }
        let credential = match authorized.permit.who.as_deref() {
            None => Credential::None,
            Some(known) => known.credential.as_credential(),
        };
        let who = self.authenticate(verified, &mut None, &credential, client, now)?;
        self.check_needs(&who, [Some(need(&authorized.request)), None])?;
        let meter = self.meter(&who, authorized.permit.address(client));
        let seat = meter.and_then(|meter| meter.keep_seat()).map(Box::new);
        let forwarded = authorized.permit.forwarded.take();
        authorized.permit = Permit { who: known(who), _seat: seat, forwarded };
        Ok(())
    }

    /// Charges bytes of a body whose length was not known when its request was decided.
    pub fn charge_bytes(&self, permit: &Permit, client: Client<'_>, bytes: u64, now: Now) {
        let who = permit.who.clone().map_or(Who::Anonymous, Who::Known);
        if let Some(meter) = self.meter(&who, permit.address(client)) {
            meter.charge_bytes(bytes, now.monotonic);
        }
    }

    fn check_needs(&self, who: &Who, needs: [Option<Need<'_>>; 2]) -> Result<(), Denied> {
        let principal = self.principal(who);
        for Need { operation, path } in needs.into_iter().flatten() {
            if principal.may(operation, path) {
                continue;
            }
            let path = path.into();
            return Err(match who {
                Who::Anonymous => Denied::Missing { operation, path },
                Who::Known(known) => {
                    Denied::Insufficient { operation, path, who: Arc::clone(known.name()) }
                }
            });
        }
        Ok(())
    }
}

fn known(who: Who) -> Option<Arc<Principal>> {
    match who {
        Who::Anonymous => None,
        Who::Known(principal) => Some(principal),
    }
}

impl<R> Authorized<R> {
    /// The request, for what is not carried out but looked at.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &R {
        &self.request
    }

    /// The client that may make it.
    #[must_use]
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The request, and the permit for all that comes of it.
    #[inline]
    pub fn take_apart(self) -> (R, Permit) {
        (self.request, self.permit)
    }

    /// What is asked of another layer because of this request: it was decided with it.
    #[inline]
    pub fn map<S>(self, make: impl FnOnce(R) -> S) -> Authorized<S> {
        Authorized { request: make(self.request), permit: self.permit }
    }

    /// A part of what this request asks, asked while the request itself lasts.
    #[inline]
    pub fn part<S>(&self, make: impl FnOnce(&R) -> S) -> Authorized<S> {
        let permit = Permit { who: self.permit.who.clone(), _seat: None, forwarded: None };
        Authorized { request: make(&self.request), permit }
    }

    /// Takes the request out, to carry it out.
    #[inline]
    pub fn into_inner(self) -> R {
        self.request
    }
}

impl<R> Deref for Authorized<R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        &self.request
    }
}

impl Permit {
    /// What comes of the request that this permit was given for.
    #[inline]
    pub fn apply<S>(self, request: S) -> Authorized<S> {
        Authorized { request, permit: self }
    }

    /// The client, if it is known.
    #[must_use]
    pub fn who(&self) -> Option<&Arc<Principal>> {
        self.who.as_ref()
    }

    /// Whether what it allows has ended at `now`.
    #[inline]
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.who.as_ref().is_some_and(|who| who.is_over(now))
    }

    /// Whether these rules gave it, as far as it shows: that of a client that is not known is always judged again.
    fn is_of(&self, access: &Access) -> bool {
        self.who.as_ref().is_some_and(|who| who.generation == access.generation())
    }
}
