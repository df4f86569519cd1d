//! A long text in the user's pager.

use std::{
    io::{IsTerminal as _, Write as _},
    process::{Command, Stdio},
};

/// Shows a text in the pager that `PAGER` names, else in `less`; returns whether it did. Only at a terminal, if the text is
/// longer than that, and never for an agent.
#[expect(clippy::disallowed_methods, reason = "the user's own pager, as git starts it")]
pub(crate) fn shown(text: &str) -> bool {
    let rows = console::Term::stdout().size_checked().map_or(0, |(rows, _)| usize::from(rows));
    let agents = ["TOFT_ATTEMPT", toft::runner::CONFINED].iter().any(|name| std::env::var_os(name).is_some());
    if agents || !std::io::stdout().is_terminal() || text.lines().count() < rows {
        return false;
    }
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    if matches!(pager.trim(), "" | "cat") {
        return false;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    // Who leaves the pager early has seen enough.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    child.wait().is_ok_and(|status| status.code() != Some(127))
}
