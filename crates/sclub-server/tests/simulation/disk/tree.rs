//! Names: folders, their entries, and the entries that survive a power loss.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use rand::RngExt;

use super::inode::{Inode, Loss};
use crate::seed::Rng;

/// Number of a file or folder.
pub type Id = u64;

const ROOT: Id = 0;

/// Names and the bytes that they lead to.
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<Id, Node>,
    last: Id,
    /// Changes of names that are not durable, oldest first.
    pending: Vec<NameChange>,
}

#[derive(Debug)]
pub enum Node {
    File(Inode),
    Dir(Dir),
}

#[derive(Debug, Default)]
pub struct Dir {
    durable: BTreeMap<String, Id>,
    visible: BTreeMap<String, Id>,
}

/// An atomic change of names.
#[derive(Debug)]
struct NameChange(Vec<Edit>);

/// A name in a folder leads there from now on, or is gone.
#[derive(Debug)]
struct Edit {
    dir: Id,
    name: String,
    node: Option<Id>,
}

/// One of the two states of a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum View {
    /// The state that programs see.
    Visible,
    /// The state after a power loss that loses everything it may.
    Durable,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Dir(Dir::default()))]),
            last: ROOT,
            pending: Vec::new(),
        }
    }
}

impl Tree {
    /// The file or folder of a path.
    pub fn find(&self, path: &Path) -> Option<Id> {
        names_of(path).iter().try_fold(ROOT, |id, name| {
            let dir = self.dir(id)?;
            dir.visible.get(name).copied()
        })
    }

    /// The folder that a path is in, which must exist, and its last name.
    pub fn place(&self, path: &Path) -> Option<(Id, String)> {
        let mut names = names_of(path);
        let name = names.pop()?;
        let dir = self.find(&names.iter().collect::<PathBuf>())?;
        self.dir(dir)?;
        Some((dir, name))
    }

    pub fn dir(&self, id: Id) -> Option<&Dir> {
        match self.nodes.get(&id)? {
            Node::Dir(dir) => Some(dir),
            Node::File(_) => None,
        }
    }

    pub fn file(&self, id: Id) -> Option<&Inode> {
        match self.nodes.get(&id)? {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        }
    }

    pub fn file_mut(&mut self, id: Id) -> Option<&mut Inode> {
        match self.nodes.get_mut(&id)? {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        }
    }

    /// The names in a folder.
    pub fn names(&self, dir: Id) -> Option<Vec<String>> {
        Some(self.dir(dir)?.visible.keys().cloned().collect())
    }

    /// Makes a file or folder in a folder.
    pub fn make(&mut self, dir: Id, name: &str, node: Node) -> Id {
        self.last += 1;
        let id = self.last;
        self.nodes.insert(id, node);
        self.change(vec![Edit {
            dir,
            name: name.to_owned(),
            node: Some(id),
        }]);
        id
    }

    /// Removes a name.
    pub fn unlink(&mut self, dir: Id, name: &str) {
        self.change(vec![Edit {
            dir,
            name: name.to_owned(),
            node: None,
        }]);
    }

    /// Renames a file or folder.
    pub fn rename(&mut self, from: (Id, String), to: (Id, String)) {
        let node = self.dir(from.0).and_then(|dir| dir.visible.get(&from.1));
        let node = node.copied();
        let edit = |(dir, name), node| Edit { dir, name, node };
        self.change(vec![edit(from, None), edit(to, node)]);
    }

    fn change(&mut self, edits: Vec<Edit>) {
        let change = NameChange(edits);
        change.apply(&mut self.nodes, View::Visible);
        self.pending.push(change);
    }

    /// Makes the names of a folder durable.
    pub fn sync_dir(&mut self, dir: Id) {
        let all = self.pending.len();
        self.commit(BTreeMap::from([(dir, all)]));
    }

    /// A sync of a folder that fails: some of the older changes are durable, the rest waits.
    pub fn fail_sync_dir(&mut self, dir: Id, rng: &mut Rng) {
        let cut = self.draw_prefix(dir, rng);
        self.commit(BTreeMap::from([(dir, cut)]));
    }

