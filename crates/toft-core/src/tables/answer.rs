//! The queries of a transaction, answered from tables.

/// Implements the queries of a [`StoreTx`](crate::store::StoreTx) that rows answer: all but those about the log and receipts.
#[macro_export]
macro_rules! answer_from_tables {
    ($self:ident => $tables:expr) => {
        fn repositories(&mut $self) -> $crate::store::Result<Vec<$crate::repository::Repository>> {
            $tables.repositories()
        }
        fn worktrees(&mut $self, repository: &$crate::id::RepositoryId) -> $crate::store::Result<Vec<$crate::repository::Worktree>> {
            $tables.worktrees(repository)
        }
        fn workflow(&mut $self, id: &$crate::id::WorkflowId) -> $crate::store::Result<Option<$crate::flow::Workflow>> {
            $tables.workflow(id)
        }
        fn workflows(&mut $self, query: &$crate::store::WorkflowQuery) -> $crate::store::Result<Vec<$crate::flow::Workflow>> {
            $tables.workflows(query)
        }
        fn workflow_of_issue(&mut $self, issue: &str) -> $crate::store::Result<Option<$crate::flow::Workflow>> {
            $tables.workflow_of_issue(issue)
        }
        fn ledger_pending(&mut $self, repository: Option<&$crate::id::RepositoryId>, limit: usize) -> $crate::store::Result<Vec<$crate::flow::Workflow>> {
            $tables.ledger_pending(repository, limit)
        }
        fn progress(&mut $self, workflow: &$crate::id::WorkflowId) -> $crate::store::Result<Vec<($crate::flow::TaskStatus, u64)>> {
            $tables.progress(workflow)
        }
        fn has_unblocked(&mut $self, workflow: &$crate::id::WorkflowId) -> $crate::store::Result<bool> {
            $tables.has_unblocked(workflow)
        }
        fn task(&mut $self, id: &$crate::id::TaskId) -> $crate::store::Result<Option<$crate::flow::Task>> {
            $tables.task(id)
        }
        fn tasks(&mut $self, query: &$crate::store::TaskQuery) -> $crate::store::Result<Vec<$crate::flow::Task>> {
            $tables.tasks(query)
        }
        fn dependencies(&mut $self, task: &$crate::id::TaskId) -> $crate::store::Result<Vec<($crate::flow::Dependency, Option<$crate::flow::TaskStatus>)>> {
            $tables.dependencies(task)
        }
        fn dependents(&mut $self, on: &$crate::id::TaskId) -> $crate::store::Result<Vec<$crate::flow::Dependency>> {
            $tables.dependents(on)
        }
        fn lease(&mut $self, task: &$crate::id::TaskId) -> $crate::store::Result<Option<$crate::lease::Lease>> {
            $tables.lease(task)
        }
        fn leases(&mut $self, of: &$crate::store::LeasesOf) -> $crate::store::Result<Vec<$crate::lease::Lease>> {
            $tables.leases(of)
        }
        fn overdue(&mut $self, wall: $crate::time::Timestamp, host: Option<&str>, limit: usize) -> $crate::store::Result<Vec<$crate::lease::Lease>> {
            $tables.overdue(wall, host, limit)
        }
        fn attempts(&mut $self, task: &$crate::id::TaskId) -> $crate::store::Result<Vec<$crate::flow::Attempt>> {
            $tables.attempts(task)
        }
        fn checkpoints(&mut $self, task: &$crate::id::TaskId, limit: usize) -> $crate::store::Result<Vec<$crate::checkpoint::Checkpoint>> {
            $tables.checkpoints(task, limit)
        }
        fn state(&mut $self, task: &$crate::id::TaskId, key: &str) -> $crate::store::Result<Option<$crate::tables::Json>> {
            $tables.state(task, key)
        }
        fn states(&mut $self, task: &$crate::id::TaskId) -> $crate::store::Result<Vec<(String, $crate::tables::Json)>> {
            $tables.states(task)
        }
        fn agent(&mut $self, id: &$crate::id::AgentId) -> $crate::store::Result<Option<$crate::agent::Agent>> {
            $tables.agent(id)
        }
        fn agent_named(&mut $self, name: &str) -> $crate::store::Result<Option<$crate::agent::Agent>> {
            $tables.agent_named(name)
        }
        fn agents(&mut $self) -> $crate::store::Result<Vec<$crate::agent::Agent>> {
            $tables.agents()
        }
        fn message(&mut $self, id: &$crate::id::MessageId) -> $crate::store::Result<Option<$crate::message::Message>> {
            $tables.message(id)
        }
        fn inbox(&mut $self, recipient: &str, unread_only: bool, limit: usize) -> $crate::store::Result<Vec<$crate::message::InboxItem>> {
            $tables.inbox(recipient, unread_only, limit)
        }
        fn gates(&mut $self, task: &$crate::id::TaskId) -> $crate::store::Result<Vec<$crate::gate::Gate>> {
            $tables.gates(task)
        }
        fn gate(&mut $self, id: &$crate::id::GateId) -> $crate::store::Result<Option<$crate::gate::Gate>> {
            $tables.gate(id)
        }
        fn unopened_gates(&mut $self, scope: &$crate::repository::Scope, limit: usize) -> $crate::store::Result<Vec<$crate::gate::Gate>> {
            $tables.unopened_gates(scope, limit)
        }
        fn workspace(&mut $self, id: &$crate::id::WorkspaceId) -> $crate::store::Result<Option<$crate::workspace::Workspace>> {
            $tables.workspace(id)
        }
        fn workspaces(&mut $self, query: &$crate::store::WorkspaceQuery) -> $crate::store::Result<Vec<$crate::workspace::Workspace>> {
            $tables.workspaces(query)
        }
        fn landing(&mut $self, id: &$crate::id::LandingId) -> $crate::store::Result<Option<$crate::landing::Landing>> {
            $tables.landing(id)
        }
        fn landings(&mut $self, query: &$crate::store::LandingQuery) -> $crate::store::Result<Vec<$crate::landing::Landing>> {
            $tables.landings(query)
        }
        fn verdict(&mut $self, key: &str) -> $crate::store::Result<Option<$crate::landing::Verdict>> {
            $tables.verdict(key)
        }
        fn flaky_verdicts(&mut $self, repository: &$crate::id::RepositoryId) -> $crate::store::Result<Vec<$crate::landing::Verdict>> {
            $tables.flaky_verdicts(repository)
        }
        fn token(&mut $self, digest: &str) -> $crate::store::Result<Option<$crate::token::Token>> {
            $tables.token(digest)
        }
        fn tokens(&mut $self) -> $crate::store::Result<Vec<$crate::token::Token>> {
            $tables.tokens()
        }
        fn template(&mut $self, name: &str, version: Option<u32>) -> $crate::store::Result<Option<$crate::flow::Template>> {
            $tables.template(name, version)
        }
        fn templates(&mut $self) -> $crate::store::Result<Vec<$crate::flow::Template>> {
            $tables.templates()
        }
        fn open_lanes(&mut $self, scope: &$crate::repository::Scope) -> $crate::store::Result<Vec<$crate::flow::Workflow>> {
            $tables.open_lanes(scope)
        }
        fn queued(&mut $self, scan: &$crate::store::QueueScan<'_>) -> $crate::store::Result<Vec<($crate::change::QueueEntry, $crate::flow::Task)>> {
            $tables.queued(scan)
        }
        fn lanes(&mut $self, prefixes: &[String], limit: usize) -> $crate::store::Result<Vec<String>> {
            $tables.lanes(prefixes, limit)
        }
        fn queue_entry(&mut $self, task: &$crate::id::TaskId) -> $crate::store::Result<Option<$crate::change::QueueEntry>> {
            $tables.queue_entry(task)
        }
    };
}
