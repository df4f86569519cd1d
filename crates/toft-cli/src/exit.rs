//! Every way to fail: its code, its exit status, and the next step. Never a complete destructive command.

mod suggestion;

use std::{process::ExitCode, time::Duration};

use serde_json::{Value, json};
use toft::{
    Error,
    flow::TaskStatus,
    id::TaskId,
    ready::Reason,
    refusal::Refusal,
    store::{Fault, StoreError, Writer},
    vcs::{FindError, RunError, exchange::ExchangeError, workspace::WorkspaceError},
};

use self::suggestion::{known_subcommands, meant, meant_by_flag, nearest};
use crate::codes::{CODES, CONFLICT, DOCTOR, FAILED, NOT_ALLOWED, NOT_FOUND, NOTHING, RETRY, USAGE};

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) retryable: bool,
    pub(crate) facts: Value,
    /// What was seen all the same: its kind, and the data.
    pub(crate) seen: Option<Box<(String, Value)>>,
}

impl Failure {
    /// The same, with ids as they are shown to people.
    pub(crate) fn shortened(mut self, shorten: impl Fn(&str) -> String) -> Self {
        self.message = shorten(&self.message);
        self.help = self.help.map(|help| shorten(&help));
        self
    }

    fn new(status: u8, code: &'static str, message: impl Into<String>, help: &str) -> Self {
        debug_assert!(CODES.iter().any(|(of, known, _)| (*of, *known) == (status, code)), "{code} is not in codes.rs");
        let help = (!help.is_empty()).then(|| help.to_owned());
        Self { status, code, message: message.into(), help, retryable: status == RETRY, facts: Value::Null, seen: None }
    }

    /// A value that cannot be.
    pub(crate) fn invalid(message: impl Into<String>, help: &str) -> Self {
        Self::new(USAGE, "usage", message, help)
    }

    /// An agent that should hear something holds nothing.
    pub(crate) fn idle_agent(name: &str) -> Self {
        let help = "toft status lists who works; toft agent send reaches an agent that does not";
        Self::new(CONFLICT, "holds_nothing", format!("{name} holds no task"), help)
    }

    /// The agent's provider refuses it for now.
    pub(crate) fn resting(message: impl Into<String>, help: &str) -> Self {
        Self::new(RETRY, "agent_rests", message, help)
    }

    /// More would pass a budget.
    pub(crate) fn budget(message: String) -> Self {
        let help = "[run] day_cost in ~/.config/toft/config.toml, --max-cost and --max-tokens are the limits";
        Self::new(RETRY, "budget", message, help)
    }

    /// There is nothing to do.
    pub(crate) fn nothing(message: impl Into<String>, help: &str) -> Self {
        Self::new(NOTHING, "nothing", message, help)
    }

    /// It ran, and something in it did not work.
    pub(crate) fn stopped(message: impl Into<String>, help: &str) -> Self {
        Self::new(FAILED, "failed", message, help)
    }

    /// A command that verifies work failed.
    pub(crate) fn unverified(said: &str) -> Self {
        let help = "mend it and commit, then finish again; nothing was recorded";
        Self::new(FAILED, "unverified", format!("the work is not verified: {said}"), help)
    }

    /// An agent asks through the socket of its attempt for what is not about its task.
    pub(crate) fn confined(command: &str) -> Self {
        let help = "list, show, status, ready, add, save, finish and agent send work in here; ask a person for the rest: toft finish waiting -m QUESTION";
        let message = format!(
            "`toft {command}` is not allowed like this: an agent in a sandbox or a container has the rights of its own task only"
        );
        Self::new(NOT_ALLOWED, "confined", message, help)
    }

    /// It is not done before somebody looked.
    pub(crate) fn held(message: impl Into<String>, help: &str) -> Self {
        Self::new(NOT_ALLOWED, "held", message, help)
    }

    /// The doctor found something.
    pub(crate) fn unhealthy(count: usize) -> Self {
        Self::new(
            DOCTOR,
            "unhealthy",
            if count == 1 { "1 check failed".to_owned() } else { format!("{count} checks failed") },
            "see the lines marked FAIL",
        )
    }

