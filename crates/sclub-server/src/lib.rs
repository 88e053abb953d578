//! The service.
pub mod settings;
pub mod store;