    /// Loses the power: of each folder's changes the first few are durable.
    pub fn lose_power(&mut self, loss: Loss, rng: &mut Rng) {
        let changes = self.pending.iter().flat_map(|change| &change.0);
        let dirs: BTreeSet<Id> = changes.map(|edit| edit.dir).collect();
        let cuts = dirs.into_iter().map(|dir| {
            let cut = match loss {
                Loss::All => 0,
                Loss::Nothing => self.pending.len(),
                Loss::Some => self.draw_prefix(dir, rng),
            };
            (dir, cut)
        });
        let cuts = cuts.collect();
        self.commit(cuts);
        self.pending.clear();
        for node in self.nodes.values_mut() {
            match node {
                Node::Dir(dir) => dir.visible.clone_from(&dir.durable),
                Node::File(file) => file.lose_power(loss, rng),
            }
        }
        self.collect(&BTreeSet::new());
    }

    /// An index in the pending changes before which those of a folder survive.
    fn draw_prefix(&self, dir: Id, rng: &mut Rng) -> usize {
        let own: Vec<usize> = (0..self.pending.len())
            .filter(|&index| self.pending[index].touches(dir))
            .collect();
        match rng.random_range(0..=own.len()) {
            0 => 0,
            count => own[count - 1] + 1,
        }
    }

    /// Makes changes durable: of each folder those before its cut. A change that touches two folders
    /// is durable in both, after what came before it in either.
    fn commit(&mut self, mut cuts: BTreeMap<Id, usize>) {
        let survives = |cuts: &BTreeMap<Id, usize>, index: usize, change: &NameChange| {
            let mut edits = change.0.iter();
            edits.any(|edit| cuts.get(&edit.dir).is_some_and(|&cut| index < cut))
        };
        loop {
            let mut has_grown = false;
            for (index, change) in self.pending.iter().enumerate() {
                if !survives(&cuts, index, change) {
                    continue;
                }
                for edit in &change.0 {
                    let cut = cuts.entry(edit.dir).or_default();
                    if *cut <= index {
                        *cut = index + 1;
                        has_grown = true;
                    }
                }
            }
            if !has_grown {
                break;
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (index, change) in pending.into_iter().enumerate() {
            if survives(&cuts, index, &change) {
                change.apply(&mut self.nodes, View::Durable);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// Drops files and folders that have no name in any view and are not open.
    pub fn collect(&mut self, open: &BTreeSet<Id>) {
        let mut kept = BTreeSet::from([ROOT]);
        let mut next: Vec<Id> = open.iter().copied().chain([ROOT]).collect();
        let changes = self.pending.iter().flat_map(|change| &change.0);
        next.extend(changes.filter_map(|edit| edit.node));
        while let Some(id) = next.pop() {
            kept.insert(id);
            if let Some(dir) = self.dir(id) {
                let inner = dir.visible.values().chain(dir.durable.values());
                next.extend(inner.filter(|id| !kept.contains(id)));
            }
        }
        self.nodes.retain(|id, _| kept.contains(id));
    }

    /// The number of bytes in use: those of files that have a name or are open, and some for each name.
    pub fn used(&self, open: &BTreeSet<Id>, each: u64) -> u64 {
        let mut files = open.clone();
        let mut names = 0;
        self.walk(View::Visible, &mut |_, id| {
            files.insert(id);
            names += 1;
        });
        let lengths = files.iter().filter_map(|&id| self.file(id));
        let bytes: u64 = lengths.map(|file| file.visible().len() as u64).sum();
        bytes + names * each
    }

    /// Goes through all files and folders by path.
    pub fn walk(&self, view: View, see: &mut dyn FnMut(&Path, Id)) {
        let mut next = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, id)) = next.pop() {
            if id != ROOT {
                see(&path, id);
            }
            if let Some(dir) = self.dir(id) {
                // The first name last: it is taken first.
                let inner = dir.of(view).iter().rev();
                next.extend(inner.map(|(name, &id)| (path.join(name), id)));
            }
        }
    }
}

impl Dir {
    fn of(&self, view: View) -> &BTreeMap<String, Id> {
        match view {
            View::Visible => &self.visible,
            View::Durable => &self.durable,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.visible.is_empty()
    }
}

impl NameChange {
    fn touches(&self, dir: Id) -> bool {
        self.0.iter().any(|edit| edit.dir == dir)
    }

    fn apply(&self, nodes: &mut BTreeMap<Id, Node>, view: View) {
        for edit in &self.0 {
            let Some(Node::Dir(dir)) = nodes.get_mut(&edit.dir) else {
                continue;
            };
            let names = match view {
                View::Visible => &mut dir.visible,
                View::Durable => &mut dir.durable,
            };
            match edit.node {
                Some(node) => names.insert(edit.name.clone(), node),
                None => names.remove(&edit.name),
            };
        }
    }
}

fn names_of(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect()
}
