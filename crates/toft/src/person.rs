//! Who is at the shell: a person, or a coding agent.
//!
//! An agent is known by its name (`--as`, `TOFT_AGENT`), by the attempt that a runner gave it, or by what its harness
//! sets in every shell it starts. Anyone else is a person. This tells mistakes from intent; it is no security.

use crate::{config::variable, runner::MARK};

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

/// Whether nothing in the environment says that an agent runs this command.
pub(crate) fn at_the_shell() -> bool {
    let own = ["TOFT_AGENT", "TOFT_TASK", "TOFT_FENCE", MARK];
    own.iter().chain(&HARNESSES).all(|name| variable(name).is_none())
}
