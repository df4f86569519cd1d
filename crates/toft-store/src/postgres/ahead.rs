//! Fetches in one journey what a verb is known to ask.

use toft_core::{
    flow::Workflow,
    id::{TaskId, WORD},
    repository::Scope,
    store::{Result, StoreTx},
};

use super::{
    load::{
        body, counts_of, load_agent, load_attempt, load_dependency, load_lease, load_queued, load_task, load_workflow,
    },
    sql,
    tx::{EPOCH, PostgresTx, overdue_values, printed, question},
};
use crate::{
    query::Query,
    rows::Cells,
    value::{Bind, Value, kept},
};

/// How many leases one look takes in; the sweep of `toft-core` asks for as many.
const LEASES_AHEAD: usize = 64;
/// How many timers one look takes in.
const TIMERS_AHEAD: usize = 256;

impl PostgresTx<'_> {
    pub(super) fn foresee_claim(&mut self, actor: &str, scope: &Scope, page: usize) -> Result<()> {
        let Some(home) = scope.repository.as_ref().map(|id| id.as_str().to_owned()) else { return Ok(()) };
        if self.store.has_own_clock() || self.alone {
            return Ok(());
        }
        let later = format!("{home}~");
        let text = |text: &str| printed(text);
        let bound = |values: &[Value<'_>]| -> Vec<Value<'static>> {
            let space = self.store.space().bind();
            std::iter::once(&space).chain(values).map(Value::keep).collect()
        };
        let take = (sql!("queue_take").to_owned(), bound(&kept![home, "", "~", page as u64]));
        let mut batch = vec![
            (text(Query::agent_named.postgres()), bound(&kept![actor])),
            (text(sql!("ahead_lease_of_agent")), bound(&kept![actor])),
        ];
        let quiet = self.store.was_quiet(&home);
        if !quiet {
            batch.extend([
                (text(sql!("ahead_lease_overdue")), bound(&kept![EPOCH, LEASES_AHEAD as u64])),
                (text(sql!("ahead_queue_due")), bound(&kept![later, TIMERS_AHEAD as u64])),
                (text(Query::workflow_open_lanes.postgres()), bound(&[])),
            ]);
        }
        batch.extend(std::iter::repeat_n(take, self.store.takes()));
        let answers = self.fetch(&batch)?;
        let [agent, mine, rest @ .., heads] = answers.as_slice() else { return Ok(()) };
        self.take_in(question("agents", Query::agent_named, &kept![actor], load_agent), agent)?;
        let known = self.facts.tables.agent_named(actor)?;
        if let Some(me) = known {
            let id = me.id.as_str();
            self.take_in(question("leases", Query::lease_of_agent, &kept![id], load_lease), mine)?;
        }
        let [overdue, due, lanes] = match rest {
            [overdue, due, lanes, ..] if !quiet => [overdue.as_slice(), due, lanes],
            _ => [[].as_slice(); 3],
        };
        if !quiet && [overdue, due, lanes].iter().all(|rows| rows.is_empty()) {
            self.store.be_quiet(&home);
        }
        self.facts.on_trust = quiet && !heads.is_empty();
        self.facts.marked.insert(home.clone());
        // Before anyone is told that there is nothing, it is asked for in earnest.
        if !quiet || !heads.is_empty() {
            let now = self.now()?;
            let asks = overdue_values(&now.tick, None, Some(LEASES_AHEAD as i64));
            self.take_in(question("leases", Query::lease_overdue, &asks, load_lease), overdue)?;
            let upto = format!("{:011x}", now.wall.0 + 1);
            let asks = kept![later, "", upto, TIMERS_AHEAD as u64];
            self.take_in(question("queue", Query::queue_list, &asks, load_queued), due)?;
            self.take_in(question("workflows", Query::workflow_open_lanes, &[], load_workflow), lanes)?;
        }
        if self.take_candidate_rows(heads)? >= page {
            self.facts.heads.push((home, page));
        }
        Ok(())
    }

    pub(super) fn foresee_hold(&mut self, task: &str) -> Result<()> {
        if task.len() != TaskId::PREFIX.len() + WORD {
            return Ok(());
        }
        let asks = kept![task];
        let bound: Vec<Value<'static>> = self.bound(&asks).iter().map(Value::keep).collect();
        let known = [
            question("tasks", Query::task_get, &asks, load_task),
            question("leases", Query::lease_get, &asks, load_lease),
            question("attempts", Query::attempt_list, &asks, load_attempt),
            question("dependencies", Query::dependent_list, &asks, load_dependency),
        ];
        let mut batch: Vec<_> = known.iter().map(|asked| (printed(asked.query.postgres()), bound.clone())).collect();
        batch.push((printed(sql!("ahead_workflow_of_task")), bound.clone()));
        batch.push((sql!("ahead_progress_of_task").to_owned(), bound));
        let answers = self.fetch(&batch)?;
        for (asked, rows) in known.into_iter().zip(&answers) {
            self.take_in(asked, rows)?;
        }
        if let [.., workflow, progress] = answers.as_slice()
            && let Some(row) = workflow.first()
        {
            let id = body::<Workflow>("workflows", row.word(0))?.id;
            let asks = kept![id.as_str()];
            self.take_in(question("workflows", Query::workflow_get, &asks, load_workflow), workflow)?;
            let found = progress.first().map(|row| counts_of(&mut Cells::of("progress", row))).transpose()?;
            self.facts.take_counts(id.clone(), found.map(|(_, counts)| counts));
        }
        Ok(())
    }
}
