//! `thalweg serve`: starts everything, waits for the signal to end, stops everything.

use crate::admin::{self, Admin};
use crate::metrics::NodeMetrics;
use crate::settings::Settings;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Why the server could not start.
#[derive(Debug)]
pub enum ServeError {
    /// The admin server could not listen.
    Admin {
        /// The address of the setting.
        listen: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The signals that end the process could not be received.
    Signals {
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin { listen, error } => {
                write!(f, "cannot listen on {listen} (setting admin_listen): {error}")
            }
            Self::Signals { error } => write!(f, "cannot receive signals: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`ServeError`] if the server could not start; nothing was served then.
pub fn run_serve(settings: &Settings) -> Result<ExitCode, ServeError> {
    let node = NodeMetrics::new(settings.shard_count(1));
    let admin = start_admin(settings, &node)?;
    wait_for_signal().map_err(|error| ServeError::Signals { error })?;
    node.set_shutting_down();
    if let Some(admin) = admin {
        admin.stop();
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn start_admin(settings: &Settings, node: &Arc<NodeMetrics>) -> Result<Option<Admin>, ServeError> {
    let Some(listen) = settings.admin_listen else { return Ok(None) };
    let admin = admin::start(listen, Arc::clone(node))
        .map_err(|error| ServeError::Admin { listen, error })?;
    tracing::info!(address = %admin.address(), "admin server listens");
    Ok(Some(admin))
}

fn wait_for_signal() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}