    /// What clap says of a command, in one line, with its best suggestion.
    pub(crate) fn usage(error: &clap::Error, command: Option<&str>) -> Self {
        use clap::error::{ContextKind, ContextValue};
        let text = error.render().to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let message = lines.next().unwrap_or("unreadable arguments").trim_start_matches("error: ").to_owned();
        let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| match error.get(kind) {
                Some(ContextValue::String(word)) => Some(word.clone()),
                Some(ContextValue::Strings(words)) => words.first().cloned(),
                _ => None,
            });
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(word)) => Some(word.as_str()),
            _ => None,
        };
        let (word, flag) = (context(ContextKind::InvalidSubcommand), context(ContextKind::InvalidArg));
        let (parent, known) = known_subcommands(&text);
        let typed = match (word, flag) {
            (Some(word), _) => meant(&parent, word),
            (None, Some(flag)) => meant_by_flag(command.unwrap_or_default(), flag),
            (None, None) => None,
        };
        // Clap suggests what shares letters; what is near is what was meant.
        let suggested = match (word, flag) {
            (Some(word), _) => nearest(word, &known).map(str::to_owned),
            (None, Some(flag)) => suggested.filter(|known| nearest(flag, std::slice::from_ref(known)).is_some()),
            (None, None) => suggested,
        };
        let missing = lines.clone().find(|line| line.starts_with(['<', '-'])).map(str::to_owned);
        let usage = lines.clone().find(|line| line.starts_with("Usage:")).map(str::to_owned);
        let message = match missing {
            Some(missing) if message.ends_with(':') => format!("{message} {missing}"),
            _ => message,
        };
        let help = match (suggested, usage) {
            _ if let Some(meant) = typed => meant.to_owned(),
            (Some(word), _) => format!("did you mean `{word}`?"),
            (None, _) if word.is_some() && !parent.is_empty() => format!("toft {parent} takes {}", known.join(", ")),
            (None, _) if flag.is_some() => format!("toft {} --help lists what it takes", command.unwrap_or_default()),
            (None, Some(usage)) => usage,
            (None, None) => {
                command.map_or_else(|| "toft --help".to_owned(), |command| format!("toft {command} --help"))
            }
        };
        Self::new(USAGE, "usage", message, &help)
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "code": self.code,
            "message": self.message,
            "help": self.help,
            "retryable": self.retryable,
            "facts": self.facts,
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Refused(refusal) => refused(&refusal, message),
            Error::Store(error) => store(&error, message),
            Error::Checkout(FindError::Unreadable { cause, .. }) if let Some(fault) = Fault::of(&cause) => {
                blocked(fault, message)
            }
            Error::Checkout(FindError::Dangling { .. }) => {
                let help = "if the repository was moved: toft ws list there repairs its workspaces; else name a checkout with -C";
                Self::new(DOCTOR, "checkout_broken", message, help)
            }
            Error::Checkout(_) => {
                Self::new(DOCTOR, "checkout_broken", message, "change to an undamaged checkout, or name one with -C")
            }
            Error::NoRepository { .. } => Self::new(
                NOT_FOUND,
                "no_repository",
                message,
                "change to a repository, or add --store global, or run toft init --no-vcs for a plain directory",
            ),
            Error::NotInitialised { store } if store.starts_with("postgres") => Self::new(
                NOT_FOUND,
                "not_initialised",
                message,
                "toft token create NAME --role admin makes it; toft serve serves it",
            ),
            Error::NotInitialised { .. } => Self::new(NOT_FOUND, "not_initialised", message, "toft init"),
            Error::UnknownRepository { .. } => {
                Self::new(NOT_FOUND, "unknown_repository", message, "toft init registers it there")
            }
            Error::StoreThere { .. } => Self::new(
                CONFLICT,
                "store_there",
                message,
                "add --replace: the present store is kept under another name",
            ),
            Error::UnknownStore { .. } => Self::new(
                USAGE,
                "unknown_store",
                message,
                "a store is repo, worktree, global, the path of a file, postgres://…, or https://…",
            ),
            Error::NoToken { .. } => {
                Self::new(NOT_ALLOWED, "no_token", message, "toft login URL keeps a token that its server gave you")
            }
            Error::OpenedByServer { .. } => Self::new(
                USAGE,
                "opened_by_server",
                message,
                "toft serve --store URL serves it; other commands ask that server: toft login https://SERVER",
            ),
            Error::OnServer { .. } => Self::new(USAGE, "on_server", message, "ask who runs that server"),
            Error::Config { .. } => Self::new(USAGE, "config", message, "correct that value, or remove its line"),
            Error::PlanFile { .. } => Self::new(USAGE, "plan_file", message, "see docs/guides/plan.md for the format"),
            Error::Workspace(error) => workspace(&error, message),
            Error::Exchange(error) => {
                let (status, code, help) = match error {
                    ExchangeError::Offline { .. } => (RETRY, "offline", "nothing is lost; try again later"),
                    ExchangeError::NotFound { .. } => (FAILED, "no_repository", "git remote -v shows its URL"),
                    ExchangeError::Denied { .. } => (NOT_ALLOWED, "denied", "check your access to that remote"),
                    ExchangeError::Protected { .. } => (NOT_ALLOWED, "protected", "ask the maintainer of that remote"),
                    ExchangeError::Conflict(_) => (CONFLICT, "sync_conflict", ""),
                    ExchangeError::Failed(error) => return workspace(&error, message),
                };
                Self::new(status, code, message, help)
            }
            Error::NoCloneHere { .. } => Self::new(
                NOT_FOUND,
                "no_clone_here",
                message,
                "git clone it on this machine, then toft init in the clone",
            ),
            Error::Untrusted { doing, .. } => {
                let plain = match doing == "setting a workspace up" {
                    true => " · toft ws create --plain makes a workspace without them",
                    false => "",
                };
                let help = format!("toft trust shows them, toft trust --yes allows them{plain}");
                Self::new(NOT_ALLOWED, "untrusted", message, &help)
            }
            Error::Setup { .. } => Self::new(
                FAILED,
                "setup_failed",
                message,
                "fix the command, or use --plain to create a workspace without setup",
            ),
            Error::NoWorkspace { cause } => Self { message, ..Self::from(*cause) },
            Error::Start { .. } => Self::new(FAILED, "not_started", message, "is it installed, and on PATH?"),
            Error::LeaseLost { .. } => {
                Self::new(CONFLICT, "lease_lost", message, "toft show ID shows who holds it now")
            }
            Error::RunnerStopped => Self::new(FAILED, "stopped", message, ""),
            Error::NoSandbox => Self::new(
                NOT_ALLOWED,
                "no_sandbox",
                message,
                "install bubblewrap, or use --in podman; --sandbox=landlock is a guard, no boundary",
            ),
            Error::NoLandlock => Self::new(NOT_ALLOWED, "no_sandbox", message, "install bubblewrap and use --sandbox"),
            Error::Sandbox { .. } => Self::new(FAILED, "sandbox", message, "toft doctor"),
            Error::Io { cause, .. } => match Fault::of(&cause) {
                Some(fault) => blocked(fault, message),
                None => Self::new(FAILED, "io", message, ""),
            },
        }
    }
}

