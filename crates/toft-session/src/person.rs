//! Who is at the shell: a person, or a coding agent.
//!
//! An agent is known by its name (`--as`, `TOFT_AGENT`), by the attempt that a runner gave it, or by what its harness
//! sets in every shell it starts. Anyone else is a person. This tells mistakes from intent; it is no security.

use toft_core::agent::Role;

use crate::config::variable;

/// The variable that marks everything an attempt starts.
pub const MARK: &str = "TOFT_ATTEMPT";

/// Variables that harnesses set in the shells of their agents.
const HARNESSES: [&str; 9] = [
    "CLAUDECODE",
    "GEMINI_CLI",
    "CURSOR_AGENT",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
    "OPENCODE",
    "GOOSE_TERMINAL",
    "AI_AGENT",
];

/// The role of the caller: a caller with a name of its own has the role it is registered with, one that uses its user's
/// name is that person at a shell, and a worker in an agent's.
pub(crate) fn role(named: bool, served: bool) -> Option<Role> {
    let set = |name: &&str| variable(name).is_some();
    if named || set(&"TOFT_AGENT") {
        return None;
    }
    let agent = served || ["TOFT_TASK", "TOFT_FENCE", MARK].iter().chain(&HARNESSES).any(set);
    Some(if agent { Role::Worker } else { Role::Human })
}
