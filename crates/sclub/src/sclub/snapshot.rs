//! Saving and loading. A loaded state continues with the same bits.
//!
//! The format, in words of eight bytes, little-endian:
//!
//! | field | words |
//! |---|---|
//! | [`Sclub::MAGIC`], version, words in all | 3 |
//! | d; α_θ, α_p, index, kind of exploration, its number | 6 |
//! | rounds, users declared, last label, place of the first cluster | 4 |
//! | users seen, in order of appearance | 1 + n |
//! | for each: T, cluster, position, phase checked in, whether alone; block | 5 + d(d+5)/2 |
//! | places of clusters; for each whether there is one | 1 + n |
//! | for each cluster: label, F(T), phase, checked, index of its sketch; members | |
//! | free places | 1 + n |
//! | checksum of all before | 1 |

use std::io::{self, Read};

use super::Sclub;
use super::cluster::{Cluster, Many, Members, Pivot};
use super::nearby::Nearby;
use super::partition::Partition;
use super::phase::phase_of;
use super::profile::Place;
use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::error::{Error, LoadError};
use crate::frequencies::Frequencies;
use crate::ledger::load_roster;
use crate::params::Params;
use crate::policy::{Clock, MAX_ROUNDS, Users};
use crate::radius::radius;
use crate::statistics::{Aggregate, Shape};

/// The word for a cluster without a sketch.
const NO_SKETCH: u64 = u64::MAX;

impl Sclub {
    /// The whole state as bytes, those of [`crate::Persist::save_to`].
    pub fn save(&self) -> Vec<u8> {
        bytes::save_to_vec(self)
    }

    /// Loads the state that was saved as these bytes.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`] if they are not a valid state; [`Error::BadParameter`] and
    /// [`Error::Dimension`] for numbers that no state has.
    pub fn load(bytes: &[u8]) -> Result<Self, Error> {
        bytes::load_slice(bytes, |input| Self::load_from(input))
    }

    /// Loads the state that [`crate::Persist::save_to`] wrote, in small pieces, and reads not a byte more.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the input fails; [`LoadError::State`] as for [`Sclub::load`].
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let reader = Reader::new(input)?;
        reader.expect(Self::MAGIC)?;
        Self::load_words(reader)
    }

    /// Loads the words after the header.
    pub(crate) fn load_words(mut reader: Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.u32()? as usize;
        let params = Params::load(&mut reader)?;
        // Below the overflow of the counter.
        let rounds = reader.at_most(MAX_ROUNDS)?;
        let declared = reader.at_most(Users::LIMIT)?;
        let users = if declared == 0 {
            Users::Appear
        } else {
            Users::Declared(declared)
        };
        let mut state = Self::new(dim, users, &params)?;
        let shape = state.shape;
        state.clock = Clock::at(rounds)?;
        state.partition.phase = if rounds == 0 { 0 } else { phase_of(rounds) };
        state.partition.last_label = reader.at_most(MAX_ROUNDS)?;
        state.partition.first = reader.u32()?;
        load_profiles(&mut state.partition, &mut reader)?;
        load_clusters(&mut state.partition, shape, &mut reader)?;
        reader.end()?;
        check_places(&state.partition)?;
        check_labels(&state.partition)?;
        let users = state.partition.roster.users().iter();
        let appeared = users.filter(|&&user| user < declared).count() as u64;
        for cluster in state.partition.iter() {
            check_cluster(&state.partition, cluster, declared.checked_sub(appeared))?;
        }
        state.partition.nearby = sketches(&state.partition)?;
        Ok(state)
    }
}

impl Save for Sclub {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub st");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.shape.dim as u64)?;
        self.params.save(writer)?;
        let partition = &self.partition;
        writer.word(self.clock.rounds())?;
        writer.word(partition.declared)?;
        writer.word(partition.last_label)?;
        writer.word(u64::from(partition.first))?;
        writer.words(partition.roster.users().iter().copied())?;
        for (slot, place) in partition.profiles.places.iter().enumerate() {
            writer.word(place.count)?;
            writer.word(u64::from(place.cluster))?;
            writer.word(u64::from(place.position))?;
            writer.word(u64::from(place.checked_in))?;
            writer.word(u64::from(place.is_alone))?;
            writer.numbers(partition.profiles.blocks.get(slot))?;
        }
        writer.word(partition.clusters.len() as u64)?;
        for cluster in &partition.clusters {
            writer.word(u64::from(cluster.is_some()))?;
            if let Some(cluster) = cluster {
                save_cluster(cluster, writer)?;
            }
        }
        writer.words(partition.free.iter().map(|&index| u64::from(index)))
    }
}

