//! Every query by name. Each engine has a file for each; `xtask tidy` checks that there are no others.

use toft_core::store::QueueKey;

/// The query that reads the queue under a key, and the value of that key.
pub(crate) fn query_of(key: &QueueKey) -> (Query, Option<&str>) {
    match key {
        QueueKey::All => (Query::queue_list, None),
        QueueKey::Workflow(id) => (Query::queue_list_by_workflow, Some(id.as_str())),
        QueueKey::Worktree(name) => (Query::queue_list_by_worktree, Some(name)),
        QueueKey::Label(label) => (Query::queue_list_by_label, Some(label)),
    }
}

macro_rules! queries {
    ($($name:ident)*) => {
        /// A query, named like its file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(non_camel_case_types, reason = "a query is called as its file is")]
        pub(crate) enum Query {
            $($name),*
        }

        impl Query {
            /// Its text for SQLite.
            pub(crate) fn sqlite(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("sqlite/queries/", stringify!($name), ".sql"))),*
                }
            }

            /// Its text for PostgreSQL.
            #[cfg(feature = "postgres")]
            pub(crate) fn postgres(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("postgres/queries/", stringify!($name), ".sql"))),*
                }
            }
        }
    };
}

queries! {
    agent_forget
    agent_get
    agent_inbox_forget
    agent_list
    agent_named
    agent_put
    attempt_forget
    attempt_list
    attempt_put
    checkpoint_forget
    checkpoint_list
    checkpoint_put
    delivery_forget
    delivery_inbox
    delivery_put
    delivery_unread
    dependency_drop
    dependency_list
    dependency_put
    dependent_list
    event_append
    event_forget
    event_list
    event_list_newest
    event_newest_at
    event_of_entity
    event_of_entity_newest
    gate_get
    gate_list
    gate_put
    gate_unopened
    id_search
    landing_get
    landing_list
    landing_put
    lease_drop
    lease_get
    lease_of_agent
    lease_of_repository
    lease_of_workflow
    lease_overdue
    lease_put
    lease_renew
    message_forget
    message_get
    message_put
    queue_drop
    queue_get
    queue_lanes
    queue_list
    queue_list_by_label
    queue_list_by_workflow
    queue_list_by_worktree
    queue_put
    receipt_forget
    receipt_get
    receipt_put
    repository_list
    repository_put
    state_get
    state_list
    state_put
    task_get
    task_list_failed
    task_list_of_workflow
    task_list_recent
    task_put
    task_state_put
    task_state_set
    template_get
    template_list
    template_newest
    template_put
    token_get
    token_list
    token_put
    verdict_get
    verdict_list_flaky
    verdict_put
    workflow_get
    workflow_has_unblocked
    workflow_list
    workflow_of_issue
    workflow_open_lanes
    workflow_progress
    workflow_put
    workflow_untold
    workspace_forget
    workspace_get
    workspace_list
    workspace_put
    worktree_list
    worktree_put
}
