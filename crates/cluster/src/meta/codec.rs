//! Commands and the state as bytes.

use super::{
    ADDRESS_BYTES_MAX, Given, MEMBERS_MAX, Member, MemberState, Meta, MetaCommand, MetaOutcome,
    MetaRefusal, Place,
};
use crate::codec::{DecodeError, Reader, Writer};
use crate::configuration::{REPLICAS_MAX, read_replica};
use crate::identity::NodeNumber;
use model::GroupId;
use std::collections::BTreeMap;

/// The version of the state's bytes.
const VERSION: u8 = 1;

impl MetaCommand {
    /// The bytes: the command of an entry of the meta group.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer(&mut out);
        match self {
            Self::Join(member) => {
                writer.byte(1);
                write_member(&mut writer, member);
            }
            Self::Announce { number, member } => {
                writer.byte(2);
                writer.number(number.get().into());
                write_member(&mut writer, member);
            }
            Self::SetState { number, state } => {
                writer.byte(3);
                writer.number(number.get().into());
                writer.byte(state_byte(*state));
            }
            Self::Place { group, nodes } => {
                writer.byte(4);
                writer.number(group.get().into());
                write_nodes(&mut writer, nodes);
            }
            Self::Renew { group, replica, epoch } => {
                writer.byte(5);
                writer.number(group.get().into());
                writer.number(replica.bits());
                writer.number(*epoch);
            }
            Self::SetReplication(voters) => {
                writer.byte(6);
                writer.number((*voters).into());
            }
            Self::Placed { group, nodes, revision } => {
                writer.byte(7);
                writer.number(group.get().into());
                write_nodes(&mut writer, nodes);
                writer.number(*revision);
            }
            Self::Check => writer.byte(8),
        }
        out
    }

    /// The command that these bytes are.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let command = match reader.byte()? {
            1 => Self::Join(read_member(&mut reader)?),
            2 => Self::Announce {
                number: read_number(&mut reader)?,
                member: read_member(&mut reader)?,
            },
            3 => Self::SetState {
                number: read_number(&mut reader)?,
                state: read_state(&mut reader)?,
            },
            4 => Self::Place {
                group: GroupId::new(reader.short()?),
                nodes: read_nodes(&mut reader)?,
            },
            5 => Self::Renew {
                group: GroupId::new(reader.short()?),
                replica: read_replica(&mut reader)?,
                epoch: reader.number()?,
            },
            6 => Self::SetReplication(reader.short()?),
            7 => Self::Placed {
                group: GroupId::new(reader.short()?),
                nodes: read_nodes(&mut reader)?,
                revision: reader.number()?,
            },
            8 => Self::Check,
            _ => return reader.error(),
        };
        reader.end()?;
        Ok(command)
    }
}

impl MetaOutcome {
    /// Appends the bytes: one for the kind, then its numbers.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        let (kind, number) = match self {
            Self::Joined(number) => (1, Some(number.get().into())),
            Self::Renewed(replica) => (2, Some(replica.bits())),
            Self::Done => (3, None),
            Self::Checking(number) => (10, Some(*number)),
            Self::Refused(refusal) => return write_refusal(&mut writer, *refusal),
        };
        writer.byte(kind);
        number.into_iter().for_each(|number| writer.number(number));
    }

    /// The outcome that these bytes are.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let outcome = match reader.byte()? {
            1 => Self::Joined(read_number(&mut reader)?),
            2 => Self::Renewed(read_replica(&mut reader)?),
            3 => Self::Done,
            10 => Self::Checking(reader.number()?),
            _ => {
                reader = Reader::new(bytes);
                Self::Refused(read_refusal(&mut reader)?)
            }
        };
        reader.end()?;
        Ok(outcome)
    }
}

impl Meta {
    /// Appends the state: the checkpoint of the meta group.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        writer.byte(VERSION);
        writer.number(self.cluster);
        writer.number(self.group_count.into());
        writer.number(self.replication.into());
        writer.number(self.checks);
        write_members(&mut writer, &self.members);
        for map in [&self.targets, &self.placed] {
            writer.number(map.len() as u64);
            for (group, place) in map {
                writer.number(group.get().into());
                write_nodes(&mut writer, &place.nodes);
                writer.number(place.revision);
            }
        }
        writer.number(self.incarnations.len() as u64);
        for ((group, node), Given { incarnation, epoch }) in &self.incarnations {
            writer.number(group.get().into());
            writer.number(node.get().into());
            writer.number(*incarnation);
            writer.number(*epoch);
        }
    }

    /// The state that these bytes are.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return reader.error();
        }
        let mut meta = Self::new(reader.number()?, reader.short()?);
        meta.replication = reader.short()?;
        meta.checks = reader.number()?;
        meta.members = read_members(&mut reader)?;
        let targets_max = u64::from(u16::MAX);
        for map in [&mut meta.targets, &mut meta.placed] {
            *map = read_map(&mut reader, targets_max, |reader| {
                let group = GroupId::new(reader.short()?);
                Ok((group, Place { nodes: read_nodes(reader)?, revision: reader.number()? }))
            })?;
        }
        let replicas_max = targets_max * u64::from(MEMBERS_MAX);
        meta.incarnations = read_map(&mut reader, replicas_max, |reader| {
            let key = (GroupId::new(reader.short()?), read_number(reader)?);
            let incarnation = reader.number_below((1 << 48) - 1)?;
            let given = Given { incarnation, epoch: reader.number()? };
            if incarnation == 0 { reader.error() } else { Ok((key, given)) }
        })?;
        reader.end()?;
        Ok(meta)
    }
}

