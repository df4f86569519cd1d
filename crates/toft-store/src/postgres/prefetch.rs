//! Fetches in one round trip the rows that a verb is known to need.

use toft_core::{
    flow::Workflow,
    id::{TaskId, WORD},
    ready,
    repository::Scope,
    store::{QueueKey, Result, StoreTx},
};

use super::{
    load::{
        body, counts_of, load_agent, load_attempt, load_dependency, load_lease, load_queued, load_task, load_workflow,
    },
    read_set::QueueRange,
    sql,
    tx::{PostgresTx, overdue_values, printed, question},
};
use crate::{
    query::Query,
    rows::Cells,
    value::{Value, kept},
};

impl PostgresTx<'_> {
    pub(super) fn foresee_claim(
        &mut self,
        actor: &str,
        scope: &Scope,
        head: Option<(QueueKey, usize)>,
        [leases, timers]: [usize; 2],
    ) -> Result<()> {
        let Some(repository) = &scope.repository else { return Ok(()) };
        if self.store.has_own_clock() || self.alone {
            return Ok(());
        }
        let home = ready::home(Some(repository.as_str()));
        let later = ready::timers(&home);
        let asked = |text: &str, values: &[Value<'_>]| self.store.of_space(&printed(text), values);
        let mut batch = vec![
            asked(Query::agent_named.postgres(), &kept![actor]),
            asked(sql!("ahead_lease_of_agent"), &kept![actor]),
        ];
        let quiet = self.store.may_skip_sweep(&home);
        if !quiet {
            batch.extend([
                asked(sql!("ahead_lease_overdue"), &kept![leases as u64]),
                asked(Query::queue_list.postgres(), &kept![later, "", "~", 1u64]),
                asked(Query::workflow_open_lanes.postgres(), &[]),
            ]);
        }
        let head = head.map(|(key, count)| (QueueRange { lanes: vec![home.clone()], key }, count));
        if let Some((look, count)) = &head {
            batch.extend(self.take_twice(look, "", "~", Some(*count as i64)));
        }
        let answers = self.fetch(&batch)?;
        let (asked, heads) = answers.split_at(if head.is_some() { answers.len() - 1 } else { answers.len() });
        let heads = heads.first().map(Vec::as_slice).unwrap_or_default();
        let [agent, mine, rest @ ..] = asked else { return Ok(()) };
        self.take_in(question("agents", Query::agent_named, &kept![actor], load_agent), agent)?;
        let known = self.reads.tables.agent_named(actor)?;
        if let Some(me) = known {
            let id = me.id.as_str();
            self.take_in(question("leases", Query::lease_of_agent, &kept![id], load_lease), mine)?;
        }
        let [overdue, timer, lanes] = match rest {
            [overdue, timer, lanes, ..] => [overdue.as_slice(), timer, lanes],
            _ => [[].as_slice(); 3],
        };
        let now = self.now()?;
        let upto = ready::ran_out_below(now.wall);
        let due = timer.first().map(|row| Ok(row.word(1)? < upto.as_str())).transpose()?.unwrap_or_default();
        if !quiet && !due && overdue.is_empty() && lanes.is_empty() {
            self.store.be_quiet(&home);
        }
        self.reads.on_trust = quiet && !heads.is_empty();
        self.reads.marked.extend(head.iter().map(|(look, _)| look.clone()));
        // Before anyone is told that there is nothing, it is asked for in earnest.
        if !quiet || !heads.is_empty() {
            let asks = overdue_values(now.wall, None, Some(leases as i64));
            self.take_in(question("leases", Query::lease_overdue, &asks, load_lease), overdue)?;
            if !due {
                let asks = kept![later, "", upto, timers as u64];
                self.take_in(question("queue", Query::queue_list, &asks, load_queued), &[])?;
            }
            self.take_in(question("workflows", Query::workflow_open_lanes, &[], load_workflow), lanes)?;
        }
        let found = self.take_candidate_rows(heads, true)?;
        self.reads.heads.extend(head.filter(|(_, count)| found >= *count));
        Ok(())
    }

    pub(super) fn foresee_hold(&mut self, task: &str) -> Result<()> {
        if task.len() != TaskId::PREFIX.len() + WORD {
            return Ok(());
        }
        let asks = kept![task];
        let known = [
            question("tasks", Query::task_get, &asks, load_task),
            question("leases", Query::lease_get, &asks, load_lease),
            question("attempts", Query::attempt_list, &asks, load_attempt),
            question("dependencies", Query::dependent_list, &asks, load_dependency),
        ];
        let mut batch: Vec<_> =
            known.iter().map(|asked| self.store.of_space(&printed(asked.query.postgres()), &asks)).collect();
        batch.push(self.store.of_space(&printed(sql!("ahead_workflow_of_task")), &asks));
        batch.push(self.store.of_space(sql!("ahead_progress_of_task"), &asks));
        let answers = self.fetch(&batch)?;
        for (asked, rows) in known.into_iter().zip(&answers) {
            self.take_in(asked, rows)?;
        }
        if let [.., workflow, progress] = answers.as_slice()
            && let Some(row) = workflow.first()
        {
            let id = body::<Workflow>("workflows", row.word(0)?)?.id;
            let asks = kept![id.as_str()];
            self.take_in(question("workflows", Query::workflow_get, &asks, load_workflow), workflow)?;
            let found = progress.first().map(|row| counts_of(&mut Cells::of("progress", row))).transpose()?;
            self.reads.take_counts(id.clone(), found.map(|(_, counts)| counts));
        }
        Ok(())
    }
}
