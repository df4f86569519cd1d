//! Exit codes, and the error codes behind them. `docs/reference/errors.md` is generated from these tables.

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const NOT_FOUND: u8 = 3;
pub(crate) const NOT_ALLOWED: u8 = 4;
pub(crate) const CONFLICT: u8 = 5;
pub(crate) const NOTHING: u8 = 6;
pub(crate) const RETRY: u8 = 7;
pub(crate) const DOCTOR: u8 = 8;

/// Exit codes: the number, the word that help uses, and what to do.
#[cfg(feature = "pages")]
pub(crate) const STATUSES: [(u8, &str, &str); 9] = [
    (0, "ok", "The command did what you asked."),
    (FAILED, "failed", "Something outside of toft failed. The message names it."),
    (USAGE, "usage", "The arguments, a file or a value cannot be read. Repeating the command does not help."),
    (NOT_FOUND, "not found or ambiguous", "The named thing does not exist, or the prefix fits several."),
    (NOT_ALLOWED, "not allowed", "A right, your trust or a file permission is missing."),
    (CONFLICT, "conflict", "The state does not allow it: another agent holds the lease, or the task has ended."),
    (NOTHING, "nothing to do", "There is nothing to claim or to do."),
    (
        RETRY,
        "busy or timed out",
        "Something did not answer in time. Repeat the command, except after `outcome_unknown`: check `toft history` first, unless you gave `--op`.",
    ),
    (
        DOCTOR,
        "needs doctor",
        "The store or the checkout needs attention. `toft doctor` shows what is wrong; the table says what helps.",
    ),
];

