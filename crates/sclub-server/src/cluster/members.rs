//! The nodes of a cluster, and the order in which they are to own a group.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::bus::{Bucket, Bus};
use crate::identity::first_word;

/// A node, as it describes itself. It is written anew every second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// A random number, to tell two processes of the same name apart.
    pub life: u64,
    /// The address that it answers HTTP requests on.
    pub addr: String,
    /// The version of the program.
    pub version: String,
    /// True if it is shutting down, and hands its groups to others.
    pub is_draining: bool,
    /// The groups that it has, by name.
    pub groups: BTreeMap<String, Part>,
}

/// A node's part in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Part {
    /// True if it writes the group's log.
    pub is_leading: bool,
    /// The last batch that it has applied.
    pub position: u64,
    /// The number of users.
    pub users: u64,
    /// The number of events.
    pub events: u64,
    /// The number of rounds learned.
    pub rounds: u64,
}

/// The owner of a group, as its lease says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The name of the node.
    pub node: String,
    /// Its random number.
    pub life: u64,
}

/// A change of the owner of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Move {
    /// The time, in milliseconds since 1970.
    pub at: u64,
    /// The group.
    pub group: String,
    /// The owner before.
    pub from: Option<String>,
    /// The owner after.
    pub to: Option<String>,
}

/// The owner of a group, by its lease.
pub fn owner(bus: &dyn Bus, group: &str) -> Option<String> {
    let leases = bus.entries(Bucket::Leases);
    let (_, entry) = leases.iter().find(|(of, _)| of == group)?;
    let lease: Lease = serde_json::from_slice(&entry.value).ok()?;
    Some(lease.node)
}

/// The owners of the groups, by their leases.
pub fn owners(bus: &dyn Bus) -> BTreeMap<String, String> {
    let leases = bus.entries(Bucket::Leases);
    let owners = leases.iter().filter_map(|(group, entry)| {
        let lease: Lease = serde_json::from_slice(&entry.value).ok()?;
        Some((group.clone(), lease.node))
    });
    owners.collect()
}

/// The nodes that are running, and what an operator has set about them.
#[derive(Debug, Clone, Default)]
pub struct Members {
    /// The nodes, by name.
    pub members: Vec<Member>,
    /// All nodes that have been part of the cluster.
    pub registered: Vec<String>,
    /// The nodes that an operator has drained.
    pub drained: Vec<String>,
    /// The nodes that an operator has chosen for groups: group, node.
    pub pinned: BTreeMap<String, String>,
}

/// The key of a node that an operator has drained.
pub fn drain_key(node: &str) -> String {
    format!("drain.{node}")
}

/// The key of a node that has been part of the cluster, and may have a journal.
pub fn node_key(node: &str) -> String {
    format!("node.{node}")
}

/// The key of the users that a node has yet to forget in its journal of a group.
pub fn forget_key(node: &str, group: &str) -> String {
    format!("forget.{node}.{group}")
}

/// The key of the node that an operator has chosen for a group.
pub fn pin_key(group: &str) -> String {
    format!("pin.{group}")
}

impl Members {
    /// The nodes that have been part of the cluster and are not running.
    pub fn missing(&self) -> Vec<String> {
        let mut names = self.registered.clone();
        names.retain(|name| self.get(name).is_none());
        names
    }

    /// The nodes as this one last saw them.
    pub fn read(bus: &dyn Bus) -> Self {
        let members = bus.entries(Bucket::Members);
        let members = members
            .iter()
            .filter_map(|(_, entry)| serde_json::from_slice(&entry.value).ok());
        let mut all = Self {
            members: members.collect(),
            ..Self::default()
        };
        for (key, entry) in bus.entries(Bucket::Config) {
            if let Some(node) = key.strip_prefix("node.") {
                all.registered.push(node.to_owned());
            } else if let Some(node) = key.strip_prefix("drain.") {
                all.drained.push(node.to_owned());
            } else if let Some(group) = key.strip_prefix("pin.") {
                let node = String::from_utf8_lossy(&entry.value).into_owned();
                all.pinned.insert(group.to_owned(), node);
            }
        }
        all
    }

    /// The member of a name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Returns true if a node may own groups.
    fn may_own(&self, member: &Member) -> bool {
        !member.is_draining && !self.drained.contains(&member.name)
    }

    /// The nodes that may own a group, the first choice first (rendezvous hashing): if a node comes or goes, only
    /// its own groups move.
    pub fn ranking(&self, group: &str) -> Vec<&Member> {
        let mut ranked: Vec<&Member> = self.members.iter().filter(|m| self.may_own(m)).collect();
        let pinned = self.pinned.get(group);
        ranked.sort_by_cached_key(|member| {
            let is_pinned = pinned == Some(&member.name);
            (!is_pinned, !score(group, &member.name))
        });
        ranked
    }
}

fn score(group: &str, node: &str) -> u64 {
    first_word(&blake3::hash(format!("{group} {node}").as_bytes()))
}

/// The partition of a user.
pub fn partition_of(user: &str, partitions: usize) -> usize {
    let hash = first_word(&blake3::hash(user.as_bytes()));
    (hash % partitions.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(names: &[&str]) -> Members {
        let members = names.iter().map(|name| Member {
            name: (*name).to_owned(),
            life: 1,
            addr: String::new(),
            version: String::new(),
            is_draining: false,
            groups: BTreeMap::new(),
        });
        Members {
            members: members.collect(),
            ..Members::default()
        }
    }

    fn owner(members: &Members, group: usize) -> String {
        members.ranking(&format!("p{group}"))[0].name.clone()
    }

    #[test]
    fn only_the_groups_of_a_node_that_leaves_move() {
        let four = members(&["a", "b", "c", "d"]);
        let three = members(&["a", "b", "c"]);
        let mut counts = BTreeMap::new();
        for group in 0..400 {
            let before = owner(&four, group);
            *counts.entry(before.clone()).or_insert(0) += 1;
            if before != "d" {
                assert_eq!(owner(&three, group), before);
            }
        }
        assert!(counts.values().all(|&count| count > 60), "{counts:?}");
    }

    #[test]
    fn an_operator_overrides_the_hash() {
        let mut all = members(&["a", "b", "c"]);
        all.pinned.insert("p7".to_owned(), "c".to_owned());
        assert_eq!(owner(&all, 7), "c");
        all.drained.push("c".to_owned());
        assert_ne!(owner(&all, 7), "c");
        assert_eq!(all.ranking("p7").len(), 2);
    }

    #[test]
    fn users_spread_over_partitions() {
        let mut counts = [0; 16];
        for user in 0..16_000 {
            counts[partition_of(&format!("user-{user}"), 16)] += 1;
        }
        assert!(
            counts.iter().all(|&count| (850..1150).contains(&count)),
            "{counts:?}"
        );
        // Fixed for ever: a cluster's users must not move.
        assert_eq!(
            ["u1", "u2", "ü"].map(|user| partition_of(user, 16)),
            [10, 14, 11]
        );
    }
}
