//! Recognises whether the caller at the shell is a person or a coding agent.
//!
//! An agent is recognised by its name (`--as`, `TOFT_AGENT`), by the attempt of a runner, or by a variable that its
//! harness sets in every shell. Any other caller is a person. This prevents mistakes; it is not a security boundary.

use toft_core::agent::Role;

use crate::config::variable;

/// The variable that marks every process that an attempt starts.
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

/// The role of the caller. A caller with a name of its own has the role that it is registered with. A caller that uses
/// its user's name is that person, or a worker if the shell belongs to an agent.
pub(crate) fn role(named: bool, served: bool) -> Option<Role> {
    let set = |name: &&str| variable(name).is_some();
    if named || set(&"TOFT_AGENT") {
        return None;
    }
    let agent = served || ["TOFT_TASK", "TOFT_FENCE", MARK].iter().chain(&HARNESSES).any(set);
    Some(if agent { Role::Worker } else { Role::Human })
}
