//! Asking a client itself what it makes of the files that were written for it.

use std::{path::Path, time::Duration};

use super::harness::Harness;

/// A client that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a client says of toft's MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientAnswer {
    /// It uses the server.
    Connected,
    /// It knows the server, or will, once a person has agreed: its own words, and what to do.
    NeedsTrust(String, &'static str),
    /// It cannot use the server: its own words.
    Failed(String),
    /// It is not installed, or cannot be asked.
    Unknown,
}

impl Harness {
    /// Asks the client in a directory.
    pub(crate) fn ask(&self, dir: &Path) -> ClientAnswer {
        let Some(check) = self.check else { return ClientAnswer::Unknown };
        if !toft::runner::can_start(check.command[0]) {
            return ClientAnswer::Unknown;
        }
        match toft::runner::output(check.command, dir, PATIENCE) {
            Ok((_, said)) => answer(&said, check.trust),
            Err(error) => ClientAnswer::Failed(format!("`{}`: {error}", check.command.join(" "))),
        }
    }
}

/// Reads a client's list of servers.
fn answer(said: &str, trust: &'static str) -> ClientAnswer {
    let Some(line) = said.lines().find(|line| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "toft"))
    else {
        let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it lists no server").to_owned();
        return ClientAnswer::NeedsTrust(first, trust);
    };
    let lower = line.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["fail", "error", "disconnected", "not connected"]) {
        ClientAnswer::Failed(line.trim().to_owned())
    } else if has(&["pending", "disabled", "untrusted"]) {
        ClientAnswer::NeedsTrust(line.trim().to_owned(), trust)
    } else {
        ClientAnswer::Connected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_print_is_understood() {
        let connected = [
            "Checking MCP server health…\n\ntoft: toft mcp - ✔ Connected\n",
            "Name  Command  Args  Env  Cwd  Status   Auth\ntoft  toft     mcp   -    -    enabled  Unsupported\n",
            "Configured MCP servers:\n\n✓ toft: toft mcp (stdio) - Connected\n",
            "Workspace servers:\n  toft (local)\n",
        ];
        for said in connected {
            assert_eq!(answer(said, ""), ClientAnswer::Connected, "{said}");
        }
        for said in [
            "toft: toft mcp - ⏸ Pending approval (run `claude` to approve)\n",
            "No MCP servers configured yet. Try `codex mcp add my-tool -- my-command`.\n",
            "Configured MCP servers:\n\n○ toft: toft mcp (stdio) - Disabled\n",
            "",
        ] {
            assert!(matches!(answer(said, "trust"), ClientAnswer::NeedsTrust(_, "trust")), "{said}");
        }
        for said in ["toft: toft mcp - ✘ Failed to connect\n", "✗ toft: toft mcp (stdio) - Disconnected\n"] {
            assert!(matches!(answer(said, ""), ClientAnswer::Failed(_)), "{said}");
        }
    }
}