/// Error codes with the exit code of each and their meaning.
pub(crate) const CODES: &[(u8, &str, &str)] = &[
    (FAILED, "failed", "the command ran, and a part of it failed"),
    (FAILED, "io", "a file cannot be read or written"),
    (FAILED, "no_repository", "a remote's URL names no repository"),
    (FAILED, "no_space", "the disk or quota is full; nothing was changed"),
    (FAILED, "not_installed", "a program is missing on `PATH`"),
    (FAILED, "not_started", "the agent's command cannot be started"),
    (FAILED, "sandbox", "the sandbox cannot be set up"),
    (FAILED, "setup_failed", "a setup command of the workspace failed"),
    (FAILED, "stopped", "the runner was stopped"),
    (FAILED, "store_failed", "the store failed; nothing was changed"),
    (FAILED, "vcs_failed", "git, jj, hg or sl failed"),
    (USAGE, "bad_name", "a name contains characters other than letters, digits, `-` and `_`"),
    (USAGE, "config", "a configuration file has a wrong key or value"),
    (USAGE, "inside_repository", "workspaces would be created inside a repository"),
    (USAGE, "invalid", "a value is not allowed for its field"),
    (USAGE, "missing_variables", "a template needs more variables"),
    (FAILED, "unverified", "a command of the check fails on the commit"),
    (USAGE, "needs_evidence", "done needs a commit, an artefact, or a reason why nothing had to change"),
    (
        USAGE,
        "opened_by_server",
        "a store on PostgreSQL is opened by `toft serve`, `doctor`, `backup` and `token` alone",
    ),
    (USAGE, "on_server", "only the server that has the store does this"),
    (USAGE, "plan_file", "a plan file cannot be read"),
    (USAGE, "unknown_store", "the text does not name a store"),
    (USAGE, "unknown_variables", "a template has no variable of that name"),
    (USAGE, "usage", "the command line cannot be read"),
    (NOT_FOUND, "ambiguous", "a prefix fits several ids"),
    (NOT_FOUND, "no_base", "the commit or branch to start from does not exist"),
    (NOT_FOUND, "no_clone_here", "the repository has no clone on this machine"),
    (NOT_FOUND, "no_repository", "the directory is in no repository"),
    (NOT_FOUND, "no_rescue", "the workspace has no rescue"),
    (NOT_FOUND, "no_store", "the store does not exist"),
    (NOT_FOUND, "not_found", "nothing has that id or name"),
    (NOT_FOUND, "not_initialised", "run `toft init` first"),
    (NOT_FOUND, "unknown_repository", "the store does not know this repository: run `toft init`"),
    (NOT_ALLOWED, "access_denied", "the store's file or server denies access"),
    (NOT_ALLOWED, "no_token", "this user has no token for the server: `toft login URL`"),
    (NOT_ALLOWED, "agent_paused", "the agent is paused: `toft pause --off NAME`"),
    (NOT_ALLOWED, "agent_removed", "the agent was removed"),
    (NOT_ALLOWED, "confined", "an agent in a sandbox or a container has the rights of its own task only"),
    (NOT_ALLOWED, "denied", "the remote denies access"),
    (NOT_ALLOWED, "held", "a secret or private text would be published: a person decides first"),
    (NOT_ALLOWED, "no_sandbox", "this machine has no sandbox"),
    (NOT_ALLOWED, "token_denied", "the token does not allow it: another role, name, machine or task"),
    (NOT_ALLOWED, "not_allowed", "the agent's role lacks the right"),
    (NOT_ALLOWED, "not_for_this_vcs", "the version control system does not support it"),
    (NOT_ALLOWED, "protected", "the remote rejects the push"),
    (NOT_ALLOWED, "read_only", "the file system is read-only; reading works"),
    (NOT_ALLOWED, "untrusted", "you have not trusted the repository's setup commands"),
    (CONFLICT, "branch_taken", "a branch of that name exists"),
    (CONFLICT, "cannot_undo", "the operation cannot be undone any more"),
    (CONFLICT, "cycle", "the dependencies would form a cycle"),
    (CONFLICT, "exists", "the name is taken"),
    (
        CONFLICT,
        "fence_stale",
        "your lease has ended, for example because another agent claimed the task: stop working on it",
    ),
    (CONFLICT, "holds_nothing", "you hold no task, so `@` names nothing"),
    (CONFLICT, "in_use", "a process uses the workspace"),
    (CONFLICT, "lease_held", "another agent holds the task, or you do already"),
    (CONFLICT, "lease_lost", "the lease was lost while the agent ran"),
    (CONFLICT, "no_room", "the maximum number of workspaces is reached"),
    (CONFLICT, "not_holder", "you do not hold the task"),
    (CONFLICT, "not_ready", "the task waits for something"),
    (CONFLICT, "not_whole", "the workspace is damaged; the message says what to do"),
    (CONFLICT, "op_reused", "the operation id belongs to another request"),
    (CONFLICT, "other", "a newer toft refused, for a reason that this version does not know"),
    (CONFLICT, "other_session", "another session of the same agent holds the task"),
    (CONFLICT, "parent_moved", "the task has a newer checkpoint than the one you named"),
    (CONFLICT, "path_taken", "a file or directory is where the workspace would be created"),
    (CONFLICT, "stays", "the workspace contains work that exists nowhere else"),
    (CONFLICT, "store_there", "a store exists where the backup would be restored"),
    (CONFLICT, "sync_conflict", "the remote, its branch or the checkout is in a state that toft does not change"),
    (CONFLICT, "wrong_state", "the state of the issue, task or workspace does not allow it"),
    (NOTHING, "nothing", "there is nothing to do"),
    (NOTHING, "nothing_ready", "no task is ready for this agent"),
    (RETRY, "agent_rests", "the agent's provider refused it; `toft status` says until when it rests"),
    (RETRY, "budget", "one more attempt would pass the budget of the run or the day"),
    (RETRY, "busy", "another process is writing for too long"),
    (RETRY, "late", "a program took too long"),
    (RETRY, "offline", "the remote does not answer; nothing is lost"),
    (RETRY, "outcome_unknown", "the connection broke during a commit; `toft history` shows whether it succeeded"),
    (RETRY, "unreachable", "the server does not answer, or has no such database"),
    (RETRY, "unverified", "the workspace changed while it was saved"),
    (DOCTOR, "checkout_broken", "the checkout is damaged"),
    (
        DOCTOR,
        "damaged",
        "the store's file is damaged: `toft backup restore FILE` restores a backup and keeps the damaged file",
    ),
    (DOCTOR, "newer_store", "a newer toft wrote the store: install that version"),
    (DOCTOR, "older_store", "the store has an older schema: run `toft doctor --upgrade`"),
    (DOCTOR, "unhealthy", "`toft doctor` found a problem"),
    (DOCTOR, "unreadable", "a row of the store cannot be read"),
    (
        DOCTOR,
        "unsuitable",
        "the store cannot be in this place, such as a network file system, or the backup is of another kind of store",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The pairs of status and code in the text of `exit.rs`.
    fn written() -> BTreeSet<(u8, String)> {
        let names = [
            ("FAILED", FAILED),
            ("USAGE", USAGE),
            ("NOT_FOUND", NOT_FOUND),
            ("NOT_ALLOWED", NOT_ALLOWED),
            ("CONFLICT", CONFLICT),
            ("NOTHING", NOTHING),
            ("RETRY", RETRY),
            ("DOCTOR", DOCTOR),
        ];
        let text: String = include_str!("exit.rs").split_whitespace().collect();
        let mut found = BTreeSet::new();
        for (name, status) in names {
            for rest in text.split(&format!("({name},\"")).skip(1) {
                found.extend(rest.split_once('"').map(|(code, _)| (status, code.to_owned())));
            }
        }
        found
    }

    #[test]
    fn the_table_has_every_error_and_no_other() {
        let listed: BTreeSet<_> = CODES.iter().map(|(status, code, _)| (*status, (*code).to_owned())).collect();
        assert_eq!(listed, written());
    }

    #[test]
    fn help_lists_every_exit_code() {
        let help = crate::args::EXIT_CODES.replace('\n', " ");
        for (number, word, _) in STATUSES {
            assert!(help.contains(&format!("{number} {word}")), "{number} {word}");
        }
    }
}
