//! The service.
pub mod client;
pub mod settings;
pub mod store;
