//! The service.
pub mod edge;
pub mod settings;
pub mod store;
