//! Load from one thread: sockets over epoll, and only as much HTTP as answers need.
//!
//! - [`socket`]: one connection's bytes; [`driver`]: many of them.
//! - [`answer`]: where an answer ends; [`body`]: heads and bodies of reads.
//! - [`exchange`]: requests in a closed or an open loop; [`schedule`]: when a request of an open loop
//!   is due.
//! - [`publisher`]: appends that readers wait for.
//! - [`pages`]: a stream read page by page; [`events`]: a stream followed by server-sent events.
//!
//! Refused: an HTTP library and a task per connection, because on one machine the client's CPU time
//! is taken from the server's.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod driver;
pub(crate) mod events;
pub(crate) mod exchange;
pub(crate) mod pages;
pub(crate) mod publisher;
pub(crate) mod schedule;
pub(crate) mod socket;
