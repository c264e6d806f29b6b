//! A client with few rights that tries everything, everywhere.
//!
//! What it may do is compared with the answers. What it may not do must not happen: an append that is denied is refused for
//! good, whatever came of its answer. And no denial may depend on what there is.

use super::{Client, Ctx, Heard, Move, pause};
use crate::{
    clock::WallRange,
    oracle::Rule,
    rules::{BRIEF_UNTIL_MS, Deed, Shows, field_of, may},
    wire::{Answer, Ask, offset_text},
};
use std::collections::BTreeMap;

/// Paths at which nobody makes a stream.
const NOWHERE: [&str; 3] = ["shared/none", "own/none", "nowhere/at/all"];

const MAY_NOT: [&str; 5] =
    ["token-missing", "token-invalid", "token-expired", "access-denied", "producer-denied"];

#[derive(Debug)]
pub(crate) struct Guest {
    name: u64,
    left: u64,
    sent: Option<Sent>,
    /// What each kind of denial looks like, without the path.
    denials: BTreeMap<(Shows, &'static str, String), String>,
}

#[derive(Debug, Clone)]
struct Sent {
    shows: Shows,
    deed: Deed,
    method: &'static str,
    path: String,
}

/// What must come of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Must {
    BeDenied,
    BeLetIn,
    /// The token ends, comes or goes while it is under way.
    Either,
}

impl Guest {
    pub(crate) fn new(name: u64, left: u64) -> Self {
        Self { name, left, sent: None, denials: BTreeMap::new() }
    }

    /// A path of somebody else, of nobody, or of its own.
    fn path(&self, ctx: &mut Ctx<'_>) -> String {
        let count = ctx.oracle.stream_count() as u64;
        match ctx.dice.below(10) {
            0..6 if count > 0 => {
                let stream = usize::try_from(ctx.dice.below(count)).expect("an index");
                ctx.oracle.truth(stream).path.clone()
            }
            0..8 => (*ctx.dice.pick(&NOWHERE)).to_owned(),
            _ => format!("guest/{}", self.name),
        }
    }

    fn ask(&mut self, ctx: &mut Ctx<'_>, sent: &Sent) -> Ask {
        let mut ask = Ask::new(sent.method, &sent.path).anonymous();
        if let Some(field) = field_of(sent.shows) {
            ask = ask.field("Authorization", field);
        }
        let stream = (0..ctx.oracle.stream_count())
            .rev()
            .find(|stream| ctx.oracle.truth(*stream).path == sent.path);
        let kind = stream.map_or("text/plain", |no| ctx.oracle.truth(no).shape.content_type());
        match (sent.deed, stream) {
            (Deed::Append, Some(stream)) => {
                let (op, body) = ctx.oracle.new_op(stream, ctx.dice);
                // Nobody lets it in, so it is nowhere: also if the answer is lost.
                ctx.oracle.refused(op);
                ask.field("Content-Type", kind).body(&body)
            }
            (Deed::Append, None) => ask.field("Content-Type", kind).body(b"of a guest"),
            (Deed::Create, _) => ask.field("Content-Type", kind),
            (Deed::Delete, _) if sent.method == "PATCH" => {
                ask.field("Stream-Trim-Before", offset_text(0))
            }
            _ => ask,
        }
    }

    fn broken(ctx: &mut Ctx<'_>, sent: &Sent, what: impl std::fmt::Display) {
        let Sent { shows, method, path, .. } = sent;
        ctx.oracle.broken(Rule::Access, format!("{method} {path} with {shows:?}: {what}"));
    }

    /// A denial looks like the others of its kind, wherever it is.
    fn compare(&mut self, ctx: &mut Ctx<'_>, sent: &Sent, answer: &Answer) {
        // The answer to a HEAD says in its challenge alone which denial it is.
        let challenge = answer.field("www-authenticate").unwrap_or_default();
        let code = answer.problem().unwrap_or_else(|| challenge.replace(&sent.path, "PATH"));
        let body = String::from_utf8_lossy(&answer.body).replace(&sent.path, "PATH");
        let of_exchange = ["date", "connection", "content-length", "transfer-encoding"];
        let mut fields: Vec<String> = answer
            .fields
            .iter()
            .filter(|(name, _)| !of_exchange.contains(&name.as_str()))
            .map(|(name, value)| format!("{name}: {}", value.replace(&sent.path, "PATH")))
            .collect();
        fields.sort();
        let now = format!("{} {} {body}", answer.status, fields.join(", "));
        let known =
            self.denials.entry((sent.shows, sent.method, code)).or_insert_with(|| now.clone());
        if *known != now {
            let what = format!("a denial shows what there is: {now} and elsewhere {known}");
            Self::broken(ctx, sent, what);
        }
    }
}

/// `is_known` says whether the passing token was in the rules.
fn must(sent: &Sent, wall: WallRange, is_known: Option<bool>) -> Must {
    let is_allowed = may(sent.shows, sent.deed, &sent.path);
    match (sent.shows, is_allowed) {
        (_, false) => Must::BeDenied,
        (Shows::Passing, true) => match is_known {
            Some(true) => Must::BeLetIn,
            Some(false) => Must::BeDenied,
            None => Must::Either,
        },
        (Shows::Brief, true) if wall.low > BRIEF_UNTIL_MS + 1_000 => Must::BeDenied,
        (Shows::Brief, true) if wall.high + 1_000 >= BRIEF_UNTIL_MS => Must::Either,
        (_, true) => Must::BeLetIn,
    }
}

impl Client for Guest {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if ctx.is_ending || self.left == 0 {
            return Move::Done;
        }
        self.left -= 1;
        let all = [
            Shows::Nothing,
            Shows::Guest,
            Shows::Brief,
            Shows::Brief,
            Shows::Passing,
            Shows::Passing,
            Shows::Forged,
        ];
        let deeds = [
            (Deed::Read, "GET"),
            (Deed::Read, "HEAD"),
            (Deed::Append, "POST"),
            (Deed::Append, "POST"),
            (Deed::Create, "PUT"),
            (Deed::Delete, "DELETE"),
            (Deed::Delete, "PATCH"),
        ];
        let shows = *ctx.dice.pick(&all);
        let (deed, method) = *ctx.dice.pick(&deeds);
        let sent = Sent { shows, deed, method, path: self.path(ctx) };
        let ask = self.ask(ctx, &sent);
        self.sent = Some(sent);
        Move::Ask(ask)
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let (Some(sent), Some(answer)) = (self.sent.take(), &heard.answer) else {
            return pause(ctx.dice);
        };
        let code = answer.problem().unwrap_or_default();
        let is_denied = matches!(answer.status, 401 | 403);
        if is_denied && sent.method != "HEAD" && !MAY_NOT.contains(&code.as_str()) {
            Self::broken(ctx, &sent, format_args!("{} {code} is no denial", answer.status));
        }
        let is_done = (200..300).contains(&answer.status);
        // A head that is malformed, or a server that is too busy, is answered before anybody is judged.
        let is_judged = !matches!(answer.status, 408 | 429 | 503);
        let is_known = ctx.passing.is_known(heard.since_us, ctx.clock.now_us);
        match must(&sent, ctx.clock.raw_since(heard.since_us), is_known) {
            Must::BeDenied if is_done || (is_judged && !is_denied) => {
                Self::broken(ctx, &sent, format_args!("{} is answered", answer.status));
            }
            Must::BeLetIn if is_denied => {
                Self::broken(ctx, &sent, format_args!("{code} is answered"));
            }
            _ => {}
        }
        if is_denied {
            self.compare(ctx, &sent, answer);
        }
        pause(ctx.dice)
    }
}
