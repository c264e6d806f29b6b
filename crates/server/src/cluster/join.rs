//! `serve --join TOKEN`: a node asks a member of the cluster to be one, too, before it opens its data directory.
//!
//! # How
//! The exchange is `cluster::Joiner`. This thread may wait, so the socket is a plain one. The member's hello says how many groups
//! there are; then the directory is made, with an id that stays, and only then the node asks. So a start that ends anywhere may be
//! repeated: the cluster gives the same directory the same number. With the answer the node writes `CLUSTER`, and is a member.
//!
//! # Invariants
//! - A directory that has data of its own is not touched.

use super::secret::{self, Token};
use super::{ClusterError, make_dir, this_node};
use crate::plane;
use crate::settings::{self, Settings};
use cluster::{
    Class, Hello, JoinAnswer, JoinError, JoinQuestion, Joiner, Member, VERSION_MAX, VERSION_MIN,
};
use env::{Clock, Disk, Random, RealClock};
use log::{DataDir, Identity};
use model::Monotonic;
use node::{read_membership, replace_membership};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// For how long a cluster that does not answer is asked again.
const PATIENCE_MS: u64 = 60_000;

/// How long one address may take to be reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a member may say nothing. It waits 5 s for a leader.
const SILENCE: Duration = Duration::from_secs(8);

/// A node that is to join.
#[derive(Debug)]
pub struct Join {
    token: Token,
    /// Id of the data directory, made or not.
    store: u64,
    since: Monotonic,
    /// Why the last attempt came to nothing.
    why: Option<String>,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The node is a member.
    Yes,
    /// It may be one soon: try again in a second.
    NotYet,
}

/// Why an attempt came to nothing.
enum Failed {
    /// It will not be better.
    ForGood(ClusterError),
    /// The member could not be asked, or not now.
    ForNow(String),
}

impl From<ClusterError> for Failed {
    fn from(error: ClusterError) -> Self {
        Self::ForGood(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::ForNow(error.to_string())
    }
}

impl From<JoinError> for Failed {
    fn from(error: JoinError) -> Self {
        match error.is_for_now() {
            true => Self::ForNow(error.to_string()),
            false => Self::ForGood(ClusterError::Join(error)),
        }
    }
}

impl Join {
    /// Looks whether there is anything to do; `None` if no token was given, or the directory is a member's already.
    ///
    /// # Errors
    /// [`ClusterError`] if the directory cannot join: each says what to do.
    pub fn begin(
        settings: &Settings,
        disk: &dyn Disk,
        shard_count: u16,
        random: &mut dyn Random,
    ) -> Result<Option<Self>, ClusterError> {
        let Some(token) = &settings.join else { return Ok(None) };
        let token = secret::parse_token(token.text())?;
        let dir = &settings.data_dir;
        if let Some(found) = read_membership(disk, dir).map_err(ClusterError::File)? {
            let cluster = found.membership.cluster;
            if cluster != token.cluster {
                return Err(ClusterError::OtherCluster { token: token.cluster, cluster });
            }
            tracing::info!("the data directory is a member already; the token is not needed");
            return Ok(None);
        }
        let store = match DataDir::identity(disk, dir).map_err(ClusterError::Open)? {
            None => random.next_u64(),
            Some(Identity { store, lineage, .. })
                if lineage == token.cluster && store != lineage =>
            {
                store
            }
            Some(_) => return Err(has_data(settings, shard_count)),
        };
        let since = RealClock::new().now_monotonic();
        Ok(Some(Self { token, store, since, why: None }))
    }

    /// Asks once.
    ///
    /// # Errors
    /// [`ClusterError`] if the node will not join, or has asked for a minute.
    pub fn attempt(
        &mut self,
        settings: &Settings,
        disk: &Arc<dyn Disk>,
        random: &mut dyn Random,
    ) -> Result<Joined, ClusterError> {
        let why = match self.ask(settings, disk, random) {
            Ok(answer) => {
                self.become_member(settings, &**disk, answer)?;
                return Ok(Joined::Yes);
            }
            Err(Failed::ForGood(error)) => return Err(error),
            Err(Failed::ForNow(why)) => why,
        };
        let address = self.token.address.clone();
        let asked_ms = RealClock::new().now_monotonic().ms_since(self.since);
        if asked_ms > PATIENCE_MS {
            return Err(ClusterError::NotReached { address, why, seconds: asked_ms / 1000 });
        }
        if self.why.as_ref() != Some(&why) {
            tracing::warn!(address, why, "cannot join yet; the cluster is asked again each second");
        }
        self.why = Some(why);
        Ok(Joined::NotYet)
    }

