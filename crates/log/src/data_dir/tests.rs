use super::*;
use crate::damage::DamageKind;
use env::{MemoryDisk, SeededRandom};

const DIR: &str = "/data";

fn open_as(disk: &MemoryDisk, owner: Owner, group_count: u16) -> Result<DataDir, OpenError> {
    let options = LogOptions { group_count, ..LogOptions::default() };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    DataDir::open(disk, Path::new(DIR), options, owner, &mut SeededRandom::new(1))
}

fn open(disk: &MemoryDisk) -> Result<DataDir, OpenError> {
    open_as(disk, Owner::SERVER, 8)
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// A directory that was opened once, with the names that a log would make in it.
fn made() -> MemoryDisk {
    let disk = MemoryDisk::new();
    open(&disk).unwrap();
    disk.create_dir_all(&path("wal")).unwrap();
    disk
}

fn bytes_of(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    let file = disk.open(&path(name)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn overwrite(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(&path(name)).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

#[test]
fn a_directory_is_made_once_and_known_again() {
    let disk = MemoryDisk::new();
    let first = open(&disk).unwrap();
    assert!(first.is_new);
    let format = first.format;
    assert_eq!(format.lineage, format.store, "it continues no other directory");
    drop(first);
    let again = open(&disk).unwrap();
    assert!(!again.is_new);
    assert_eq!((again.format, again.damage), (format, None));
    assert_eq!(bytes_of(&disk, FORMAT_NAME), bytes_of(&disk, COPY_NAME));
}

#[test]
fn a_directory_is_found_when_it_is_there_and_nobody_has_it() {
    let disk = MemoryDisk::new();
    let find = || DataDir::find(&disk, Path::new(DIR));
    assert!(!find().unwrap());
    assert!(disk.list(Path::new(DIR)).is_err(), "nothing is made");
    let held = open(&disk).unwrap();
    assert!(matches!(find(), Err(OpenError::Locked(_))));
    drop(held);
    assert!(find().unwrap());
}

#[test]
fn ids_come_from_the_random_numbers_that_are_passed() {
    let expected = SeededRandom::new(1).next_u64();
    assert_eq!(open(&MemoryDisk::new()).unwrap().format.store, expected);
}

#[test]
fn a_directory_in_use_of_others_or_of_another_shape_is_refused() {
    let disk = MemoryDisk::new();
    let held = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Locked(_))));
    drop(held);
    let refused = open_as(&disk, Owner::SERVER, 9).unwrap_err();
    assert!(matches!(refused, OpenError::GroupCount { found: 8, asked: 9 }));
    let elsewhere = Owner { placement: 9, ..Owner::SERVER };
    let refused = open_as(&disk, elsewhere, 8).unwrap_err();
    assert!(matches!(refused, OpenError::Placement { found: 1, known: 9 }));

    let foreign = MemoryDisk::new();
    foreign.create_dir_all(Path::new(DIR)).unwrap();
    foreign.create(&path("holiday.jpg")).unwrap();
    assert!(matches!(open(&foreign), Err(OpenError::Foreign { .. })));
    assert_eq!(foreign.list(Path::new(DIR)).unwrap(), ["holiday.jpg"], "nothing was written");
}

#[test]
fn each_program_refuses_the_directories_of_the_others_and_says_whose_they_are() {
    let other = Owner { application: "some other program", kind: 200, placement: 0 };
    for (made_by, says) in [
        (Owner::SERVER, "belongs to thalweg serve, not to"),
        (Owner::ENGINE, "belongs to thalweg-engine, not to"),
        (other, "belongs to some other program, not to"),
    ] {
        let disk = MemoryDisk::new();
        open_as(&disk, made_by, 8).unwrap();
        let files = disk.paths();
        for opened_by in [Owner::SERVER, Owner::ENGINE, other] {
            let opened = open_as(&disk, opened_by, 8);
            if opened_by == made_by {
                opened.unwrap();
            } else {
                let said = opened.unwrap_err().to_string();
                assert!(said.contains(says) && said.contains(opened_by.application), "{said}");
                assert!(
                    said.contains(DIR) && said.contains("open it") | said.contains("start"),
                    "{said}"
                );
            }
        }
        assert_eq!(disk.paths(), files, "a refusal writes nothing");
    }
}

#[test]
fn a_new_directory_may_continue_another_one_and_an_old_one_may_not() {
    let open_of = |disk: &MemoryDisk, lineage| {
        let options = LogOptions { group_count: 8, lineage, ..LogOptions::default() };
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let random = &mut SeededRandom::new(1);
        DataDir::open(disk, Path::new(DIR), options, Owner::SERVER, random)
    };
    let disk = MemoryDisk::new();
    let format = open_of(&disk, Some(5)).unwrap().format;
    assert_eq!((format.lineage, format.store == 5), (5, false));
    for lineage in [None, Some(5)] {
        assert_eq!(open_of(&disk, lineage).unwrap().format, format);
    }
    let identity = Identity { store: format.store, lineage: 5, group_count: 8 };
    assert_eq!(DataDir::identity(&disk, Path::new(DIR)).unwrap(), Some(identity));
    assert_eq!(DataDir::identity(&MemoryDisk::new(), Path::new(DIR)).unwrap(), None);
    let refused = open_of(&disk, Some(6)).unwrap_err();
    assert!(matches!(refused, OpenError::Lineage { found: 5, asked: 6, .. }), "{refused}");
}

#[test]
fn a_directory_of_an_older_or_newer_version_is_refused() {
    let disk = made();
    disk.remove(&path(COPY_NAME)).unwrap();
    overwrite(&disk, FORMAT_NAME, include_bytes!("../../testdata/format-1.golden"));
    let refused = open(&disk).unwrap_err();
    assert!(matches!(refused, OpenError::Version { found: 1, known: 5, .. }), "{refused}");
    assert!(refused.to_string().contains("before the first release"), "{refused}");

    for is_copy_damaged in [false, true] {
        let disk = made();
        let mut newer = bytes_of(&disk, FORMAT_NAME);
        newer[8] = 6;
        crate::codec::seal_header(newer.first_chunk_mut::<64>().unwrap(), &[]);
        [FORMAT_NAME, COPY_NAME].iter().for_each(|name| overwrite(&disk, name, &newer));
        if is_copy_damaged {
            disk.flip_bit(&path(COPY_NAME), 100);
        }
        let refused = open(&disk).unwrap_err();
        assert!(matches!(refused, OpenError::Version { found: 6, known: 5, .. }), "{refused}");
        assert!(refused.to_string().contains("use the newer program"), "{refused}");
    }
}

#[test]
fn a_spare_byte_in_either_copy_is_a_newer_versions() {
    for (name, spare) in [FORMAT_NAME, COPY_NAME]
        .into_iter()
        .flat_map(|name| [22, 23, 56, 59].into_iter().map(move |spare| (name, spare)))
    {
        let disk = made();
        let mut newer = bytes_of(&disk, name);
        newer[spare] = 1;
        crate::codec::seal_header(newer.first_chunk_mut::<64>().unwrap(), &[]);
        overwrite(&disk, name, &newer);
        let refused = open(&disk).unwrap_err();
        assert!(matches!(refused, OpenError::Newer { .. }), "{name}, byte {spare}: {refused}");
    }
}

#[test]
fn one_intact_copy_opens_and_the_other_one_is_reported() {
    for (hit, intact) in [(FORMAT_NAME, COPY_NAME), (COPY_NAME, FORMAT_NAME)] {
        let damages: [fn(&MemoryDisk, &str); 4] = [
            |disk, name| disk.flip_bit(&path(name), 100),
            |disk, name| overwrite(disk, name, b""),
            |disk, name| overwrite(disk, name, &[0; 64]),
            |disk, name| disk.remove(&path(name)).unwrap(),
        ];
        for damage in damages {
            let disk = made();
            let format = open(&disk).unwrap().format;
            damage(&disk, hit);
            let files = disk.paths();
            let opened = open(&disk).unwrap();
            assert_eq!(opened.format, format);
            let expected = Damage::at(DamageKind::FormatCopy, &path(hit), 0);
            assert_eq!(opened.damage, Some(expected));
            assert_eq!(disk.paths(), files, "nothing is written in its place");
            disk.flip_bit(&path(intact), 300);
            drop(opened);
            assert!(matches!(open(&disk), Err(OpenError::FormatDamaged { .. })), "both are lost");
        }
    }
}

#[test]
fn any_flipped_bit_of_one_copy_is_reported() {
    for bit in 0..64 * 8 {
        let disk = made();
        disk.flip_bit(&path(FORMAT_NAME), bit);
        let damage = open(&disk).unwrap().damage.expect("it is told");
        assert_eq!(damage.kind, DamageKind::FormatCopy);
    }
}

#[test]
fn copies_of_two_directories_are_refused() {
    let disk = made();
    let other = MemoryDisk::new();
    open_as(&other, Owner::SERVER, 9).unwrap();
    overwrite(&disk, FORMAT_NAME, &bytes_of(&other, FORMAT_NAME));
    assert!(matches!(open(&disk), Err(OpenError::FormatsDiffer { .. })));
}

#[test]
fn sealed_copies_that_differ_in_one_byte_are_refused() {
    for position in 0..60 {
        let disk = made();
        let mut bytes = bytes_of(&disk, FORMAT_NAME);
        bytes[position] ^= 0x40;
        crate::codec::seal_header(bytes.first_chunk_mut::<64>().unwrap(), &[]);
        overwrite(&disk, FORMAT_NAME, &bytes);
        match open(&disk) {
            // Without its magic the copy is damaged, and the other one counts.
            Ok(opened) => assert!(position < 8 && opened.damage.is_some(), "byte {position}"),
            Err(OpenError::Newer { position: told, .. }) => {
                assert!([22, 23, 56, 57, 58, 59].contains(&position), "byte {position}");
                assert_eq!(told, position as u64);
            }
            Err(OpenError::FormatsDiffer { .. }) => assert!(position >= 8, "byte {position}"),
            Err(error) => panic!("byte {position}: {error}"),
        }
    }
}

#[test]
fn a_start_that_power_loss_interrupts_leaves_a_directory_that_opens() {
    for changes in 0..12 {
        for seed in 0..20 {
            let disk = MemoryDisk::new();
            disk.power_off_after(changes);
            let first = open(&disk).map(|dir| dir.format);
            disk.crash(&mut SeededRandom::new(seed));
            disk.power_off_after(u64::MAX);
            let opened = open(&disk).unwrap();
            assert_eq!(opened.damage, None, "{changes} changes, seed {seed}");
            if let Ok(format) = first {
                assert_eq!(opened.format, format, "it was complete");
                assert!(!opened.is_new);
            }
        }
    }
}
