//! toft for other programs. Protocols are spoken here; what is asked is answered by a [`mcp::ToolHost`].
//!
//! The only crate that is asynchronous; `blocking.rs` is its one bridge to everything else.

mod blocking;
pub mod http;
mod identity;
pub mod mcp;
mod objects;

pub use identity::IdentityRules;
