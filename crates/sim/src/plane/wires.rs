//! Connections without sockets: reads and writes that are cut short as the seed says.

use super::{Piece, frame_mutants::FrameMutant};
use crate::{dice::Dice, mutant::Mutant};
use node::Failure;
use session::{Close, ConnId, Read, Sent, Transport};
use std::collections::BTreeMap;

/// One connection, as the shard's side has it.
#[derive(Debug)]
struct Wire {
    number: u32,
    /// What arrived and was not read.
    input: Vec<u8>,
    is_half_closed: bool,
    /// The client takes nothing for now.
    is_stalled: bool,
    frame_mutant: Option<FrameMutant>,
}

/// The connections of one shard.
#[derive(Debug)]
pub(super) struct Wires {
    wires: BTreeMap<ConnId, Wire>,
    conns: BTreeMap<u32, ConnId>,
    pub(super) answers: Vec<Piece>,
    pub(super) stalled: Vec<u32>,
    mutant: Option<Mutant>,
    takes_files: bool,
    dice: Dice,
}

impl Wires {
    pub(super) fn new(mut dice: Dice, mutant: Option<Mutant>) -> Self {
        Self {
            wires: BTreeMap::new(),
            conns: BTreeMap::new(),
            answers: Vec::new(),
            stalled: Vec::new(),
            mutant,
            takes_files: dice.percent(50),
            dice,
        }
    }

    pub(super) fn add(&mut self, conn: ConnId, number: u32) {
        let wire = Wire {
            number,
            input: Vec::new(),
            is_half_closed: false,
            is_stalled: false,
            frame_mutant: FrameMutant::new(self.mutant),
        };
        self.wires.insert(conn, wire);
        self.conns.insert(number, conn);
    }

    /// The connection of a client that is still there.
    pub(super) fn conn(&self, number: u32) -> Option<ConnId> {
        self.conns.get(&number).copied()
    }

    pub(super) fn count(&self) -> usize {
        self.wires.len()
    }

    /// Bytes of a client have come.
    pub(super) fn arrive(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(wire) = self.wires.get_mut(&conn) {
            match &mut wire.frame_mutant {
                Some(mutant) => wire.input.extend(mutant.arrive(bytes)),
                None => wire.input.extend_from_slice(bytes),
            }
        }
    }

    pub(super) fn half_close(&mut self, conn: ConnId) {
        if let Some(wire) = self.wires.get_mut(&conn) {
            wire.is_half_closed = true;
        }
    }

    pub(super) fn unstall(&mut self, conn: ConnId) {
        if let Some(wire) = self.wires.get_mut(&conn) {
            wire.is_stalled = false;
        }
    }
}

impl Transport for Wires {
    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Read {
        let Some(wire) = self.wires.get_mut(&conn) else { return Read::Broken };
        let most = wire.input.len().min(buffer.len());
        if most == 0 {
            return if wire.is_half_closed { Read::End } else { Read::Nothing };
        }
        let is_cut = self.dice.percent(20);
        let count = if is_cut { self.dice.between(1, most as u64) as usize } else { most };
        buffer[..count].copy_from_slice(&wire.input[..count]);
        wire.input.drain(..count);
        if wire.input.is_empty() { Read::Last(count) } else { Read::Bytes(count) }
    }

    fn write(&mut self, conn: ConnId, pieces: &[session::Piece<'_>]) -> Sent {
        let Some(wire) = self.wires.get_mut(&conn) else { return Sent::Broken };
        if wire.is_stalled {
            return Sent::Bytes(0);
        }
        let total: u64 = pieces.iter().map(session::Piece::bytes).sum();
        let count = if self.dice.percent(12) { self.dice.below(total) } else { total };
        let Ok(mut bytes) = bytes_of(pieces) else { return Sent::Broken };
        bytes.truncate(usize::try_from(count).expect("pieces fit memory"));
        if count < total {
            wire.is_stalled = true;
            self.stalled.push(wire.number);
            if self.mutant == Some(Mutant::LostBytes) {
                bytes.pop();
            }
        }
        if let Some(mutant) = &mut wire.frame_mutant {
            bytes = mutant.leave(bytes);
        }
        if !bytes.is_empty() {
            let wire = wire.number;
            self.answers.push(Piece { wire, bytes, ends: false, by_damage: false });
        }
        Sent::Bytes(count)
    }

    fn takes_files(&self, _: ConnId) -> bool {
        self.takes_files
    }

    fn has_unsent(&self, _: ConnId) -> bool {
        false
    }

    fn close(&mut self, conn: ConnId, how: Close) {
        let by_damage = matches!(how, Close::Cut(Failure::Damaged { .. }));
        let Some(wire) = self.wires.get(&conn) else { return };
        let number = wire.number;
        if how != Close::Writes {
            self.wires.remove(&conn);
            self.conns.remove(&number);
        }
        self.answers.push(Piece { wire: number, bytes: Vec::new(), ends: true, by_damage });
    }

    fn turn_ns(&self) -> u64 {
        // Longer with every answer, so that a busy turn becomes a long one.
        self.answers.len() as u64 * 100_000
    }
}

fn bytes_of(pieces: &[session::Piece<'_>]) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for piece in pieces {
        match piece {
            session::Piece::Bytes(bytes) => all.extend_from_slice(bytes),
            session::Piece::File { file, position, bytes } => {
                let mut part = vec![0; usize::try_from(*bytes).expect("a range fits memory")];
                file.read_exact_at(&mut part, *position)?;
                all.extend_from_slice(&part);
            }
        }
    }
    Ok(all)
}