/// One byte for the kind, behind those of other outcomes, then its number.
pub(crate) fn write_refusal(writer: &mut Writer<'_>, refusal: MetaRefusal) {
    let (kind, number) = match refusal {
        MetaRefusal::NoMember(number) => (4, Some(number)),
        MetaRefusal::WasRemoved(number) => (5, Some(number)),
        MetaRefusal::OtherStore(number) => (6, Some(number)),
        MetaRefusal::OldDisk => (7, None),
        MetaRefusal::Full => (8, None),
        MetaRefusal::Impossible => (9, None),
    };
    writer.byte(kind);
    number.into_iter().for_each(|number| writer.number(number.get().into()));
}

pub(crate) fn read_refusal(reader: &mut Reader<'_>) -> Result<MetaRefusal, DecodeError> {
    Ok(match reader.byte()? {
        4 => MetaRefusal::NoMember(read_number(reader)?),
        5 => MetaRefusal::WasRemoved(read_number(reader)?),
        6 => MetaRefusal::OtherStore(read_number(reader)?),
        7 => MetaRefusal::OldDisk,
        8 => MetaRefusal::Full,
        9 => MetaRefusal::Impossible,
        _ => return reader.error(),
    })
}

/// A list in rising order.
pub(crate) fn read_map<K: Ord, V>(
    reader: &mut Reader<'_>,
    max: u64,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<(K, V), DecodeError>,
) -> Result<BTreeMap<K, V>, DecodeError> {
    let mut map = BTreeMap::new();
    for _ in 0..reader.number_below(max)? {
        let (key, value) = read(reader)?;
        if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return reader.error();
        }
        map.insert(key, value);
    }
    Ok(map)
}

/// All members with their numbers.
pub(crate) fn write_members(writer: &mut Writer<'_>, members: &BTreeMap<NodeNumber, Member>) {
    writer.number(members.len() as u64);
    for (number, member) in members {
        writer.number(number.get().into());
        write_member(writer, member);
    }
}

pub(crate) fn read_members(
    reader: &mut Reader<'_>,
) -> Result<BTreeMap<NodeNumber, Member>, DecodeError> {
    read_map(reader, MEMBERS_MAX.into(), |reader| Ok((read_number(reader)?, read_member(reader)?)))
}

pub(crate) fn write_member(writer: &mut Writer<'_>, member: &Member) {
    writer.number(member.store);
    writer.text(&member.peer_address);
    writer.text(&member.client_address);
    writer.byte(state_byte(member.state));
    writer.number(member.version.into());
    writer.number(member.epoch);
}

pub(crate) fn read_member(reader: &mut Reader<'_>) -> Result<Member, DecodeError> {
    Ok(Member {
        store: reader.number()?,
        peer_address: reader.text(ADDRESS_BYTES_MAX)?,
        client_address: reader.text(ADDRESS_BYTES_MAX)?,
        state: read_state(reader)?,
        version: reader.short()?,
        epoch: reader.number()?,
    })
}

fn state_byte(state: MemberState) -> u8 {
    match state {
        MemberState::Active => 0,
        MemberState::Draining => 1,
        MemberState::Leaving => 2,
        MemberState::Removed => 3,
    }
}

fn read_state(reader: &mut Reader<'_>) -> Result<MemberState, DecodeError> {
    match reader.byte()? {
        0 => Ok(MemberState::Active),
        1 => Ok(MemberState::Draining),
        2 => Ok(MemberState::Leaving),
        3 => Ok(MemberState::Removed),
        _ => reader.error(),
    }
}

fn write_nodes(writer: &mut Writer<'_>, nodes: &[NodeNumber]) {
    writer.number(nodes.len() as u64);
    nodes.iter().for_each(|node| writer.number(node.get().into()));
}

fn read_nodes(reader: &mut Reader<'_>) -> Result<Vec<NodeNumber>, DecodeError> {
    let count = reader.number_below(REPLICAS_MAX as u64)?;
    (0..count).map(|_| read_number(reader)).collect()
}

pub(crate) fn read_number(reader: &mut Reader<'_>) -> Result<NodeNumber, DecodeError> {
    match reader.short()? {
        0 => reader.error(),
        number => Ok(NodeNumber::new(number)),
    }
}
