//! Servers do not outlive this program: a signal or a panic ends them and removes their data, then us.
//!
//! Every server is started by the keeper, and its end is reported to the keeper. Both happen under one
//! lock, so that there is no moment at which a server runs unknown to it.

use crate::failure::Outcome;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// What a shell calls a program that SIGINT ended.
const EXIT_INTERRUPTED: i32 = 130;

/// How long files of a killed server may still come into being.
const SETTLE: Duration = Duration::from_millis(100);

/// The servers of this process, by process, with the directory of each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keeper {
    servers: Arc<Mutex<BTreeMap<u32, PathBuf>>>,
}

impl Keeper {
    /// A keeper that ends all servers when this process is asked to end, or panics: a release does not unwind.
    pub(crate) fn watch() -> Outcome<Self> {
        let keeper = Self::default();
        keeper.watch_panics();
        let own = keeper.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        drop(entered);
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
            eprintln!("\ninterrupted: ending servers");
            own.end_all();
            std::process::exit(EXIT_INTERRUPTED);
        });
        Ok(keeper)
    }

    fn watch_panics(&self) {
        let own = self.clone();
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            own.end_all();
        }));
    }

    /// Starts a server whose files are in `scratch`.
    pub(crate) fn spawn(&self, command: &mut Command, scratch: &Path) -> std::io::Result<Child> {
        let mut servers = self.lock();
        let child = command.spawn()?;
        servers.insert(child.id(), scratch.to_path_buf());
        Ok(child)
    }

    /// Ends `child` without notice, if it runs, and forgets it.
    pub(crate) fn end(&self, child: &mut Child) {
        let mut servers = self.lock();
        // It may have ended by itself, which is as good.
        let _ = child.kill();
        let _ = child.wait();
        servers.remove(&child.id());
    }

    /// Ends every server and removes its files.
    fn end_all(&self) {
        let servers = self.lock();
        for id in servers.keys() {
            let id = i32::try_from(*id).ok().and_then(rustix::process::Pid::from_raw);
            let kill = |id| rustix::process::kill_process(id, rustix::process::Signal::KILL);
            // It may have ended by itself, which is as good.
            let _ = id.map(kill);
        }
        std::thread::sleep(SETTLE);
        for scratch in servers.values() {
            let _ = std::fs::remove_dir_all(scratch);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, PathBuf>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn every_server_ends_and_its_files_go() {
        let keeper = Keeper::default();
        let scratch = std::env::temp_dir().join(format!("thalweg-keeper-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        let mut child = keeper.spawn(Command::new("sleep").arg("60"), &scratch).unwrap();
        keeper.end_all();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(!scratch.exists());
    }

    #[test]
    fn what_was_ended_is_forgotten() {
        let keeper = Keeper::default();
        let mut child = keeper.spawn(Command::new("sleep").arg("60"), Path::new("x")).unwrap();
        keeper.end(&mut child);
        assert!(keeper.lock().is_empty());
        assert!(child.try_wait().unwrap().is_some());
    }
}
