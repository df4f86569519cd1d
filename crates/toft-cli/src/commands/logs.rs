//! logs: what agents say and do, as it happens.

use std::{collections::BTreeMap, process::ExitCode, thread, time::Duration};

use serde_json::json;
use toft::{
    Toft,
    runner::{LogTail, RunningLog},
};

use super::{App, Done};
use crate::{
    args::Logs,
    exit::Failure,
    render::{ConversationPrinter, Page, clean},
};

/// How often logs are read.
const LOOK: Duration = Duration::from_millis(300);
/// Every so many looks, agents that came are found, and those that ended.
const LOOKS: u32 = 6;
/// Lines of each agent that are shown at first, unless one was named.
const LATEST: usize = 10;

/// A log that is followed.
struct FollowedLog {
    log: RunningLog,
    tail: LogTail,
    printer: ConversationPrinter,
}

pub(super) fn logs(app: &App<'_>, args: &Logs) -> Done {
    let toft = app.open()?;
    let wanted = args.id.as_ref().map(|id| toft.work().whole_id(id)).transpose()?;
    let found = running(toft, wanted.as_deref())?;
    if found.is_empty() && (wanted.is_some() || !args.follow) {
        let on = if wanted.is_some() { "works on that here" } else { "works here" };
        return Err(Failure::nothing(
            format!("no agent of a runner {on}"),
            "toft status lists who works; toft show ID --log reads an attempt that ended",
        ));
    }
    if found.is_empty() {
        app.output.progress("no agent of a runner works here yet; waiting for one, Ctrl-C ends");
    }
    let mut followed: BTreeMap<(String, u64), FollowedLog> = BTreeMap::new();
    let mut looks = 0;
    loop {
        if looks % LOOKS == 0 {
            for log in running(toft, wanted.as_deref())? {
                let key = (log.task.to_string(), log.fence);
                followed.entry(key).or_insert_with(|| FollowedLog {
                    tail: LogTail::of(&log),
                    printer: ConversationPrinter::default(),
                    log,
                });
            }
        }
        let latest = if looks == 0 && wanted.is_none() { LATEST } else { usize::MAX };
        for one in followed.values_mut() {
            one.print(app, toft, args.raw, wanted.is_none(), latest)?;
        }
        if looks % LOOKS == 0 {
            let mut over = Vec::new();
            for (key, one) in &mut followed {
                if toft.attempts().has_ended(&one.log)? {
                    // What it wrote between the look and its end.
                    one.print(app, toft, args.raw, wanted.is_none(), usize::MAX)?;
                    over.push(key.clone());
                }
            }
            over.iter().for_each(|key| drop(followed.remove(key)));
        }
        if !args.follow || wanted.is_some() && followed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        looks += 1;
        thread::sleep(LOOK);
    }
}

/// The logs of agents that run; of one task, issue or agent if it was named.
fn running(toft: &Toft, wanted: Option<&str>) -> Result<Vec<RunningLog>, Failure> {
    let mut logs = toft.attempts().running_logs()?;
    if let Some(id) = wanted {
        logs.retain(|log| log.task.as_str() == id || log.issue.as_deref() == Some(id) || log.agent == id);
    }
    Ok(logs)
}

impl FollowedLog {
    /// Prints what is new, at most the `latest` lines.
    fn print(&mut self, app: &App<'_>, toft: &Toft, raw: bool, named: bool, latest: usize) -> Result<(), Failure> {
        let new = self.tail.new_lines(toft)?;
        let new = &new[new.len().saturating_sub(latest)..];
        if app.output.machine() {
            let row = |line: &String| {
                let data =
                    json!({ "agent": self.log.agent, "task": self.log.task, "issue": self.log.issue, "line": line });
                json!({ "toft": 1, "kind": "log_line", "data": data }).to_string()
            };
            app.output.lines(&new.iter().map(row).collect::<Vec<_>>());
            return Ok(());
        }
        let mut page = Page::new(false);
        for line in new {
            match raw {
                true => page.line(clean(line)),
                false => self.printer.line(&mut page, line),
            }
        }
        self.printer.end(&mut page);
        let of = if named { format!("{}  ", clean(&self.log.agent)) } else { String::new() };
        app.output.lines(&page.text().lines().map(|line| format!("{of}{line}")).collect::<Vec<_>>());
        Ok(())
    }
}
