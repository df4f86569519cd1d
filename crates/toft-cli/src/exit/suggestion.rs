//! What was probably meant by a word that is not known.

/// The command that a word which is no command stands for.
pub(super) fn meant(word: &str) -> Option<&'static str> {
    Some(match word {
        "release" | "handoff" | "waiting" | "fail" | "failed" | "abort" => {
            "toft finish release|handoff|waiting|failed -m \"…\""
        }
        "skip" => "toft close TASK",
        "redo" => "toft undo --redo",
        "repo" => "toft init --clone-url URL",
        "withdraw" => "toft propose --withdraw ID",
        "cancel" | "abandon" | "drop" | "quit" | "exit" => {
            "toft finish release -m \"…\" releases a task · toft flow pause WORKFLOW · toft flow --help"
        }
        "continue" => "toft claim ID · toft resume · toft flow resume WORKFLOW",
        "inbox" | "send" | "register" | "message" | "messages" => "toft agent inbox|send|register",
        "reply" | "respond" => "toft answer ID TEXT",
        "log" | "events" => "toft history",
        "diff" => "toft show ID --diff",
        "assign" | "delegate" => "toft edit ID --assignee AGENT",
        "create" => "toft add",
        "update" | "set" => "toft edit ID",
        "get" | "view" => "toft show ID",
        "take" => "toft claim",
        "complete" => "toft finish",
        "heartbeat" | "renew" => "toft save",
        "migrate" | "upgrade" => "toft doctor --upgrade",
        "compact" => "toft gc --ledgers",
        "schema" => "toft export schema",
        "shell" => "toft setup shell",
        "search" | "find" | "query" | "grep" => "toft list --search TEXT",
        "comment" | "note" | "label" | "tag" => "toft edit ID -m TEXT · toft edit ID -l LABEL",
        "dep" | "deps" | "depend" | "link" | "block" => "toft edit ID --needs OTHER",
        "whoami" | "info" | "config" | "settings" => "toft doctor",
        "open" => "toft reopen ID",
        "resolve" | "fixed" | "wontfix" => "toft close ID -m REASON",
        "remove" | "del" | "archive" => "toft close ID -m REASON closes an issue · toft ws list shows workspaces",
        "prune" | "clean" | "cleanup" => "toft ws gc -n shows which workspaces can be removed",
        "reset" | "revert" => "toft undo -n shows what undo would do",
        "unassign" => "toft edit ID --assignee \"\"",
        "priority" | "prioritize" | "due" => "toft edit ID -p P1 · toft edit ID --due 3d",
        "pick" | "grab" => "toft claim",
        "cat" | "describe" | "details" => "toft show ID",
        "tasks" | "task" => "toft list tasks",
        "workers" | "slots" => "toft agent list · toft status",
        "check" | "verify" | "diagnose" => "toft doctor",
        "commit" | "checkpoint" => "git commit records files; toft save -m \"…\" saves a checkpoint of a task",
        "ps" | "st" | "who" | "dashboard" => "toft status",
        "version" => "toft --version",
        "merge" | "pr" => "toft land lands finished work; toft land -n shows what would land",
        "stats" | "stat" | "report" => "toft status · toft list --all",
        "todo" | "todos" | "issues" | "backlog" => "toft ready · toft list",
        "checkout" | "cd" | "switch" | "branch" | "workspace" | "worktree" => {
            "toft ws path ID · toft setup shell prints tcd"
        }
        "context" | "brief" => "toft show ID --context",
        "watch" | "tail" => "toft history --follow",
        _ => return None,
    })
}

/// The names that could have been typed in place of an unknown command, by the usage that clap prints.
pub(super) fn known_subcommands(text: &str) -> Vec<String> {
    let mut command = <crate::args::Cli as clap::CommandFactory>::command();
    command.build();
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).unwrap_or_default();
    let mut at = &command;
    for word in usage.split(' ').skip(1) {
        match at.find_subcommand(word) {
            Some(next) => at = next,
            None => break,
        }
    }
    at.get_subcommands().filter(|known| !known.is_hide_set()).map(|known| known.get_name().to_owned()).collect()
}

/// Commands that delete or end something: never suggested for a typo.
const NEVER_SUGGESTED: [&str; 8] = ["delete", "rm", "remove", "purge", "drop-rescue", "abandon", "stop", "unregister"];

/// The known name that a typo is nearest to: at most two letters away, or one in a short word.
pub(super) fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    let most = if word.len() < 5 { 1 } else { 2 };
    let safe = known.iter().map(String::as_str).filter(|name| !NEVER_SUGGESTED.contains(name));
    safe.map(|name| (distance(word, name), name)).filter(|(far, _)| *far <= most).min().map(|(_, name)| name)
}

/// How many letters must be inserted, deleted, replaced or swapped with their neighbour to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, there) in other.iter().enumerate() {
            let change = rows[i][j] + usize::from(letter != there);
            let mut best = change.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i - 1] == *there && *letter == other[j - 1] {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}
