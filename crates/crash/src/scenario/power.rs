//! The power goes: the file system is ended without its log, the process killed, the file system
//! mounted again. What was not synced is gone; what was acknowledged must be there.

use crate::disk::Disk;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use crate::verify::Allowed;
use std::time::Duration;

/// Room for what the load keeps, several times over.
const DISK_MIB: u64 = 2048;

/// What a server may answer between the cut and its end.
const AFTER_THE_CUT: &[&str] = &["write-unknown", "storage-failed", "disk-full", "internal"];

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(4, 50);
    let mut disk = match Disk::make(&options.dir, "power", DISK_MIB) {
        Ok(disk) => disk,
        Err(missing) => return Ok(Verdict::Skipped(missing)),
    };
    let mut trial = Trial::new(options, report, "power", &disk.path().join("data"))?;
    let mut server = trial.serve()?;
    for _ in 0..cycles {
        let pause = Duration::from_millis(trial.numbers.within(10, 1500));
        let linger = Duration::from_millis(trial.numbers.within(0, 60));
        let round = trial.round(&server).expecting(AFTER_THE_CUT).losing_its_disk();
        let cut = round.run(|| {
            std::thread::sleep(pause);
            round.expect_death();
            let cut = disk.cut_power();
            std::thread::sleep(linger);
            // It may have ended by itself: its disk is gone.
            let _ = server.kill();
            cut
        });
        if let Err(missing) = cut {
            return Ok(Verdict::Skipped(missing));
        }
        trial.clean()?;
        disk.unmount()?;
        disk.check()?;
        disk.mount()?;
        server = trial.serve()?;
        trial.verify(&server, Allowed::default())?;
        trial.count_cycle(cycles);
    }
    server.stop()?;
    Ok(Verdict::Done)
}
