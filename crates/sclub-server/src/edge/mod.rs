//! What lies between sockets and a [`Router`](axum::Router): connections, TLS, keys, rates, limits on
//! what is read, and the shape of errors. It knows nothing of what is served.

pub mod body;
pub mod error;
pub mod guard;
pub mod keys;
pub mod page;
pub mod serve;
mod stall;
mod tls;

pub use error::ApiError;
pub use guard::{Caller, Guard};
pub use keys::{Keys, Role};
pub use serve::{Closing, Drained, EdgeOptions, Peer, serve};
pub use tls::Tls;
