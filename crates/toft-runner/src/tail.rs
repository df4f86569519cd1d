//! Follows the logs of agents that run on this machine.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use toft_core::{id::TaskId, verbs::facts, verbs::status};
use toft_session::error::{Error, io as failed};

use super::{
    files::{Attempts, Files},
    log::{older, open_plain},
};

/// Bytes that are read at once; the rest comes with the next look.
const AT_ONCE: u64 = 16 << 20;

/// Running agents that are looked at.
const MOST: usize = 1_000;

/// The log of an agent that runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningLog {
    pub agent: String,
    pub task: TaskId,
    /// The issue whose only task this is.
    pub issue: Option<String>,
    pub title: String,
    /// The number of its lease.
    pub fence: u64,
    path: PathBuf,
}

impl Attempts<'_> {
    /// The logs of all agents that run on this machine, in this repository.
    pub fn running_logs(&self) -> Result<Vec<RunningLog>, Error> {
        let request = status::Request { scope: self.scope(), limit: MOST };
        let running = self.perform_as(&self.located().agent, None, request)?.working;
        let logs = running.into_iter().filter_map(|row| {
            let fence = row.task.state.fence;
            let path = Files::of(self, &row.task.id, fence)?.log();
            let found = path.is_file();
            found.then_some(RunningLog {
                agent: row.agent,
                task: row.task.id,
                issue: row.issue,
                title: row.task.spec.name,
                fence,
                path,
            })
        });
        Ok(logs.collect())
    }

    /// Whether an attempt has ended.
    pub fn has_ended(&self, log: &RunningLog) -> Result<bool, Error> {
        let attempts = self.perform(facts::TaskAttempts { task: log.task.clone() })?;
        Ok(attempts.iter().find(|attempt| attempt.fence == log.fence).is_none_or(|attempt| attempt.ended.is_some()))
    }
}

/// Reads a log as it grows.
#[derive(Debug)]
pub struct LogTail {
    path: PathBuf,
    offset: u64,
    /// A line whose end was not written yet.
    rest: Vec<u8>,
}

impl LogTail {
    /// From the beginning of what is kept.
    pub fn of(log: &RunningLog) -> Self {
        Self { path: log.path.clone(), offset: 0, rest: Vec::new() }
    }

    /// The lines that were written since.
    pub fn new_lines(&mut self) -> Result<Vec<String>, Error> {
        let length = fs::symlink_metadata(&self.path).map_err(failed("read", &self.path))?.len();
        let mut bytes = std::mem::take(&mut self.rest);
        if length < self.offset {
            // It was begun anew; what came before is in the older part.
            let before = older(&self.path);
            read_from(&before, self.offset, &mut bytes).map_err(failed("read", &before))?;
            self.offset = 0;
        }
        self.offset += read_from(&self.path, self.offset, &mut bytes).map_err(failed("read", &self.path))?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(end);
        Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
    }
}

fn read_from(path: &Path, offset: u64, into: &mut Vec<u8>) -> io::Result<u64> {
    let mut file = open_plain(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.take(AT_ONCE).read_to_end(into).map(|count| count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_read_once_also_when_the_log_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = LogTail { path: path.clone(), offset: 0, rest: Vec::new() };
        fs::write(&path, "one\ntw").unwrap();
        assert_eq!(tail.new_lines().unwrap(), ["one"]);
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail.new_lines().unwrap(), ["two", "three"]);
        fs::write(older(&path), "one\ntwo\nthree\nfour\n").unwrap();
        fs::write(&path, "five\n").unwrap();
        assert_eq!(tail.new_lines().unwrap(), ["four", "five"]);
        assert!(tail.new_lines().unwrap().is_empty());
    }
}
