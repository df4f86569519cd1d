//! Commits a transaction: lock, validate reads, write rows, commit, all in one round trip.

use std::{
    fmt::Write as _,
    thread,
    time::{Duration, Instant},
};

use toft_core::{
    change::{Receipt, Write},
    id::OpId,
    store::{Access, Result, StoreError},
};
use tokio_postgres::error::SqlState;

use super::{
    migrate,
    open::{BARRIER, PATIENCE},
    read_set::{AskedQuery, ReadSet},
    server_time::ServerTime,
    sql,
    tx::PostgresTx,
    wire::{BEGIN, Send, Statement, WireError, only_number},
};
use crate::{
    query::Query,
    rows::{self, Cells},
    value::{Bind, Value, kept},
    write,
};

/// One claim in this many updates the floor of its lane.
const FLOOR_EVERY: u64 = 64;

impl PostgresTx<'_> {
    /// The error if the schema was upgraded in the meantime, so that a statement of this version may not fit it.
    pub(super) fn upgraded(&mut self, trouble: &WireError) -> Option<StoreError> {
        if !matches!(trouble, WireError::Refused { code, .. } if code.code().starts_with("42")) {
            return None;
        }
        self.wire.as_mut().filter(|wire| wire.is_open())?.end_transaction(true);
        self.open = false;
        self.store.require_schema(&mut self.wire, trouble).err()
    }

    /// Checks that everything that was read was true at one moment, which always holds for one statement or one
    /// snapshot.
    pub(super) fn confirm_reads(&mut self) -> Result<()> {
        if self.access == Access::Read || self.alone || self.looks <= 1 {
            return Ok(());
        }
        if self.reads.on_trust {
            self.store.clear_quiet();
            return Err(self.troubled(&WireError::inconsistent()));
        }
        self.nothing_was_hidden()?;
        let check = self.check();
        self.fetch(&[check]).map(drop)
    }

    /// Before reporting that nothing is ready: checks that no task was skipped because another claim had marked it.
    fn nothing_was_hidden(&mut self) -> Result<()> {
        for look in std::mem::take(&mut self.reads.marked) {
            let seen = self.reads.candidates.values().filter(|seen| look.lanes.contains(&seen.lane)).count();
            let rows = self.fetch(&[self.take(&look, "", "~", Some(seen as i64 + 1), false)])?.remove(0);
            for row in rows {
                let (_, task) = rows::queued(&mut Cells::of("queue", &row))?;
                if !self.reads.candidates.contains_key(&task.id) {
                    return Err(self.troubled(&WireError::inconsistent()));
                }
            }
        }
        Ok(())
    }

    /// Validates and commits; a transaction without changes only validates its reads.
    pub(super) fn validate_and_commit(mut self: Box<Self>) -> Result<()> {
        if self.access == Access::Read || self.reads.unchanged() {
            return self.confirm_reads();
        }
        let moment = match self.moment.clone() {
            Some(moment) => moment,
            None => self.fetch(&[]).map(|_| self.moment.clone())?.ok_or(StoreError::Conflict)?,
        };
        let claimed = self.reads.claimed();
        for task in &claimed {
            self.reads.rely_on_candidate(task);
        }
        let mut batch = Vec::new();
        if !self.alone {
            batch.push(self.store.of_space(sql!("turn"), &[]));
            batch.push(self.check());
        }
        self.put_down(&mut batch)?;
        batch.push(("COMMIT".to_owned(), Vec::new()));
        let Some(wire) = self.wire.as_mut() else { return Err(StoreError::Conflict) };
        wire.take_warning();
        let sends: Vec<_> = batch.iter().map(|(text, values)| (text.as_str(), values.as_slice())).collect();
        let answered = wire.send(&sends);
        let warned = wire.take_warning();
        match answered {
            Ok(_) => {}
            Err(trouble @ WireError::Lost(_)) => {
                self.open = false;
                return self.resolve(&moment, Some(&trouble));
            }
            // It read under the lock: what is there twice is not another's row, and stays there.
            Err(WireError::Refused { code, text }) if self.alone && code == SqlState::UNIQUE_VIOLATION => {
                return Err(StoreError::Failed { doing: "write".into(), cause: text });
            }
            // The transaction is over, and its locks are let go; dropped, it is cleared away.
            Err(trouble) => return Err(self.troubled(&trouble)),
        }
        self.open = false;
        if warned {
            return self.resolve(&moment, None);
        }
        self.store.committed();
        if moment.waiting {
            self.tell();
        }
        Ok(())
    }

    /// Notifies waiting processes. This is separate from the commit, because otherwise all commits would wait for each
    /// other; if it fails, waiting processes poll a little later.
    fn tell(&mut self) {
        let channel = self.store.channel();
        if let Some(wire) = self.wire.as_mut() {
            let _ = wire.send(&[(sql!("notify"), &kept![channel])]);
        }
    }

    /// One statement that fails unless every answer is still the same. If nothing was committed since the first query,
    /// no query runs again.
    fn check(&self) -> Statement {
        let ReadSet { asked, concluded, .. } = &self.reads;
        let snapshot = self.moment.as_ref().map(|moment| moment.snapshot.clone()).unwrap_or_default();
        let mut values: Vec<Value<'static>> = vec![snapshot.bind().keep()];
        let mut stands = Vec::new();
        let mut condition = |text: &str, bound: &[Value<'_>]| {
            stands.push(shifted(text, values.len()));
            values.push(self.store.space().bind().keep());
            values.extend(bound.iter().map(Value::keep));
        };
        for AskedQuery { query, values, fingerprint } in asked {
            let Some(fingerprint) = fingerprint else { continue };
            let text = query.postgres();
            let place = values.len() + 2;
            let text =
                format!("coalesce((SELECT bit_xor(hash_record_extended(q, 0)) FROM (\n{text}) q), 0) = ${place}");
            let bound: Vec<Value<'_>> = values.iter().cloned().chain([fingerprint.bind()]).collect();
            condition(&text, &bound);
        }
        for conclusion in concluded {
            let changes: Vec<String> = conclusion.changes.iter().map(ToString::to_string).collect();
            let changes = format!("{{{}}}", changes.join(","));
            condition(sql!("progress_stands"), &kept![conclusion.workflow.as_str(), changes, conclusion.left]);
        }
        // Which schema this is was read with the rest, and may have changed with it.
        stands.push(migrate::stands());
        let text = format!(
            "SELECT 1 / CASE WHEN pg_current_snapshot()::text = $1 THEN 1 WHEN {} THEN 1 ELSE 0 END",
            stands.join("\nAND ")
        );
        (text, values)
    }

    /// The statements for the rows, the queue, the counts, and the events last, so that event numbers are locked for
    /// the shortest time.
    fn put_down(&self, batch: &mut Vec<Statement>) -> Result<()> {
        let claimed = self.reads.claimed();
        let mut execute = |query: Query, values: &[Value<'_>]| {
            batch.push(self.store.of_space(query.postgres(), values));
            Ok(())
        };
        for write in self.reads.writes() {
            match &write {
                Write::DropQueue(task) if claimed.contains(task) => {}
                _ => write::put(&mut execute, &self.unknown, &write)?,
            }
        }
        for task in &claimed {
            let candidate = &self.reads.candidates[task];
            batch.push(self.store.of_space(sql!("queue_claimed"), &kept![task.as_str(), candidate.rank]));
            if self.store.every(FLOOR_EVERY) {
                batch.push(self.store.of_space(sql!("queue_floor_raise"), &kept![candidate.lane]));
            }
        }
        for (workflow, changes) in self.reads.changes() {
            let mut values = vec![workflow.as_str().bind()];
            values.extend(changes.iter().map(Bind::bind));
            batch.push(self.store.of_space(sql!("progress_add"), &values));
        }
        let mut execute = |query: Query, values: &[Value<'_>]| {
            batch.push(self.store.of_space(query.postgres(), values));
            Ok(())
        };
        for event in &self.reads.events {
            write::append(&mut execute, event)?;
        }
        batch.push(self.store.of_space(sql!("version_move"), &[]));
        Ok(())
    }

    /// After the connection was lost during a commit, or the server warned that a commit may not be safe: determines,
    /// on a new connection, whether it was committed. It is never committed twice: the verb runs again only when the
    /// lost transaction is known to have ended without a commit.
    fn resolve(&mut self, moment: &ServerTime, trouble: Option<&WireError>) -> Result<()> {
        *self.wire = None;
        let op = self.reads.op();
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(20);
        while Instant::now() < until {
            match self.ask_whether_done(moment, op.as_ref()) {
                Ok(Some(true)) => {
                    self.store.committed();
                    return Ok(());
                }
                Ok(Some(false)) => {
                    let trouble = trouble.cloned().unwrap_or_else(|| WireError::Lost("a commit left nothing".into()));
                    return Err(self.troubled(&trouble));
                }
                Ok(None) | Err(_) => {}
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
        Err(match op {
            Some(op) => StoreError::OutcomeUnknown { op: op.to_string() },
            None => StoreError::Failed { doing: "commit".into(), cause: "the connection was lost".into() },
        })
    }

    /// The answer of an operation that was done before. Its first caller may not have been told, because the standby did not
    /// have it yet: nobody is told before the standby has it.
    pub(super) fn stand_by(&mut self, receipt: Receipt) -> Result<Receipt> {
        let Some(wire) = self.wire.as_mut() else { return Err(StoreError::Conflict) };
        let settings = wire.local_settings.clone().unwrap_or_else(|| "SELECT 1".into());
        let mut batch: Vec<Send<'_>> = if self.open { vec![("ROLLBACK", &[])] } else { Vec::new() };
        batch.extend([(BEGIN, &[][..]), (&settings, &[]), (BARRIER, &[]), ("COMMIT", &[])]);
        wire.take_warning();
        let sent = wire.send(&batch);
        let warned = wire.take_warning();
        self.open = false;
        match sent {
            Ok(_) if !warned => Ok(receipt),
            Ok(_) => Err(self.troubled(&WireError::Lost("the standby does not answer".into()))),
            Err(trouble) => Err(self.troubled(&trouble)),
        }
    }

    /// Whether it was committed; `None` while the lost transaction still runs.
    fn ask_whether_done(&mut self, moment: &ServerTime, op: Option<&OpId>) -> Result<Option<bool>> {
        self.store.connect(&mut self.wire)?;
        let Some(wire) = self.wire.as_mut() else { return Ok(None) };
        let space = self.store.space();
        let op = op.map(|op| op.as_str());
        let settings = wire.local_settings.clone().unwrap_or_else(|| "SELECT 1".into());
        wire.take_warning();
        let answered = wire.send(&[
            (BEGIN, &[]),
            (sql!("still_there"), &kept![moment.pid, moment.began]),
            ("COMMIT", &[]),
            (BEGIN, &[]),
            (&settings, &[]),
            (BARRIER, &[]),
            ("COMMIT", &[]),
            (BEGIN, &[]),
            (&settings, &[]),
            (sql!("was_done"), &kept![space, op, self.reads.leaves_receipt()]),
            ("COMMIT", &[]),
        ]);
        let warned = wire.take_warning();
        let answers = match answered {
            Ok(answers) => answers,
            Err(trouble) => {
                let error = self.store.judge(&mut self.wire, &trouble);
                *self.wire = None;
                return Err(error);
            }
        };
        match (only_number(&answers[1])?, only_number(&answers[9])?) {
            (Some(0), Some(done)) if !warned => Ok(Some(done == 1)),
            _ => Ok(None),
        }
    }
}

/// A statement whose parameter numbers start at `by`.
fn shifted(text: &str, by: usize) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: usize = rest[..digits].parse().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = write!(out, "{}", number + by);
        rest = &rest[digits..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::shifted;

    #[test]
    fn parameters_count_on() {
        assert_eq!(shifted("a = $1 AND b = $12", 3), "a = $4 AND b = $15");
        assert_eq!(shifted("nothing", 3), "nothing");
    }
}
