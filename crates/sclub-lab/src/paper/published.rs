//! The paper's printed results: its panels, and the cells of Tables 1 and 2.

use crate::policies::Name;
use crate::synthetic::Frequencies;

/// The algorithms in the order of the paper's tables.
pub const ALGORITHMS: [Name; 4] = [Name::CLUB, Name::LINUCB_IND, Name::LINUCB_ONE, Name::SCLUB];

/// The policies that are run beside the paper's, with constants of their own. The paper has no figures of them.
pub const ADDITIONAL: [Name; 1] = [Name::SCLUB_SOFT];

/// The source of a panel's users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// Drawn in clusters.
    Drawn,
    /// From the MovieLens ratings.
    MovieLens,
    /// From the Yelp reviews.
    Yelp,
}

/// A panel of Figure 1 with its column of the tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedPanel {
    /// `1a` to `2d`.
    pub id: &'static str,
    /// The source of its users.
    pub users: Users,
    /// The frequencies of the users.
    pub frequencies: Frequencies,
    /// The title.
    pub title: &'static str,
    /// Table 1, in the order of [`ALGORITHMS`].
    pub regret: [f64; 4],
    /// Table 2, seconds.
    pub seconds: [f64; 4],
}

/// Figure 1, Table 1 and Table 2.
pub const PANELS: [PublishedPanel; 7] = [
    PublishedPanel {
        id: "1a",
        users: Users::Drawn,
        frequencies: Frequencies::Uniform,
        title: "Synthetic, all users equally often",
        regret: [72_546.0, 72_481.0, 151_519.0, 68_238.0],
        seconds: [1_004.0, 771.0, 741.0, 4_284.0],
    },
    PublishedPanel {
        id: "1b",
        users: Users::Drawn,
        frequencies: Frequencies::Clusters,
        title: "Synthetic, each cluster at its own rate",
        regret: [62_854.0, 58_192.0, 118_157.0, 54_672.0],
        seconds: [1_040.0, 797.0, 768.0, 4_272.0],
    },
    PublishedPanel {
        id: "1c",
        users: Users::Drawn,
        frequencies: Frequencies::Users,
        title: "Synthetic, each user at their own rate",
        regret: [67_116.0, 60_805.0, 151_097.0, 57_255.0],
        seconds: [2_020.0, 1_111.0, 1_306.0, 4_855.0],
    },
    PublishedPanel {
        id: "2a",
        users: Users::MovieLens,
        frequencies: Frequencies::Uniform,
        title: "MovieLens, all users equally often",
        regret: [72_733.0, 72_750.0, 169_018.0, 68_413.0],
        seconds: [1_145.0, 1_752.0, 1_327.0, 12_170.0],
    },
    PublishedPanel {
        id: "2b",
        users: Users::MovieLens,
        frequencies: Frequencies::Users,
        title: "MovieLens, each user at their own rate",
        regret: [67_053.0, 61_042.0, 168_796.0, 57_105.0],
        seconds: [1_134.0, 1_497.0, 1_603.0, 6_008.0],
    },
    PublishedPanel {
        id: "2c",
        users: Users::Yelp,
        frequencies: Frequencies::Uniform,
        title: "Yelp, all users equally often",
        regret: [72_803.0, 72_577.0, 171_820.0, 68_482.0],
        seconds: [1_357.0, 995.0, 993.0, 4_880.0],
    },
    PublishedPanel {
        id: "2d",
        users: Users::Yelp,
        frequencies: Frequencies::Users,
        title: "Yelp, each user at their own rate",
        regret: [67_887.0, 60_804.0, 171_199.0, 56_863.0],
        seconds: [1_925.0, 2_705.0, 2_422.0, 8_196.0],
    },
];
