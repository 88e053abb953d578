//! Policies of one file each, and the parts that some of them share.

pub(crate) mod bass;
pub(crate) mod cab;
pub(crate) mod chi_square;
pub(crate) mod club_cascade;
pub(crate) mod cofiba;
pub(crate) mod crowd;
pub(crate) mod dccb;
pub(crate) mod dyclu;
pub(crate) mod dynucb;
pub(crate) mod fclub;
pub(crate) mod hier_ts;
pub(crate) mod lints;
pub(crate) mod locb;
pub(crate) mod log_index;
pub(crate) mod mix_ts;
pub(crate) mod neighbours;
pub(crate) mod pairs;
pub(crate) mod past_items;
pub(crate) mod privacy;
pub(crate) mod rclumb;
pub(crate) mod row;
pub(crate) mod rsclumb;
pub(crate) mod side_by_side;
pub(crate) mod ts;
pub(crate) mod uniclub;
