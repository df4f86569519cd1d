//! The events that the log can contain, by name. `docs/reference/events.md` is generated from this table.

/// A kind of event.
#[derive(Clone, Copy, Debug)]
pub struct EventKind {
    pub name: &'static str,
    /// What its actor did, as in "red-fox saved".
    pub said: &'static str,
    pub meaning: &'static str,
}

const fn event(name: &'static str, said: &'static str, meaning: &'static str) -> EventKind {
    EventKind { name, said, meaning }
}

/// The kind of an event, if this toft knows it.
#[must_use]
pub fn kind_of(event: &str) -> Option<&'static EventKind> {
    EVENTS.iter().find(|known| known.name == event)
}

/// Every kind of event, grouped by entity.
pub const EVENTS: &[EventKind] = &[
    event("flow.new", "made a workflow", "a workflow was created"),
    event("flow.started", "started", "a workflow that was held back was started"),
    event("flow.added", "added tasks to", "tasks were added to a workflow"),
    event("flow.replanned", "replanned", "a workflow got a new plan"),
    event("flow.limited", "changed the limits of", "the parallelism or budget of a workflow was changed"),
    event("flow.paused", "paused", "a workflow was paused: none of its tasks can be claimed"),
    event("flow.resumed", "resumed", "a paused or failed workflow was resumed"),
    event("flow.completed", "completed", "every task of a workflow ended, and none failed"),
    event("flow.failed", "gave up", "a task used up its attempts, and no other task of the workflow can continue"),
    event("flow.abandoned", "abandoned", "a workflow was abandoned and its open tasks were cancelled"),
    event("flow.restored", "restored", "an abandoned workflow was restored by undo"),
    event("claim", "claimed", "an agent claimed a task"),
    event("save", "saved", "an agent saved a checkpoint"),
    event("state", "stored a value for", "an agent stored a value under a key of its task"),
    event("task.done", "finished", "a task was finished, with evidence"),
    event(
        "task.failed",
        "failed at",
        "an attempt failed; `status` in the details says whether the task is tried again",
    ),
    event("task.released", "released", "an agent released its task; others can claim it"),
    event("task.handoff", "handed over", "an agent handed its task over with a note"),
    event("task.waiting", "asked", "a task waits for an answer, a time or a command"),
    event("task.answered", "answered", "the question of a waiting task was answered"),
    event("task.assigned", "assigned", "a task was assigned to an agent"),
    event("task.unassigned", "unassigned", "a task is no longer assigned to an agent"),
    event("task.taken_over", "took over", "another session of the same agent took a task over"),
    event("task.reported", "reported on", "a runner reported how an attempt ended: exit code, cost, log"),
    event("task.retried", "retries", "a failed task was put back into the queue"),
    event("task.skipped", "skipped", "a task was skipped, by a person or because it is not needed"),
    event("task.cancelled", "cancelled", "a task was cancelled because its workflow was abandoned"),
    event("task.stop_ordered", "ordered to stop", "a person asked a runner to stop an attempt"),
    event("task.stopped", "stopped", "a running attempt was stopped"),
    event("lease.lost", "lost", "a lease expired, or its process ended; the task can be claimed again"),
    event("lease.revoked", "took back", "a lease ended because its task was cancelled"),
    event(
        "lease.watched",
        "watches leases of other machines",
        "this machine began to watch leases of other machines that were not renewed in time",
    ),
    event("issue.added", "added", "an issue was added"),
    event("issue.edited", "edited", "an issue was changed"),
    event("issue.started", "in progress:", "an issue is in progress: its task was claimed"),
    event("issue.finished", "done, not landed:", "the work on an issue is done and has not landed yet"),
    event("issue.released", "no longer in progress:", "an issue is no longer in progress"),
    event("issue.closed", "closed", "an issue was closed"),
    event("issue.reopened", "reopened", "an issue was opened again"),
    event("issue.deleted", "deleted", "an issue was deleted"),
    event("issue.restored", "restored", "a deleted issue was restored"),
    event("issue.reverted", "undid a change of", "a change of an issue was undone or redone"),
    event("issue.moved", "moved", "an issue was moved to another ledger"),
    event("issue.proposed", "proposed", "an issue was proposed to another ledger"),
    event("issue.withdrawn", "withdrew", "a proposal was withdrawn"),
    event("issue.accepted", "accepted", "a proposed issue was accepted"),
    event("issue.rejected", "rejected", "a proposed issue was rejected"),
    event("issue.followed", "took over the decision on", "a proposal took over the maintainers' decision at a sync"),
    event("issue.claimed_twice", "found claimed twice:", "two clones claimed the same issue before they synchronized"),
    event("epic.closed", "closed, with its last part:", "an epic was closed with its last open part"),
    event(
        "epic.reopened",
        "reopened, with a part:",
        "an epic that was closed with its parts was opened again with one of them",
    ),
    event("ledger.imported", "imported issues", "issues were imported"),
    event("message.sent", "sent a message", "a message was sent"),
    event("message.read", "read a message", "a message was read"),
    event("message.acked", "acknowledged a message", "a message was acknowledged"),
    event("token.created", "made a token", "a token for a server was made"),
    event("token.revoked", "revoked tokens", "tokens were revoked, or a code for joining was used"),
    event("agent.registered", "registered", "an agent was registered, or its description was changed"),
    event("agent.told", "paused or resumed", "an agent was paused or resumed"),
    event("agent.removed", "removed", "an agent was removed"),
    event("land.taken", "took for landing", "a clone on another machine lands finished work"),
    event("land.queued", "offered for landing", "finished work was offered for landing, or offered again"),
    event("land.landed", "landed", "finished work is in its target branch"),
    event("land.bounced", "sent back", "finished work was sent back; its task is open again"),
    event("land.withdrawn", "withdrew from landing", "finished work is not to be landed"),
    event("land.approved", "approved", "a reviewer approved finished work"),
    event("land.proposed", "opened a pull request for", "finished work was pushed to a pull request"),
    event("land.checked", "checked a tree", "the check ran on a tree"),
    event("template.put", "saved a template", "a template was saved, as a new version"),
    event("template.removed", "removed a template", "a template was removed"),
    event("ws.requested", "asked for a workspace", "a workspace is about to be created"),
    event("ws.ready", "prepared a workspace", "a workspace is ready to work in"),
    event("ws.taken", "took a workspace", "a task took a workspace that was prepared in advance"),
    event("ws.reused", "went on in a workspace", "a task continues in a workspace that exists"),
    event("ws.landed", "recorded a workspace as landed", "a person recorded that the work of a workspace has landed"),
    event("ws.pinned", "pinned a workspace", "a workspace was pinned: garbage collection keeps it"),
    event("ws.unpinned", "unpinned a workspace", "a workspace is no longer pinned"),
    event("ws.quarantined", "quarantined a workspace", "a workspace cannot be used and is kept for inspection"),
    event("ws.removing", "removes a workspace", "a workspace is about to be removed"),
    event("ws.removed", "removed a workspace", "a workspace was removed; `rescue` in the details names what was saved"),
    event("ws.restoring", "restores a workspace", "a removed workspace is about to be restored"),
    event("ws.unregistered", "unregistered a checkout", "a checkout that was used in place is no longer a workspace"),
    event(
        "repository.clone_from",
        "named an address to clone from",
        "machines of the fleet clone a repository from this address, or from nowhere",
    ),
    event("repository.seen", "registered a checkout", "a repository or worktree was registered in this store"),
    event("undone", "undid", "an operation was undone"),
    event("redone", "redid", "an undone operation was redone"),
    event("data.forgotten", "deleted old rows", "garbage collection deleted old rows"),
    event(
        "clock.stepped_back",
        "corrected timers: the clock went back",
        "the wall clock of the store's machine went back, and timers were corrected",
    ),
];

/// Whether the table has this event.
pub(crate) fn known(name: &str) -> bool {
    kind_of(name).is_some()
}
