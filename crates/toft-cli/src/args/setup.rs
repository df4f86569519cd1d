//! Wiring toft into coding agents.

use clap::Args;

/// Connect toft to coding agents: instructions, MCP, hooks. Shows each change first.
#[derive(Args, Debug)]
#[command(
    after_help = "Agents: claude, codex, gemini, antigravity, cursor, copilot, opencode [default: those found here].\n\n\
Examples:\n  \
toft setup                    # show the changes for the agents found here, then ask\n  \
toft setup claude codex -y    # write the changes for these two\n  \
toft setup --user -y          # in your home directory, for every repository\n  \
toft setup --remove -y        # remove toft's changes\n  \
toft setup guard -y           # check every git push for private issues\n  \
eval \"$(toft setup shell)\"    # in ~/.bashrc: tcd ID changes to an issue's workspace\n  \
toft doctor                   # check that the hooks run"
)]
pub(crate) struct Setup {
    /// Agents; guard installs git's pre-push hook; shell [bash|zsh|fish] prints a function for your shell's start file
    #[arg(value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
    /// All agents that toft knows
    #[arg(long, conflicts_with = "agents")]
    pub(crate) all: bool,
    /// Write to your home directory instead of this checkout
    #[arg(long)]
    pub(crate) user: bool,
    /// Remove toft's changes
    #[arg(long)]
    pub(crate) remove: bool,
    /// Write without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Dry run: show the changes, write nothing
    #[arg(short = 'n', long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

/// Internal: called by the hooks of coding agents.
#[derive(Args, Debug)]
pub(crate) struct Hook {
    /// SessionStart, UserPromptSubmit, PostToolUse, PreCompact, Stop, SessionEnd, or what another agent calls these;
    /// pre-push, from git
    pub(crate) event: String,
    /// What git says besides: the remote and its address
    #[arg(hide = true)]
    pub(crate) rest: Vec<String>,
    /// Agent that calls
    #[arg(long = "for", value_name = "AGENT", default_value = "claude")]
    pub(crate) harness: String,
}
