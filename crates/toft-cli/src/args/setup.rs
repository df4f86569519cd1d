//! Wiring toft into coding agents.

use clap::Args;

/// Wire toft into the coding agents that are used here: instructions, MCP, hooks. Shows each change first.
#[derive(Args, Debug)]
#[command(
    after_help = "Agents: claude, codex, gemini, antigravity, cursor, copilot, opencode; those found here when left out.\n\n\
Examples:\n  \
toft setup                    show what would change for the agents found here, then ask\n  \
toft setup claude codex -y    write it for these two\n  \
toft setup --user -y          in your home, for every repository\n  \
toft setup --remove -y        give every byte back\n  \
toft setup guard -y           before every git push, look that nothing private leaves\n  \
toft doctor                   prove that the hooks fire"
)]
pub(crate) struct Setup {
    /// Which agents; guard, for git's hook before a push
    #[arg(value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
    /// Every agent that is known
    #[arg(long, conflicts_with = "agents")]
    pub(crate) all: bool,
    /// In your home instead of this checkout
    #[arg(long)]
    pub(crate) user: bool,
    /// Take it away again
    #[arg(long)]
    pub(crate) remove: bool,
    /// Write without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only show
    #[arg(short = 'n', long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

/// What a coding agent's hooks call; quick, silent, and never in its way.
#[derive(Args, Debug)]
pub(crate) struct Hook {
    /// SessionStart, UserPromptSubmit, PostToolUse, PreCompact, Stop, SessionEnd, or what another agent calls these;
    /// pre-push, from git
    pub(crate) event: String,
    /// What git says besides: the remote and its address
    #[arg(hide = true)]
    pub(crate) rest: Vec<String>,
    /// Which agent calls
    #[arg(long = "for", value_name = "AGENT", default_value = "claude")]
    pub(crate) harness: String,
}