fn save_cluster(cluster: &Cluster, writer: &mut Writer<'_>) -> io::Result<()> {
    writer.word(cluster.label)?;
    writer.number(cluster.radius)?;
    writer.word(u64::from(cluster.phase))?;
    writer.word(u64::from(cluster.checked))?;
    writer.word(cluster.sketch_index.map_or(NO_SKETCH, u64::from))?;
    match &cluster.members {
        Members::One(slot) => {
            writer.word(0)?;
            writer.word(u64::from(*slot))?;
        }
        Members::Many(many) => {
            writer.word(1)?;
            writer.words(many.slots.iter().map(|&slot| u64::from(slot)))?;
            writer.word(many.unseen)?;
            many.sums.save(writer)?;
            let entries = many.frequencies.entries();
            writer.word(entries.len() as u64)?;
            for &(count, users) in entries {
                writer.word(count)?;
                writer.word(users)?;
            }
            writer.word(u64::from(many.pivot.phase))?;
            writer.number(many.pivot.radius)?;
            writer.numbers(&many.pivot.estimate)?;
        }
    }
    Ok(())
}

fn load_cluster(shape: Shape, reader: &mut Reader<'_>) -> Result<Cluster, LoadError> {
    let label = reader.word()?;
    let radius = reader.number()?;
    let phase = reader.u32()?;
    let checked = reader.u32()?;
    let sketch_index = match reader.word()? {
        NO_SKETCH => None,
        sketch_index => Some(
            u32::try_from(sketch_index)
                .map_err(|_| bad("the index of a sketch does not fit into 32 bits"))?,
        ),
    };
    let members = match reader.at_most(1)? {
        0 => Members::One(reader.u32()?),
        _ => {
            let mut slots = Vec::new();
            for _ in 0..reader.count()? {
                slots.push(reader.u32()?);
            }
            let unseen = u64::from(reader.u32()?);
            let sums = Aggregate::load(shape, reader)?;
            let mut entries = Vec::new();
            for _ in 0..reader.count()? {
                entries.push((reader.word()?, u64::from(reader.u32()?)));
            }
            let frequencies = Frequencies::from_entries(entries)
                .ok_or(bad("the frequencies of a cluster are not in order"))?;
            let phase = reader.u32()?;
            let radius = reader.number()?;
            let mut estimate = vec![0.0; shape.dim].into_boxed_slice();
            reader.fill(&mut estimate)?;
            let pivot = Pivot {
                phase,
                estimate,
                radius,
            };
            Members::Many(Box::new(Many {
                sums,
                slots,
                unseen,
                frequencies,
                pivot,
            }))
        }
    };
    Ok(Cluster {
        label,
        members,
        radius,
        phase,
        checked,
        sketch_index,
    })
}

fn load_profiles(partition: &mut Partition, reader: &mut Reader<'_>) -> Result<(), LoadError> {
    partition.roster = load_roster(reader)?;
    let users = partition.roster.len();
    let profiles = &mut partition.profiles;
    profiles.places.reserve_exact(users);
    for slot in 0..users {
        profiles.places.push(Place {
            count: reader.at_most(MAX_ROUNDS)?,
            cluster: reader.u32()?,
            position: reader.u32()?,
            checked_in: reader.u32()?,
            is_alone: reader.at_most(1)? == 1,
        });
        profiles.blocks.push();
        reader.fill(profiles.blocks.get_mut(slot))?;
    }
    Ok(())
}

fn load_clusters(
    partition: &mut Partition,
    shape: Shape,
    reader: &mut Reader<'_>,
) -> Result<(), LoadError> {
    partition.clusters.clear();
    for _ in 0..reader.count()? {
        partition.clusters.push(match reader.at_most(1)? {
            0 => None,
            _ => Some(load_cluster(shape, reader)?),
        });
    }
    partition.live = partition.clusters.iter().flatten().count();
    partition.free.clear();
    for index in reader.words()? {
        let is_free = partition
            .clusters
            .get(index as usize)
            .is_some_and(Option::is_none);
        if !is_free {
            return Err(bad("a slot with a cluster is listed as free").into());
        }
        partition.free.push(index as u32);
    }
    let mut free = partition.free.clone();
    free.sort_unstable();
    free.dedup();
    if free.len() != partition.clusters.len() - partition.live {
        return Err(bad("its free slots are not those without a cluster").into());
    }
    Ok(())
}

