//! Merges all lines of an issue in a ledger into one record. A file may contain several: from appends, merges and edits
//! by hand.

use crate::{
    clock::Replica,
    line::{Line, LineOrigin},
    record::{Key, Record},
};

/// Lines of one issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    dated: Option<Record>,
    unmarked: Vec<Line>,
    undated: Vec<(String, Record)>,
}

impl Lines {
    /// Adds a line; those without clocks in the order in which they were written.
    pub fn add(&mut self, line: Line) {
        match line.made {
            LineOrigin::Written | LineOrigin::Edited => self.add_record(line.record),
            LineOrigin::Unmarked => self.unmarked.push(line),
            LineOrigin::Undated => self.undated.push((line.digest, line.record)),
        }
    }

    /// Adds a record that was read before.
    pub fn add_record(&mut self, record: Record) {
        match &mut self.dated {
            Some(dated) => dated.merge(record),
            None => self.dated = Some(record),
        }
    }

    /// The merged record. `known` is the record that was known before, if any.
    ///
    /// Dated lines are merged, in any order. A line without clocks changes the fields that differ from them, right
    /// after the newest of them; fields that it leaves out stay. It does so once: the record remembers the line by its
    /// digest, and a copy that a merge brings back has no further effect.
    pub fn resolve(self, known: Option<&Record>) -> Option<Record> {
        let Self { dated, unmarked, undated } = self;
        let mut record = dated;
        for line in unmarked {
            let line = match (known, &record) {
                (Some(before), _) | (None, Some(before)) => line.record.compared(before, !line.partial),
                (None, None) => line.record,
            };
            match &mut record {
                Some(record) => record.merge(line),
                None => record = Some(line),
            }
        }
        for (digest, line) in undated {
            let record = record.get_or_insert_with(|| Record::new(line.id(), line.base()));
            let absorbed = Key::absorbed(&digest);
            if record.registers().contains_key(&absorbed) {
                continue;
            }
            let written = record.newest().next(Replica::HAND);
            for (key, register) in line.registers() {
                if register.value.as_deref() != record.get(key) {
                    record.set(key.clone(), written, register.value.clone());
                }
            }
            record.set(absorbed, written, None);
        }
        record.iter_mut().for_each(Record::stay_purged);
        record
    }
}
