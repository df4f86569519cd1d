//! An agent gets a workspace only if no other process uses it: processes of earlier attempts are ended, and any other
//! process prevents it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use toft_core::{flow::Attempt, id::TaskId, verbs::facts, workspace::WorkspaceState};
use toft_session::{
    error::Error,
    processes::{Process, kill_processes, processes_about},
};
use toft_vcs::workspace::WorkspaceError;

use super::Workspaces;

/// How long to wait for killed processes to end.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

impl Workspaces<'_> {
    /// Ends processes of earlier attempts at a task, and refuses if any other process uses its workspace. If the
    /// present attempt already has the workspace, its holder may run any process in it.
    pub(super) fn clear_of_earlier_attempts(&self, name: &str, task: &TaskId) -> Result<(), Error> {
        let repository = self.work.located().repository.clone();
        let rows = self.work.perform(facts::WorkspaceRows { repository, live: true })?;
        let mine = |row: &&toft_core::workspace::Workspace| {
            row.host == self.host() && (row.name == name || row.task.as_ref() == Some(task))
        };
        let Some(row) = rows.iter().find(mine).filter(|row| row.state == WorkspaceState::Ready) else { return Ok(()) };
        let attempts = self.attempts(task)?;
        let handed_out = attempts.iter().any(|attempt| attempt.ended.is_none() && attempt.started <= row.used);
        let first = attempts.iter().all(|attempt| attempt.ended.is_none()) && row.task.as_ref() == Some(task);
        let path = Path::new(&row.path);
        if handed_out || first || !path.is_dir() {
            return Ok(());
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let (over, others) = self.sorted(processes_about(path, task.as_str()))?;
            if over.is_empty() && others.is_empty() {
                return Ok(());
            }
            if over.is_empty() || Instant::now() >= until {
                let pids = if others.is_empty() { over } else { others };
                return Err(WorkspaceError::InUse { pids, path: path.to_owned() }.into());
            }
            kill_processes(&over);
            std::thread::sleep(LOOK);
        }
    }

    /// Processes of ended attempts, and all other processes in the workspace.
    fn sorted(&self, found: Vec<Process>) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let (mut over, mut others) = (Vec::new(), Vec::new());
        for process in found {
            let ended = match &process.attempt {
                Some((task, lease)) => {
                    let attempts = self.attempts(&TaskId::known(task))?;
                    attempts.iter().any(|attempt| attempt.lease.as_str() == lease && attempt.ended.is_some())
                }
                None => false,
            };
            match ended {
                true => over.push(process.pid),
                false if process.inside => others.push(process.pid),
                false => {}
            }
        }
        Ok((over, others))
    }

    fn attempts(&self, task: &TaskId) -> Result<Vec<Attempt>, Error> {
        self.work.perform(facts::TaskAttempts { task: task.clone() })
    }
}
