//! Follows the logs of agents that run: on this machine, or on others that send theirs to a server.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use toft_core::{
    id::TaskId,
    lease::Processes as _,
    refusal::Refusal,
    verbs::{facts, status},
};
use toft_session::{
    engine::Home,
    error::{Error, io as failed},
    session::Session,
};

use super::{
    files::{Attempts, Files},
    log::{older, open_plain},
};

/// Bytes that are read at once; the rest comes with the next look.
const AT_ONCE: u64 = 16 << 20;

/// Running agents that are looked at.
const MOST: usize = 1_000;

/// The log of an agent that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningLog {
    pub agent: String,
    pub task: TaskId,
    /// The issue whose only task this is.
    pub issue: Option<String>,
    pub title: String,
    /// The number of its lease.
    pub fence: u64,
    place: LogPlace,
}

/// Where a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LogPlace {
    /// In a file of this machine.
    File(PathBuf),
    /// On the server that the store is.
    Server { task: TaskId, fence: u64 },
}

impl Attempts<'_> {
    /// The logs of all agents that run in this repository and whose logs can be read here.
    pub fn running_logs(&self) -> Result<Vec<RunningLog>, Error> {
        let request = status::Request { scope: self.scope(), limit: MOST };
        let running = self.perform_as(&self.located().agent, None, request)?.working;
        let logs = running.into_iter().filter_map(|row| {
            let fence = row.task.state.fence;
            let file = Files::of(self, &row.task.id, fence).map(|files| files.log()).filter(|path| path.is_file());
            let on_server = matches!(self.located().store, Home::Remote(_));
            let there = on_server.then(|| LogPlace::Server { task: row.task.id.clone(), fence });
            let place = file.map(LogPlace::File).or(there)?;
            Some(RunningLog {
                agent: row.agent,
                task: row.task.id,
                issue: row.issue,
                title: row.task.spec.name,
                fence,
                place,
            })
        });
        Ok(logs.collect())
    }

    /// Reads the log of the newest attempt at a task, with its older part.
    pub fn attempt_tail(&self, actor: &str, id: &str) -> Result<LogTail, Error> {
        let (task, attempt) = self.attempt(actor, id, 0)?;
        let here = attempt.report.as_ref().is_none_or(|report| report.host == self.machine().disks());
        let file = Files::of(self, &task, attempt.fence).map(|files| files.log());
        let place = match file.filter(|path| here && path.is_file()) {
            Some(path) => LogPlace::File(path),
            None if matches!(self.located().store, Home::Remote(_)) => LogPlace::Server { task, fence: attempt.fence },
            None => return Err(Refusal::NotFound { what: "log".into(), text: task.to_string() }.into()),
        };
        Ok(LogTail { with_older: true, ..LogTail::at(place) })
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
    place: LogPlace,
    offset: u64,
    /// The older part of a file is read first.
    with_older: bool,
    /// A line whose end was not written yet.
    rest: Vec<u8>,
}

impl LogTail {
    /// From the beginning of what is kept.
    pub fn of(log: &RunningLog) -> Self {
        Self::at(log.place.clone())
    }

    fn at(place: LogPlace) -> Self {
        Self { place, offset: 0, with_older: false, rest: Vec::new() }
    }

    /// Whether both read the log of the same attempt.
    #[must_use]
    pub fn is_of_same_attempt(&self, other: &Self) -> bool {
        self.place == other.place
    }

    /// The log in a file.
    pub(crate) fn of_file(path: PathBuf) -> Self {
        Self::at(LogPlace::File(path))
    }

    /// The lines that were written since.
    pub fn new_lines(&mut self, session: &Session) -> Result<Vec<String>, Error> {
        let mut bytes = std::mem::take(&mut self.rest);
        match &self.place {
            LogPlace::File(path) => {
                if std::mem::take(&mut self.with_older) {
                    let before = older(path);
                    match read_from(&before, 0, &mut bytes) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        read => drop(read.map_err(failed("read", &before))?),
                    }
                }
                let length = fs::symlink_metadata(path).map_err(failed("read", path))?.len();
                if length < self.offset {
                    // It was begun anew; what came before is in the older part.
                    let before = older(path);
                    read_from(&before, self.offset, &mut bytes).map_err(failed("read", &before))?;
                    self.offset = 0;
                }
                self.offset += read_from(path, self.offset, &mut bytes).map_err(failed("read", path))?;
            }
            LogPlace::Server { task, fence } => {
                let part = session.load_log(task, *fence, self.offset)?.unwrap_or_default();
                bytes.extend(part.text);
                self.offset = part.end;
            }
        }
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
    use toft_session::config::{Config, StoreLocation};

    use super::*;

    #[test]
    fn whole_lines_are_read_once_also_when_the_log_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = Some(StoreLocation::Path(dir.path().join("toft.db")));
        let config = Config { store, dir: Some(dir.path().to_owned()), ..Config::default() };
        let session = Session::found(&config).unwrap();
        let path = dir.path().join("log");
        let mut tail = LogTail::of_file(path.clone());
        fs::write(&path, "one\ntw").unwrap();
        assert_eq!(tail.new_lines(&session).unwrap(), ["one"]);
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail.new_lines(&session).unwrap(), ["two", "three"]);
        fs::write(older(&path), "one\ntwo\nthree\nfour\n").unwrap();
        fs::write(&path, "five\n").unwrap();
        assert_eq!(tail.new_lines(&session).unwrap(), ["four", "five"]);
        assert!(tail.new_lines(&session).unwrap().is_empty());
    }
}