fn workspace(error: &WorkspaceError, message: String) -> Failure {
    let (status, code, help) = match error {
        WorkspaceError::Run(RunError::Missing(_)) => (FAILED, "not_installed", "install it, or correct PATH"),
        WorkspaceError::Run(RunError::Late { .. }) => {
            (RETRY, "late", "try again; toft ws list shows the state of workspaces")
        }
        WorkspaceError::Run(_) => (FAILED, "vcs_failed", "toft doctor · toft ws list"),
        WorkspaceError::Io { .. } => (FAILED, "io", ""),
        WorkspaceError::Find(_) => (DOCTOR, "checkout_broken", "toft doctor"),
        WorkspaceError::Busy { .. } => (RETRY, "busy", "try again"),
        WorkspaceError::InUse { .. } => {
            (CONFLICT, "in_use", "cd out of it, close the file, or wait for that process to end")
        }
        WorkspaceError::PathTaken { .. } => {
            (CONFLICT, "path_taken", "choose another --name; the existing file or directory is kept")
        }
        WorkspaceError::Inside { .. } => {
            (USAGE, "inside_repository", "set workspaces.root in config.toml to a directory outside of any repository")
        }
        WorkspaceError::BranchTaken { .. } => (CONFLICT, "branch_taken", "choose another --name"),
        WorkspaceError::NoRescue { .. } => (NOT_FOUND, "no_rescue", "toft ws list NAME lists its rescues"),
        WorkspaceError::NoBase { text } if text == "HEAD" => (NOT_FOUND, "no_base", "commit something first"),
        WorkspaceError::NoBase { .. } => (NOT_FOUND, "no_base", "name a commit or branch with --base"),
        WorkspaceError::BadName { .. } => (USAGE, "bad_name", "use letters, digits, - and _"),
        WorkspaceError::NotFor { .. } => (NOT_ALLOWED, "not_for_this_vcs", "see docs/guides/workspaces.md"),
        WorkspaceError::Stays { .. } => (CONFLICT, "stays", "toft ws list lists its content; --rescue saves it first"),
        WorkspaceError::NotWhole { next, .. } => (CONFLICT, "not_whole", next.as_str()),
        WorkspaceError::Unverified { .. } => {
            (RETRY, "unverified", "a process writes to it; try again when that has ended")
        }
    };
    Failure::new(status, code, message, help)
}

