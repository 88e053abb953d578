//! The layer between sockets and a [`Router`](axum::Router): connections, TLS, API keys, rate limits, limits
//! on requests, and the form of errors. It does not depend on the API.

mod addresses;
pub mod audit;
pub mod body;
pub mod error;
pub mod guard;
pub mod keys;
pub mod limit;
pub mod page;
pub mod reload;
pub mod request_id;
pub mod serve;
pub mod site;
mod stall;
mod tls;
mod turn;
mod unread;

pub use audit::Audit;
pub use error::ApiError;
pub use guard::{Caller, Guard};
pub use keys::{Keys, Role, Scope};
pub use reload::Reload;
pub use serve::{Closing, Drained, EdgeOptions, Peer, serve};
pub use site::Site;
pub use tls::Tls;
pub use turn::TurnSlot;
