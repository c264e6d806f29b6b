//! HTTP/1.1: heads, bodies in chunks, and requests.

mod chunked;
mod head;
mod request;

pub use chunked::{run as chunked, seeds as chunked_seeds};
pub use head::{run as head, seeds as head_seeds};
pub use request::{run as request, seeds as request_seeds};