fn refused(refusal: &Refusal, mut message: String) -> Failure {
    let facts = toft::json::to_value(refusal).unwrap_or_default();
    let (status, code, help) = match refusal {
        Refusal::Other { .. } => (CONFLICT, "other", String::new()),
        Refusal::NotFound { what, .. } => (NOT_FOUND, "not_found", look_up(what).into()),
        Refusal::Ambiguous { text, candidates } if text == "@" => {
            message = format!("you hold {} tasks: {}", candidates.len(), candidates.join(", "));
            let first = candidates.first().map_or("ID", String::as_str);
            (NOT_FOUND, "ambiguous", format!("name one of them, such as {first}"))
        }
        Refusal::Ambiguous { .. } => (NOT_FOUND, "ambiguous", "give more characters of the id".into()),
        Refusal::LeaseHeld { task, yours: true, until, .. } => {
            message = format!("you hold {task} already, until {until}");
            (CONFLICT, "lease_held", format!("toft save {task} -m \"…\" · toft finish {task}"))
        }
        Refusal::LeaseHeld { task, agent, until, silent_s, .. } => {
            message = format!(
                "{task} is held by {agent} until {until} (active {})",
                toft::time::ago(Duration::from_secs(*silent_s))
            );
            let help = format!("toft ready · toft agent send {agent} \"…\" · toft claim {task} --wait");
            (CONFLICT, "lease_held", help)
        }
        Refusal::FenceStale { .. } => {
            (CONFLICT, "fence_stale", "stop working on it: your writes are rejected · toft ready".into())
        }
        Refusal::OtherSession { task, .. } => (
            CONFLICT,
            "other_session",
            format!(
                "finish it where it was claimed, add --fence with the fence of the claim, or toft claim {task} --take-over"
            ),
        ),
        Refusal::NotHolder { task, status, .. } if !status.open() => {
            (CONFLICT, "not_holder", format!("toft show {task}"))
        }
        Refusal::NotHolder { task, .. } => (CONFLICT, "not_holder", format!("toft claim {task} · toft show {task}")),
        Refusal::HoldsNothing { .. } => (CONFLICT, "holds_nothing", "toft claim · or name the task".into()),
        Refusal::NotReady { task, reasons } => (CONFLICT, "not_ready", unready(task, reasons)),
        Refusal::IssueNotReady { issue, .. } => {
            (CONFLICT, "not_ready", format!("toft show {issue} --why · toft ready"))
        }
        Refusal::NothingReady { lacking, .. } if !lacking.is_empty() => (
            NOTHING,
            "nothing_ready",
            format!("toft agent register NAME --can {}, then --as NAME", lacking.join(" --can ")),
        ),
        Refusal::NothingReady { examined: Some(_), .. } => {
            (NOTHING, "nothing_ready", "use fewer labels, or a rarer one".into())
        }
        Refusal::NothingReady { unstartable: Some(found), .. } => (
            NOTHING,
            "nothing_ready",
            format!("toft show {} · toft flow template list · toft claim --wait", found.issue),
        ),
        Refusal::NothingReady { .. } => {
            (NOTHING, "nothing_ready", "toft ready --explain · toft claim --wait · toft add \"title\"".into())
        }
        Refusal::WrongState { wanted, .. } if wanted.contains(" ws ") => (CONFLICT, "wrong_state", String::new()),
        Refusal::WrongState { id, .. } if id.starts_with(toft::id::LandingId::PREFIX) => {
            (CONFLICT, "wrong_state", format!("toft land show {id}"))
        }
        Refusal::WrongState { id, .. } => (CONFLICT, "wrong_state", format!("toft show {id}")),
        Refusal::NeedsEvidence => {
            (USAGE, "needs_evidence", "add --evidence COMMIT, --artifact NAME or --no-change REASON".into())
        }
        Refusal::Unverified { .. } => {
            (FAILED, "unverified", "finish it with toft finish, which runs the command".into())
        }
        Refusal::ParentMoved { task, .. } => {
            (CONFLICT, "parent_moved", format!("toft show {task}, build on the newest checkpoint, save again"))
        }
        Refusal::Cycle { .. } => (CONFLICT, "cycle", "leave one of these dependencies out".into()),
        Refusal::AgentPaused { agent, state, .. } if state == "removed" => {
            (NOT_ALLOWED, "agent_removed", format!("toft agent register {agent} registers it again"))
        }
        Refusal::TokenDenied { .. } => (
            NOT_ALLOWED,
            "token_denied",
            "act under the token's own name, or ask an admin of the server for a token with another role".into(),
        ),
        Refusal::NotAllowed { .. } => (
            NOT_ALLOWED,
            "not_allowed",
            "toft agent send human \"…\" asks for it · toft agent --help lists rights".into(),
        ),
        Refusal::AgentPaused { agent, .. } => (
            NOT_ALLOWED,
            "agent_paused",
            format!("toft pause --off {agent}; on a drained machine, toft pause --off --machine NAME"),
        ),
        Refusal::Exists { .. } => (CONFLICT, "exists", "choose another name".into()),
        Refusal::NoRoom { .. } => (CONFLICT, "no_room", "toft ws gc removes workspaces whose work has landed".into()),
        Refusal::Invalid { .. } => (USAGE, "invalid", String::new()),
        Refusal::MissingVariables { .. } => (USAGE, "missing_variables", "add --set NAME=VALUE for each".into()),
        Refusal::UnknownVariables { .. } => (USAGE, "unknown_variables", "toft flow template list".into()),
        Refusal::Secret { .. } => {
            (NOT_ALLOWED, "held", "remove a real secret with toft edit; --allow FINDING allows that finding".into())
        }
        Refusal::CannotUndo { .. } => (CONFLICT, "cannot_undo", "toft history shows what was done".into()),
        Refusal::Findings { .. } => {
            let help =
                "remove it with toft edit, leave the field out with --without FIELD, or publish it with --allow ID";
            (NOT_ALLOWED, "held", help.into())
        }
        Refusal::OpReused { .. } => (CONFLICT, "op_reused", "use a new --op id for another request".into()),
    };
    Failure { facts, ..Failure::new(status, code, message, &help) }
}

