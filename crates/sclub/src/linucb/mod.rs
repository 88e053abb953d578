//! LinUCB without clusters to find: one estimate for each user ([`LinUcbInd`]), or one for all users
//! or for each of some known groups ([`LinUcbShared`]).

mod gather;
mod ind;
mod shared;

pub use ind::{LinUcbInd, SPEC as IND};
pub use shared::{ForgettableLinUcb, Groups, LinUcbShared, SPEC as ONE};

use crate::policy::ClusterId;

/// The index of a cluster; clusters are numbered from 1.
fn index_of(id: ClusterId) -> Option<usize> {
    usize::try_from(id.checked_sub(1)?).ok()
}
