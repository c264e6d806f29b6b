//! Snapshots of the small owner.

use super::Broken;
use super::replicas::{Log, World, group};
use model::GroupId;
use std::ops::Range;
use thalweg_log::{
    CheckpointRow, Export, ExportError, Install, InstallError, Installed, Replay, Tails, WorkReport,
};

/// What a row of the small owner says. Of a deleted stream nothing is kept.
pub fn ends(row: &CheckpointRow<'_>) -> Option<Range<u64>> {
    let number = |at: usize| Some(u64::from_le_bytes(row.bytes.get(at..at + 8)?.try_into().ok()?));
    let (head, tail) = (number(0)?, number(8)?);
    let is_deleted = *row.bytes.get(24)? == 1;
    Some(if is_deleted { tail..tail } else { head..tail })
}

/// What a group gives to a replica that has `have`.
pub fn export(world: &mut World, of: u16, have: Tails) -> Result<Export, ExportError> {
    world.log(of).export(group(of), have, ends)?.run()
}

/// Why a snapshot did not come.
#[derive(Debug)]
pub enum NotInstalled {
    Broken,
    Refused(InstallError),
}

impl From<Broken> for NotInstalled {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

/// Copies all files of an export.
pub fn receive(install: &Install, export: &Export) -> Result<(), Broken> {
    install.prepare().map_err(|_| Broken)?;
    for (number, file) in export.files().iter().enumerate() {
        let mut to = install.create(number).map_err(|_| Broken)?;
        while to.written() < file.bytes() {
            let mut piece = vec![0; (file.bytes() - to.written()).min(3000) as usize];
            file.read_at(&mut piece, to.written()).expect("the sender's disk is whole");
            to.write(&piece).map_err(|_| Broken)?;
        }
        to.finish().map_err(|_| Broken)?;
    }
    Ok(())
}

/// Runs jobs until one has ended an install. `Broken`: one has failed, and is offered again.
pub fn run_install(world: &mut World, of: u16) -> Result<Result<Installed, InstallError>, Broken> {
    for _ in 0..100 {
        let Some(job) = world.log(of).poll_work() else { panic!("it is offered") };
        let WorkReport { error, installed, .. } = world.log(of).handle_work(job.run());
        if error.is_some() {
            return Err(Broken);
        }
        if let Some(installed) = installed {
            return Ok(installed.map_err(|(_, error)| error));
        }
    }
    panic!("it comes to nothing");
}

/// The owner learns what has come of an install.
pub fn end_install(
    world: &mut World,
    of: u16,
    installed: Result<Installed, InstallError>,
) -> Result<(), NotInstalled> {
    world.settle(of, installed.is_ok());
    let installed = installed.map_err(NotInstalled::Refused)?;
    begin_again(world, group(of), &installed);
    world.log(of).check_all();
    Ok(())
}

/// Receives an export of `from`, and lets it be installed by the next jobs.
pub fn begin(
    world: &mut World,
    (of, from): (u16, &Log),
    export: &Export,
    meddle: impl FnOnce(&World),
) -> Result<(), NotInstalled> {
    let begun = world.log(of).begin_install(export.head.clone());
    let install = begun.map_err(NotInstalled::Refused)?;
    receive(&install, export)?;
    meddle(world);
    world.sync_all()?;
    let finished = world.log(of).finish_install(install, ends);
    finished.map_err(|refused| NotInstalled::Refused(refused.1))?;
    let entries = from.entries[..export.head.index.get() as usize].to_vec();
    let note = world.open[&of].note;
    world.expect(of, Log { entries, note });
    Ok(())
}

/// Receives an export of `from` and installs it; `meddle` may change what was received.
pub fn install(
    world: &mut World,
    (of, from): (u16, &Log),
    export: &Export,
    meddle: impl FnOnce(&World),
) -> Result<(), NotInstalled> {
    begin(world, (of, from), export, meddle)?;
    let installed = run_install(world, of)?;
    if let Ok(installed) = &installed {
        let found = (installed.group, installed.index, installed.term);
        assert_eq!(found, (group(of), export.head.index, export.head.term));
    }
    end_install(world, of, installed)
}

/// The owner forgets its streams and takes those of the snapshot.
fn begin_again(world: &mut World, id: GroupId, installed: &Installed) {
    let machine = &mut world.machine;
    machine.streams.retain(|key, _| key.group != id);
    let restored = machine.restore(id, installed.index, installed.header(), &mut installed.rows());
    restored.expect("a row that this version wrote");
}