/// Where what was not found could be looked up.
fn look_up(what: &str) -> &'static str {
    match what {
        "workflow" => "toft flow list --all",
        "template" => "toft flow template list",
        "agent" | "role" => "toft agent list",
        "question" | "open question" => "toft status",
        "message" => "toft agent inbox --all",
        "state key" => "toft show TASK",
        "repository" => "toft doctor",
        "workspace" => "toft ws list --all",
        "ledger" => "toft ledger list",
        "call" => "toft export schema calls -q",
        "remote" => "git remote -v lists them",
        "revision or time" => "nothing was recorded by then; toft history ID shows the times",
        _ => "toft list --all · toft flow list · toft agent list",
    }
}

/// What helps a task that cannot start: waiting, if that can help at all.
fn unready(task: &TaskId, reasons: &[Reason]) -> String {
    let ended = |wanted: TaskStatus| reasons.contains(&Reason::Status { status: wanted });
    let lacks = reasons.iter().find_map(|reason| match reason {
        Reason::MissingCapability { tags } => Some(tags.join(" --can ")),
        _ => None,
    });
    let assigned = reasons.iter().any(|reason| matches!(reason, Reason::Assigned { .. }));
    if assigned {
        format!("toft ready · toft show {task}")
    } else if let Some(tags) = lacks {
        format!("toft agent register NAME --can {tags}, then --as NAME")
    } else if ended(TaskStatus::Failed) {
        format!("toft retry {task}")
    } else if [TaskStatus::Done, TaskStatus::Skipped, TaskStatus::Cancelled].into_iter().any(ended) {
        format!("toft show {task} · toft ready")
    } else {
        format!("toft show {task} --why · toft claim {task} --wait")
    }
}

