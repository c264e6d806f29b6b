//! Ports to the outside: disk, clock and randomness are arguments of everything above.
//!
//! # Why
//! A core that opens files, asks the time or draws random numbers by itself cannot be replayed from
//! a seed. Here are the traits, the real implementations over the operating system, and
//! [`MemoryDisk`], a disk whose crash loses exactly what a power cut may lose.
//!
//! # Invariants
//! - Only this crate (and `main`) names `std::fs`, `SystemTime`, `Instant` or a random source.
//! - Every operation that can fail in production returns `io::Result`, so that a simulated disk can
//!   fail it.
//! - No promise is made for bytes before [`File::sync_data`] nor for names before
//!   [`Disk::sync_dir`].

#![expect(clippy::disallowed_methods, reason = "these are the ports that replace the methods")]

mod beside;
mod clock;
mod disk;
mod memory;
mod operator_dirs;
mod operator_files;
mod operator_log;
mod overlay;
mod random;
mod real_disk;
mod stack;

pub use beside::Beside;
pub use clock::{Clock, RealClock};
pub use disk::{DirLock, Disk, File, LockError, is_out_of_descriptors, is_unreadable};
pub use memory::{DiskOperation, MemoryDisk, OpenFiles, ReadCounts};
pub use operator_dirs::{FileStamp, list_operator_files, make_operator_dir};
pub use operator_files::{OperatorFile, read_operator_file, replace_operator_file};
pub use operator_log::OperatorLog;
pub use overlay::{DiskOverlay, FileOverlay};
pub use random::{Random, RealRandom, SeededRandom};
pub use real_disk::RealDisk;
pub use stack::run_on_stack;