/// Checks that users and clusters refer to each other; the code that follows indexes by it.
fn check_places(partition: &Partition) -> Result<(), Error> {
    let alive = |index: u32| {
        partition
            .clusters
            .get(index as usize)
            .and_then(Option::as_ref)
    };
    if alive(partition.first).is_none() {
        return Err(bad("its first cluster is missing"));
    }
    let places = &partition.profiles.places;
    for (slot, place) in places.iter().enumerate() {
        let belongs = alive(place.cluster).is_some_and(|cluster| match &cluster.members {
            Members::One(only) => *only as usize == slot && place.is_alone && place.position == 0,
            Members::Many(many) => {
                let found = many.slots.get(place.position as usize);
                found.is_some_and(|&found| found as usize == slot) && !place.is_alone
            }
        });
        if !belongs {
            return Err(bad(
                "a user is missing from the cluster that the user refers to",
            ));
        }
    }
    let members: usize = partition
        .iter()
        .map(|cluster| match &cluster.members {
            Members::One(_) => 1,
            Members::Many(many) => many.slots.len(),
        })
        .sum();
    if members != places.len() {
        return Err(bad("a cluster lists a user of another cluster"));
    }
    Ok(())
}

/// Checks that no label is used twice, or could be later.
fn check_labels(partition: &Partition) -> Result<(), Error> {
    let mut labels: Vec<u64> = partition.iter().map(|cluster| cluster.label).collect();
    labels.sort_unstable();
    let is_used_twice = labels.windows(2).any(|pair| pair[0] == pair[1]);
    let is_known = |label: &u64| (1..=partition.last_label).contains(label);
    if is_used_twice || !labels.iter().all(is_known) {
        return Err(bad(
            "a cluster label is used twice, or above the last label",
        ));
    }
    Ok(())
}

/// Checks a cluster against its members: counts, frequencies, marks. `missing` is the number
/// of declared users who have not appeared; they are in the first cluster.
fn check_cluster(
    partition: &Partition,
    cluster: &Cluster,
    missing: Option<u64>,
) -> Result<(), Error> {
    let (places, phase) = (&partition.profiles.places, partition.phase);
    let (slots, unseen) = match &cluster.members {
        Members::One(slot) => (std::slice::from_ref(slot), 0),
        Members::Many(many) => (many.slots.as_slice(), many.unseen),
    };
    let members = || slots.iter().map(|&slot| &places[slot as usize]);
    let is_first = partition.get(partition.first).label == cluster.label;
    let expected = if is_first { missing } else { Some(0) };
    if expected != Some(unseen) {
        return Err(bad(
            "declared users are missing, or not in its first cluster",
        ));
    }
    if !is_first && slots.is_empty() {
        return Err(bad("a cluster has no users"));
    }
    let sum = members().try_fold(0u64, |sum, place| sum.checked_add(place.count));
    let mut frequencies = Frequencies::default();
    frequencies.add(0, unseen);
    members().for_each(|place| frequencies.add(place.count, 1));
    let is_sum = match &cluster.members {
        Members::One(_) => true,
        Members::Many(many) => many.frequencies == frequencies && sum == Some(many.sums.count()),
    };
    if !is_sum || sum.is_none_or(|sum| sum > MAX_ROUNDS) {
        return Err(bad(
            "the counts of a cluster do not match those of its users",
        ));
    }
    if cluster.radius.to_bits() != radius(cluster.count(&partition.profiles)).to_bits() {
        return Err(bad("a radius does not match its count"));
    }
    let marked = members().filter(|place| place.checked_in == phase).count();
    let is_of_now = cluster.phase == phase;
    let checked = if is_of_now { cluster.checked } else { 0 };
    let wrong_marks = u64::from(checked) != marked as u64;
    let wrong_sketch = is_of_now && cluster.sketch_index.is_some() != cluster.is_checked(phase);
    let is_later = |of: u32| of > phase;
    let later_pivot = match &cluster.members {
        Members::One(_) => false,
        Members::Many(many) => is_later(many.pivot.phase),
    };
    let later = is_later(cluster.phase) || members().any(|place| is_later(place.checked_in));
    if wrong_marks || wrong_sketch || later || later_pivot {
        return Err(bad(
            "the marks of a cluster do not match those of its users",
        ));
    }
    Ok(())
}

/// The sketches of the clusters that are checked in the current phase, each at its index.
fn sketches(partition: &Partition) -> Result<Nearby, Error> {
    let mut sketched: Vec<(u32, u32)> = Vec::new();
    for (index, cluster) in partition.clusters.iter().enumerate() {
        if let Some(cluster) = cluster
            && let Some(sketch_index) = cluster.sketch_index
            && cluster.phase == partition.phase
        {
            sketched.push((sketch_index, index as u32));
        }
    }
    sketched.sort_unstable();
    let mut nearby = Nearby::default();
    for (expected, &(sketch_index, index)) in sketched.iter().enumerate() {
        if sketch_index as usize != expected {
            return Err(bad("the indices of its sketches are not consecutive"));
        }
        let cluster = partition.get(index);
        let estimate = cluster.view(&partition.profiles).estimate;
        nearby.insert(index, estimate, partition.reach(cluster));
    }
    Ok(nearby)
}