    fn ask(
        &self,
        settings: &Settings,
        disk: &Arc<dyn Disk>,
        random: &mut dyn Random,
    ) -> Result<JoinAnswer, Failed> {
        let mut socket = connect(&self.token.address)?;
        let (mut joiner, first) = Joiner::new(self.hello(random), self.token.secret.clone());
        socket.write_all(&first)?;
        let mut buffer = [0; 4096];
        loop {
            let count = socket.read(&mut buffer)?;
            if count == 0 {
                return Err(Failed::ForNow("it has closed the link".to_owned()));
            }
            let joining = joiner.handle(&buffer[..count]);
            socket.write_all(&joining.send)?;
            if let Some(member) = joining.up {
                self.make(settings, disk, (member.group_count, random))?;
                let member = Member { store: self.store, ..this_node(settings)? };
                socket.write_all(&joiner.ask(&JoinQuestion { member }))?;
            }
            match joining.end {
                None => {}
                Some(Ok(JoinAnswer::NotNow)) => return Err(JoinError::NotNow.into()),
                Some(end) => return Ok(end?),
            }
        }
    }

    fn hello(&self, random: &mut dyn Random) -> Hello {
        let mut nonce = [0; 16];
        random.fill(&mut nonce);
        Hello {
            versions: (VERSION_MIN, VERSION_MAX),
            cluster: self.token.cluster,
            store: self.store,
            number: None,
            shard: (0, 1),
            group_count: 0,
            epoch: 0,
            features: 0,
            nonce,
            class: Class::Raft,
        }
    }

    /// Makes the directory, unless an earlier attempt has.
    fn make(
        &self,
        settings: &Settings,
        disk: &Arc<dyn Disk>,
        (groups, random): (u16, &mut dyn Random),
    ) -> Result<(), ClusterError> {
        if settings.groups != groups && settings.groups != settings::GROUPS_DEFAULT {
            let (asked, cluster) = (settings.groups, groups);
            return Err(ClusterError::Join(JoinError::GroupCount { asked, cluster }));
        }
        let settings = &Settings { groups, ..settings.clone() };
        let ids = (Some(self.store), Some(self.token.cluster));
        make_dir(settings, disk, ids, random)?;
        secret::write(&secret::path(settings), &self.token.secret)
    }

    fn become_member(
        &self,
        settings: &Settings,
        disk: &dyn Disk,
        answer: JoinAnswer,
    ) -> Result<(), ClusterError> {
        let dir: &Path = &settings.data_dir;
        let membership = answer.membership(self.token.cluster, None);
        let mut membership = membership.map_err(ClusterError::Join)?;
        let written = replace_membership(disk, dir, &mut membership);
        written.map_err(|error| ClusterError::Write { dir: dir.to_owned(), error })?;
        let (node, members) = (membership.number.get(), membership.members.len());
        tracing::info!(node, members, "joined the cluster");
        Ok(())
    }
}

/// A directory that is not empty says how much is in there.
fn has_data(settings: &Settings, shard_count: u16) -> ClusterError {
    match plane::open(settings, (shard_count, None)) {
        Ok(opened) => ClusterError::Join(JoinError::NotEmpty { streams: opened.stream_count }),
        Err(plane::StartError::Open(error)) => ClusterError::Open(error),
        Err(_) => ClusterError::OtherDirectory,
    }
}

fn connect(address: &str) -> Result<TcpStream, Failed> {
    let mut last = Failed::ForNow("its name stands for no address".to_owned());
    for found in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&found, CONNECT_TIMEOUT) {
            Ok(socket) => {
                socket.set_read_timeout(Some(SILENCE))?;
                socket.set_write_timeout(Some(SILENCE))?;
                return Ok(socket);
            }
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}