fn store(error: &StoreError, message: String) -> Failure {
    match error {
        StoreError::Failed { .. } => {
            Failure::new(FAILED, "store_failed", message, "nothing was changed; toft doctor checks the store")
        }
        StoreError::Blocked { fault, .. } => blocked(*fault, message),
        StoreError::Damaged { .. } => Failure::new(
            DOCTOR,
            "damaged",
            message,
            "toft backup restore FILE restores a backup and keeps the damaged file",
        ),
        StoreError::Older { .. } => Failure::new(
            DOCTOR,
            "older_store",
            message,
            "toft doctor --upgrade upgrades it; stop processes of older versions first",
        ),
        StoreError::Busy { writer: Some(Writer { pid, stopped: true, .. }), .. } => {
            let help = format!("kill -CONT {pid} resumes it; then try again. Reading works meanwhile");
            Failure::new(RETRY, "busy", message, &help)
        }
        StoreError::Busy { .. } => Failure::new(RETRY, "busy", message, "try again"),
        StoreError::Conflict => Failure::new(RETRY, "busy", message, "try again"),
        StoreError::OutcomeUnknown { .. } => Failure::new(
            RETRY,
            "outcome_unknown",
            message,
            "toft history shows whether it succeeded; a command repeated with the same --op runs once",
        ),
        StoreError::Unreachable { .. } => Failure::new(
            RETRY,
            "unreachable",
            message,
            "toft doctor shows which server and why; try again when it answers",
        ),
        StoreError::Unreadable { .. } => Failure::new(DOCTOR, "unreadable", message, "toft doctor"),
        StoreError::Newer { .. } => {
            Failure::new(DOCTOR, "newer_store", message, "install the newer version that wrote it")
        }
        StoreError::Unsuitable { .. } => {
            Failure::new(DOCTOR, "unsuitable", message, "toft doctor shows why it was chosen")
        }
        StoreError::Missing { .. } => Failure::new(NOT_FOUND, "no_store", message, "toft init · toft doctor"),
    }
}

/// Obstacles outside the store.
fn blocked(fault: Fault, message: String) -> Failure {
    let (status, code, help) = match fault {
        Fault::AccessDenied => (
            NOT_ALLOWED,
            "access_denied",
            "toft doctor shows the file: you need write permission; in a sandbox, allow that directory",
        ),
        Fault::ReadOnly => (
            NOT_ALLOWED,
            "read_only",
            "reading works here; to write, allow that directory in the sandbox (Codex: toft setup codex --user, outside of it), mount it writable, or choose another --store",
        ),
        Fault::NoSpace => (FAILED, "no_space", "nothing was changed; free disk space or quota, then try again"),
        Fault::Credentials => (
            NOT_ALLOWED,
            "access_denied",
            "toft doctor shows the store: for a server, toft login; for PostgreSQL, the user and password of its URL, or PGPASSWORD",
        ),
    };
    Failure::new(status, code, message, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_answered_with_what_is_near_and_takes_nothing_away() {
        let known: Vec<String> =
            ["status", "setup", "ready", "try", "delete", "add", "list", "claim"].map(str::to_owned).into();
        for (typed, meant) in [
            ("stauts", Some("status")),
            ("redy", Some("ready")),
            ("lsit", Some("list")),
            ("delte", None),
            ("clam", Some("claim")),
            ("land", None),
            ("frobnicate", None),
        ] {
            assert_eq!(nearest(typed, &known), meant, "{typed}");
        }
    }
}
