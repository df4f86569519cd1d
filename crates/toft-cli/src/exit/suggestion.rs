//! What was probably meant by a word that is not known.

/// The command that an unknown word below `parent` stands for; `parent` is empty for the first word.
pub(super) fn meant(parent: &str, word: &str) -> Option<&'static str> {
    match parent {
        "" => meant_alone(word),
        _ => meant_below(parent, word),
    }
}

/// The command that an unknown word below another one stands for.
fn meant_below(parent: &str, word: &str) -> Option<&'static str> {
    Some(match (parent, word) {
        ("flow", "retry") => "toft retry TASK",
        ("flow", "skip") => "toft close TASK",
        ("flow", "create" | "apply" | "from") => "toft flow new TITLE · --file PLAN · --template NAME",
        ("flow", "start" | "unpause" | "continue") => "toft flow resume WORKFLOW",
        ("flow", "add" | "limit" | "limits" | "replan") => {
            "toft flow edit WORKFLOW --add NAME · --max-parallel N · --file PLAN"
        }
        ("ws", "show" | "status" | "info") => "toft ws list WS",
        ("ws", "remove" | "delete" | "drop") => {
            "toft ws list shows what is in each; toft ws rm WS refuses to lose work"
        }
        ("ws", "add" | "new" | "adopt" | "pool") => "toft ws create ID · --name NAME · --adopt DIR · --ahead N",
        ("ws", "cd" | "open" | "env") => "toft ws path WS · --env",
        ("ws", "pin" | "unpin") => "toft ws keep WS · --off",
        ("ws", "rescues") => "toft ws restore lists rescues",
        ("ws", "landed") => "toft ws rm WS --landed",
        ("agent", "pause") => "toft pause NAME",
        ("agent", "resume" | "unpause") => "toft pause --off NAME",
        ("agent", "answer") => "toft answer ID TEXT",
        ("agent", "show" | "status") => "toft agent list",
        ("land", "return" | "approve" | "reject") => "toft review ID --approve · --return -m REASON",
        ("land", "status" | "show") => "toft land list",
        _ => return None,
    })
}

/// The flag or command that an unknown flag stands for.
pub(super) fn meant_by_flag(command: &str, flag: &str) -> Option<&'static str> {
    Some(match (command, flag) {
        ("edit", "--close") => "toft close ID -m REASON",
        ("edit", "--reopen" | "--undefer") => "toft reopen ID",
        ("edit", "--status") => "toft close ID · toft reopen ID · toft edit ID --defer 3d",
        ("edit", "--remove-label" | "--label-remove") => "--unlabel LABEL",
        ("edit", "--add-label") => "--label LABEL",
        ("edit", "--needs-remove" | "--remove-needs") => "--unneeds ID",
        ("add", "--assignee" | "--assign") => "toft edit ID --assignee AGENT",
        ("list", "--open") => "toft list without a flag lists open issues",
        ("list", "--closed") => "--status closed · --all",
        ("list", "--ready") => "toft ready",
        ("run", "--workers" | "--parallel" | "--count" | "--concurrency") => "--slots N",
        ("run", "--timeout") => "--total DUR",
        ("serve", "--port") => "--listen 127.0.0.1:PORT",
        ("history", "-n") => "--limit N",
        (_, "--here") => "--worktree .",
        _ => return None,
    })
}

/// The command that a word which is no command stands for.
fn meant_alone(word: &str) -> Option<&'static str> {
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
        "continue" | "resume" | "unpause" => "toft claim ID · toft pause --off · toft flow resume WORKFLOW",
        "inbox" | "send" | "register" | "message" | "messages" => "toft agent inbox|send|register",
        "reply" | "respond" => "toft answer ID TEXT",
        "log" | "events" => "toft history",
        "diff" => "toft show ID --diff",
        "assign" | "delegate" => "toft edit ID --assignee AGENT",
        "create" => "toft add",
        "update" | "set" => "toft edit ID",
        "get" | "view" => "toft show ID",
        "take" => "toft claim",
        "unclaim" => "toft finish release -m REASON",
        "why" => "toft show ID --why",
        "approve" => "toft review ID --approve",
        "demo" => "toft try",
        "push" | "pull" => "toft sync",
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
        "restore" | "undelete" => "toft reopen ID brings a deleted issue back · toft ws restore a workspace",
        "reject" => "toft close ID -m REASON rejects a proposed issue · toft review ID --return finished work",
        "graph" | "tree" | "plan" => "toft list --graph",
        "resolve" | "fixed" | "wontfix" => "toft close ID -m REASON",
        "remove" | "del" | "archive" => "toft close ID -m REASON closes an issue · toft ws list shows workspaces",
        "prune" | "clean" | "cleanup" => "toft ws gc -n shows which workspaces can be removed",
        "reset" => "toft undo -n shows what undo would do",
        "revert" => "toft undo -n shows what undo would do · toft land revert ID takes back what landed",
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
        "checkout" | "cd" | "switch" | "branch" => "toft ws path ID · toft setup shell prints tcd",
        "workspace" | "worktree" | "workspaces" | "worktrees" => "toft ws list",
        "context" | "brief" => "toft show ID --context",
        "watch" | "tail" => "toft history --follow",
        _ => return None,
    })
}

/// The command that an unknown word was typed below, and the names that could have been typed, by the usage that clap prints.
pub(super) fn known_subcommands(text: &str) -> (String, Vec<String>) {
    let mut command = <crate::args::Cli as clap::CommandFactory>::command();
    command.build();
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).unwrap_or_default();
    let (mut at, mut parents) = (&command, Vec::new());
    for word in usage.split(' ').skip(1) {
        match at.find_subcommand(word) {
            Some(next) => {
                at = next;
                parents.push(word);
            }
            None => break,
        }
    }
    let known = at.get_subcommands().filter(|known| !known.is_hide_set() && known.get_name() != "help");
    (parents.join(" "), known.map(|known| known.get_name().to_owned()).collect())
}

/// Commands that delete or end something: never suggested for a typo.
const NEVER_SUGGESTED: [&str; 8] = ["delete", "rm", "remove", "purge", "drop-rescue", "abandon", "stop", "unregister"];

/// The known name that a typo is nearest to: at most two letters away, or one in a short word.
pub(super) fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    let most = if word.len() < 5 { 1 } else { 2 };
    let safe = known.iter().map(String::as_str).filter(|name| !NEVER_SUGGESTED.contains(name));
    safe.map(|name| (strsim::osa_distance(word, name), name))
        .filter(|(far, _)| *far <= most)
        .min()
        .map(|(_, name)| name)
}
