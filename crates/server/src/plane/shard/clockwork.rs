//! What a shard does now and then: expiry, checkpoints, sweeps and reports.

use super::Shard;
use model::Monotonic;
use node::Event;
use session::Input;

/// The core's clockwork (expiry, checkpoints, sweeps) runs this often.
const TICK_MS: u64 = 100;

/// How far that may be off for a tick of the links, so that one wakeup is for both: an idle node does little but wake up.
const TICK_SLACK_MS: u64 = 25;

impl Shard {
    pub(super) fn run_clockwork(&mut self) {
        if self.now.monotonic >= self.sessions.next_deadline() {
            self.handle(Input::Tick);
        }
        if !self.is_tick_due() {
            return;
        }
        self.next_tick = self.now.monotonic.plus_ms(TICK_MS);
        self.hand_log_over(0);
        self.core.handle(self.now, Event::Tick);
        self.doors.tick(self.poll.registry(), self.now.monotonic);
        self.report();
        self.report_copies();
    }

    fn is_tick_due(&self) -> bool {
        let is_with_links = self.links.as_ref().is_some_and(|links| links.has_ticked());
        let early_ms = if is_with_links { 2 * TICK_SLACK_MS } else { 0 };
        self.now.monotonic.plus_ms(early_ms) >= self.tick_deadline()
    }

    /// When a tick is due without one of the links.
    pub(super) fn tick_deadline(&self) -> Monotonic {
        if self.links.is_some() { self.next_tick.plus_ms(TICK_SLACK_MS) } else { self.next_tick }
    }
}
