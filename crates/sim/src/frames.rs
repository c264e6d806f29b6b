//! One client's end of a connection of HTTP/2, in memory.

use crate::{clients::Cut, dice::Dice, wire::Ask};
use http2::testing::{Client, Exchange};

/// A client's end of a connection.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) client: Client,
    /// The requests of its exchanges, in order.
    calls: Vec<FramedCall>,
    /// It may leave an answer without holding the others up: their windows are far smaller than the connection's.
    pub(crate) may_leave: bool,
}

#[derive(Debug)]
struct FramedCall {
    call: u32,
    has_head: bool,
    is_over: bool,
}

/// What has come for one request.
pub(crate) struct News {
    pub(crate) call: u32,
    pub(crate) head: Option<(u16, Vec<(String, String)>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: Option<FramesEnd>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramesEnd {
    Complete,
    Broken(Cut),
}

impl Frames {
    pub(crate) fn new(dice: &mut Dice) -> Box<Self> {
        let window_bytes = *dice.pick(&[500, 3_000, 65_535, 1 << 20]);
        let may_leave = window_bytes != 65_535;
        Box::new(Self { client: Client::new(window_bytes), calls: Vec::new(), may_leave })
    }

    /// Asks something.
    pub(crate) fn ask(&mut self, call: u32, ask: &Ask, fields: &[(&'static str, String)]) {
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mark = if ask.query.is_empty() { "" } else { "?" };
        let url = format!("http://sim/v1/stream/{}{mark}{}", ask.path, ask.query);
        let place = self.client.ask(ask.method, &url, &fields, ask.body.clone());
        assert_eq!(place, self.calls.len(), "exchanges and requests go together");
        self.calls.push(FramedCall { call, has_head: false, is_over: false });
    }

    /// Gives a request up; `false` if it is none of these.
    pub(crate) fn reset(&mut self, call: u32) -> bool {
        let Some(place) = self.calls.iter().position(|known| known.call == call) else {
            return false;
        };
        self.client.reset(place);
        self.calls[place].is_over = true;
        true
    }

    /// What has come since this was asked last.
    pub(crate) fn news(&mut self) -> Vec<News> {
        let pairs = self.calls.iter_mut().zip(&mut self.client.exchanges);
        pairs.filter_map(|(call, exchange)| call.news(exchange)).collect()
    }
}

impl FramedCall {
    fn news(&mut self, exchange: &mut Exchange) -> Option<News> {
        if self.is_over {
            return None;
        }
        let status = exchange.status.filter(|_| !self.has_head);
        let head = status.map(|status| (status, std::mem::take(&mut exchange.fields)));
        self.has_head |= head.is_some();
        let body = std::mem::take(&mut exchange.received);
        let end = match (exchange.is_complete, exchange.is_broken) {
            (true, _) => Some(FramesEnd::Complete),
            (false, true) if exchange.is_cut => Some(FramesEnd::Broken(Cut::Unexplained)),
            (false, true) => Some(FramesEnd::Broken(Cut::No)),
            (false, false) => None,
        };
        self.is_over = end.is_some();
        let is_any = head.is_some() || !body.is_empty() || end.is_some();
        is_any.then_some(News { call: self.call, head, body, end })
    }
}
