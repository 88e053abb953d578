//! Spaces: several catalogues and models in one server.

mod bench;
mod fairness;
mod isolation;
mod life;
