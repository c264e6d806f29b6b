//! One bit of one file flips while the server is down. Only the streams that it hits may report
//! damage, with the name of the file. All others are intact.
//!
//! Each flip hits a copy of the same directory, so that its damage does not reach the next flip.

use crate::numbers::Numbers;
use crate::report::{Report, add};
use crate::server::{Server, files};
use crate::trial::{Options, Outcome, SMALL, Trial, Verdict, wait_until};
use crate::verify::Allowed;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a bit may flip. `wal` is listed twice: most unsealed data is only there.
const PLACES: [&str; 6] = ["wal", "chunks", "checkpoints", "wal", "FORMAT", "FORMAT.copy"];
/// Flips on copies of one directory.
const FLIPS_PER_BASE: u64 = 10;
const LOAD: Duration = Duration::from_millis(2500);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(5, 60);
    on_copies((options, report), "bit-flip", (cycles, FLIPS_PER_BASE), |trial, done| {
        flip_one(trial, PLACES[done % PLACES.len()])
    })
}

/// Runs `one` so many times, each on its own copy of a directory, with how many were done before. A directory serves
/// `per_base` of them.
pub(super) fn on_copies(
    (options, report): (&Options, &Report),
    scenario: &'static str,
    (cycles, per_base): (u64, u64),
    one: impl Fn(&mut Trial<'_>, usize) -> Outcome<()>,
) -> Outcome<Verdict> {
    let copy = options.dir.join(format!("{scenario}-copy"));
    let mut done = 0;
    while done < cycles {
        let base = options.dir.join(format!("{scenario}-base-{done}"));
        let mut options = options.clone();
        options.seed = options.seed.wrapping_add(done);
        let mut trial = Trial::new(&options, report, scenario, &base)?;
        fill(&mut trial)?;
        for _ in 0..per_base.min(cycles - done) {
            copy_dir(&base, &copy).map_err(|error| format!("cannot copy: {error}"))?;
            trial.start.data.clone_from(&copy);
            one(&mut trial, usize::try_from(done).unwrap_or(0))?;
            done += 1;
            trial.count_cycle(cycles);
        }
        fs::remove_dir_all(&base).map_err(|error| error.to_string())?;
    }
    Ok(Verdict::Done)
}

/// Makes a directory whose contents are all known.
fn fill(trial: &mut Trial<'_>) -> Outcome<()> {
    let server = serve(trial)?;
    let round = trial.round(&server);
    let killed = round.run(|| {
        std::thread::sleep(LOAD);
        round.expect_death();
        server.kill()
    });
    killed?;
    let server = serve(trial)?;
    trial.verify(&server, Allowed::default())?;
    if trial.numbers.chance(50) { server.stop() } else { server.kill() }
}

pub(super) fn serve(trial: &mut Trial<'_>) -> Outcome<Server> {
    let shards = format!("--shards={}", trial.numbers.within(1, 5));
    trial.start.flags = SMALL.iter().map(|flag| (*flag).to_owned()).chain([shards]).collect();
    trial.start.serve()
}

fn flip_one(trial: &mut Trial<'_>, place: &str) -> Outcome<()> {
    let Some((file, at)) = choose(&trial.start.data, place, &mut trial.numbers) else {
        return Ok(());
    };
    let bit = 1 << trial.numbers.below(8);
    flip(&file, at, bit).map_err(|error| format!("cannot flip a bit: {error}"))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let what = format!("bit {bit:#04x} of byte {at} of {} flipped", file.display());
    let log_from = trial.start.log_bytes();
    let server = serve(trial).map_err(|error| format!("{what}: {error}"))?;
    let allowed =
        Allowed { damaged_file: Some(name.clone()), read_only: true, ..Allowed::default() };
    let damaged = trial.verify(&server, allowed).map_err(|error| format!("{what}: {error}"))?;
    let is_format = place.starts_with("FORMAT");
    if is_format && !damaged.is_empty() {
        return Err(format!("{what}, and {} streams are damaged", damaged.len()));
    }
    if !damaged.is_empty() || is_format {
        let named = wait_until("an ERROR names the file", || {
            let log = trial.start.log_from(log_from);
            Ok(log.lines().any(|line| line.contains("ERROR") && line.contains(&name)))
        });
        named.map_err(|why| format!("{what}, {} streams are damaged: {why}", damaged.len()))?;
    }
    if place == "wal" && damaged.len() > trial.family_max() {
        let what = format!("{what}: one entry is hit and {} streams are damaged", damaged.len());
        return Err(what);
    }
    add(&trial.report.flips_felt, u64::from(!damaged.is_empty()));
    server.kill()
}

/// A file of that kind and a place in it; one that holds something, if that is found soon.
pub(super) fn choose(data: &Path, place: &str, numbers: &mut Numbers) -> Option<(PathBuf, usize)> {
    let of_kind = |file: &PathBuf| {
        let inside = file.strip_prefix(data).is_ok_and(|inside| inside.starts_with(place));
        inside && file.extension().is_none_or(|extension| extension != "tmp")
    };
    let files: Vec<PathBuf> = files(data).into_iter().filter(of_kind).collect();
    let mut chosen = None;
    for _ in 0..100 {
        let file = files.get(numbers.below(files.len().max(1)))?;
        let bytes = fs::read(file).ok().filter(|bytes| !bytes.is_empty())?;
        let at = numbers.below(bytes.len());
        let is_filled = bytes[at] != 0;
        chosen = Some((file.clone(), at));
        if is_filled {
            break;
        }
    }
    chosen
}

fn flip(file: &Path, at: usize, bit: u8) -> std::io::Result<()> {
    let mut bytes = fs::read(file)?;
    bytes[at] ^= bit;
    fs::write(file, bytes)
}

fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).expect("it is below"));
        fs::create_dir_all(target.parent().expect("a file is in a directory"))?;
        fs::copy(&file, &target)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_flips_in_a_copy_and_only_there() {
        let dir = std::env::temp_dir().join(format!("thalweg-crash-flip-{}", std::process::id()));
        fs::create_dir_all(dir.join("a/wal")).unwrap();
        fs::write(dir.join("a/wal/1.wal"), [7; 10]).unwrap();
        fs::write(dir.join("a/FORMAT"), [7; 10]).unwrap();
        copy_dir(&dir.join("a"), &dir.join("b")).unwrap();
        let (file, at) = choose(&dir.join("b"), "wal", &mut Numbers::of(1, &[])).unwrap();
        flip(&file, at, 4).unwrap();
        let changed = fs::read(&file).unwrap();
        assert_eq!(changed.iter().filter(|byte| **byte == 3).count(), 1);
        assert_eq!(fs::read(dir.join("a/wal/1.wal")).unwrap(), [7; 10]);
        assert_eq!(fs::read(dir.join("b/FORMAT")).unwrap(), [7; 10]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
