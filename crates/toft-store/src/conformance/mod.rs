//! The conformance suite: one test per rule, the same for every engine.
//!
//! `store_conformance!(name, open)` makes a module of tests. `open` returns a [`Pair`]: two handles on one new store,
//! so that one reads what the other writes; or `None` if the engine is not available.

#![expect(clippy::unwrap_used, reason = "a rule that cannot be tried is broken")]

mod agents;
mod events;
mod fields;
mod landings;
mod leases;
mod play;
mod queue;
mod retention;
mod tasks;
mod transactions;

use std::sync::Arc;

use toft_core::{
    change::{Change, Event, Write},
    id::OpId,
    repository::Place,
    store::{Access, Result, Store, StoreTx},
    testing::ManualClock,
    time::Timestamp,
};

pub use self::{
    agents::*, events::*, fields::*, landings::*, leases::*, play::*, queue::*, retention::*, tasks::*, transactions::*,
};

/// Two handles on one new store; the same handle twice if an engine has only one.
pub struct Pair {
    /// Writes.
    pub writer: Arc<dyn Store>,
    /// Reads.
    pub reader: Arc<dyn Store>,
    /// The clock of both.
    pub clock: ManualClock,
    /// Kept until the end of the test: a temporary directory, a schema.
    pub keep: Box<dyn std::any::Any>,
}

impl Pair {
    fn write(&self, writes: &[Write]) {
        let mut tx = self.writer.begin(Access::Write).expect("a writer begins");
        tx.write_derived(writes).expect("rows are put down");
        tx.commit().expect("a writer commits");
    }

    fn read<T>(&self, ask: impl FnOnce(&mut dyn StoreTx) -> Result<T>) -> T {
        let mut tx = self.reader.begin(Access::Read).expect("a reader begins");
        ask(tx.as_mut()).expect("an answer")
    }
}

fn change(op: &str, part: u32, entity: &str, writes: Vec<Write>) -> Change {
    let event = Event {
        seq: 0,
        at: Timestamp(1_800_000_000_000),
        actor: "tester".into(),
        place: Place { repository: None, worktree: Some("main".into()) },
        entity: entity.into(),
        verb: "tested".into(),
        detail: serde_json::json!({ "n": part }),
        op: OpId::known(op),
        part,
    };
    Change { event, writes }
}

/// Creates the suite for one engine.
#[macro_export]
macro_rules! store_conformance {
    ($name:ident, $open:expr) => {
        $crate::store_conformance! { @rules $name, $open,
            every_field_of_every_row_comes_back
            every_field_of_a_row_that_changes_is_overwritten
            a_transaction_that_is_dropped_leaves_nothing
            a_reader_sees_what_was_committed_and_nothing_else
            a_writer_sees_its_own_rows_before_it_commits
            a_commit_moves_the_pulse
            writers_take_turns_and_lose_no_update
            a_task_has_at_most_one_lease
            a_renewal_names_its_lease
            leases_are_found_by_agent_workflow_and_repository
            leases_due_for_a_look_are_found
            a_lane_is_read_in_the_order_of_rank
            several_lanes_are_read_as_one
            a_task_queues_once
            a_lane_is_read_by_workflow_worktree_and_label
            what_a_claim_takes_leaves_every_index
            lanes_are_found_by_how_their_names_begin
            open_lanes_are_those_of_limited_workflows_with_room
            events_are_numbered_without_gaps
            an_operation_is_answered_once
            events_are_found_by_entity_place_and_cursor
            tasks_are_listed_by_workflow_status_and_place
            workflows_are_listed_newest_first
            workflows_are_seen_from_each_repository
            the_workflow_on_an_issue_and_those_its_ledger_was_not_told_of_are_found
            progress_counts_tasks_by_status
            dependencies_come_with_their_targets_status
            ids_are_found_by_prefix
            checkpoints_come_newest_first
            an_agents_name_is_unique
            an_inbox_is_read_urgent_first_then_oldest_first
            gates_nobody_opened_are_found
            workspaces_are_listed_newest_first_and_those_that_are_gone_only_when_asked
            landings_are_kept_whole_and_listed_newest_first
            verdicts_are_found_by_tree_and_those_that_changed_are_listed
            tokens_are_found_by_digest_and_listed_by_name
            templates_come_in_their_newest_version
            old_events_are_forgotten_but_the_newest_and_numbers_go_on
            old_attempts_are_forgotten_once_their_task_is_over
            old_messages_are_forgotten_once_everyone_has_seen_them
            old_receipts_are_forgotten
            an_event_from_the_future_is_kept_and_protects_nothing_around_it
            old_checkpoints_are_forgotten_once_their_task_is_over_but_the_newest
            idle_agents_are_forgotten_with_their_inboxes
            workspaces_that_are_gone_are_forgotten_unless_they_were_rescued
            random_play_answers_as_the_memory_store_does
        }
    };
    (@rules $name:ident, $open:expr, $($rule:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $rule() {
                    if let Some(pair) = $open {
                        $crate::conformance::$rule(&pair);
                    }
                }
            )*
        }
    };
}
