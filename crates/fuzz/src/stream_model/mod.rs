//! The state machine: bytes of commands and checkpoints, and what applying them does.

mod checkpoint;
mod command;
mod state;

pub use checkpoint::{run as checkpoint, seeds as checkpoint_seeds};
pub use command::{run as command, seeds as command_seeds};
pub use state::{run as state, seeds as state_seeds};
