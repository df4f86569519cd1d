//! An issue that is open: its text, changes, log and history.

use std::borrow::Cow;

use toft::{
    text::clean,
    time::{Timestamp, span},
    views::{AttemptRow, DiffKind, DiffLine, LogLine, RowAction},
};

use crate::{
    refresh::OpenIssue,
    rows::{StyledText, Tone, age},
};

/// A part of an issue's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    Text,
    Diff,
    Log,
    History,
}

impl Pane {
    pub(crate) const ALL: [Self; 4] = [Self::Text, Self::Diff, Self::Log, Self::History];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Text => "Issue",
            Self::Diff => "Changes",
            Self::Log => "Log",
            Self::History => "History",
        }
    }
}

/// An issue that is open above a screen.
pub(crate) struct IssuePage {
    /// Its repository, and its id.
    pub(crate) about: (Option<String>, String),
    pub(crate) pane: Pane,
    pub(crate) issue: Option<OpenIssue>,
    /// Why nothing new is seen.
    pub(crate) trouble: Option<String>,
    /// The line that is chosen; the end of a log if it is beyond it.
    pub(crate) line: usize,
    /// Comments on lines that are not sent yet.
    pub(crate) drafts: Vec<(String, String)>,
    /// Lines of a diff, and their places.
    diff: Vec<StyledText>,
    places: Vec<Option<String>>,
    log: Vec<StyledText>,
}

impl IssuePage {
    pub(crate) fn new(about: (Option<String>, String)) -> Self {
        Self {
            about,
            pane: Pane::Text,
            issue: None,
            trouble: None,
            line: 0,
            drafts: Vec::new(),
            diff: Vec::new(),
            places: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn see(&mut self, issue: OpenIssue) {
        self.trouble = None;
        let lines = issue.diff.lines.iter();
        (self.places, self.diff) = lines.map(|line| (line.place.clone(), diff_line(line))).unzip();
        if self.diff.is_empty() {
            (self.places, self.diff) = (vec![None], vec![(Tone::Faint, issue.diff.summary())]);
        }
        self.see_log(&issue.log);
        self.issue = Some(issue);
    }

    /// Takes in what the agent said meanwhile.
    pub(crate) fn see_log(&mut self, log: &[LogLine]) {
        self.log = log_lines(log);
    }

    /// The comments on a line of the diff.
    pub(crate) fn comments(&self, line: usize) -> String {
        let place = self.places.get(line).and_then(Option::as_ref).filter(|_| self.pane == Pane::Diff);
        let comments = self.drafts.iter().filter(|(at, _)| Some(at) == place);
        comments.map(|(_, text)| format!("   ← {text}")).collect()
    }

    pub(crate) fn show(&mut self, pane: Pane) {
        self.pane = pane;
        // Of a log, the end is what counts.
        self.line = if pane == Pane::Log { usize::MAX } else { 0 };
    }

    pub(crate) fn turn(&mut self, by: isize) {
        let at = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        let count = Pane::ALL.len().cast_signed();
        let next = (at.cast_signed() + by).rem_euclid(count);
        self.show(Pane::ALL[next.cast_unsigned()]);
    }

    pub(crate) fn moved(&mut self, by: isize) {
        let last = self.lines(Timestamp(0)).len().saturating_sub(1);
        self.line = self.line.min(last).saturating_add_signed(by).min(last);
        if self.pane == Pane::Log && self.line == last {
            self.line = usize::MAX;
        }
    }

    /// The file and line of the diff that is chosen.
    pub(crate) fn place(&self) -> Option<String> {
        self.places.get(self.line).cloned().flatten().filter(|_| self.pane == Pane::Diff)
    }

    pub(crate) fn actions(&self) -> Vec<RowAction> {
        let Some(OpenIssue { view, .. }) = &self.issue else { return Vec::new() };
        let with_drafts = |action: RowAction| match self.drafts.is_empty() {
            false => view.commented(action.key, &self.drafts).unwrap_or(action),
            true => action,
        };
        view.actions.iter().cloned().map(with_drafts).collect()
    }

    /// What the pane says, line by line.
    pub(crate) fn lines(&self, now: Timestamp) -> Cow<'_, [StyledText]> {
        let Some(issue) = &self.issue else { return Cow::Owned(vec![(Tone::Faint, "looking…".to_owned())]) };
        match self.pane {
            Pane::Text => Cow::Owned(text(issue, now)),
            Pane::Diff => Cow::Borrowed(&self.diff),
            Pane::Log => Cow::Borrowed(&self.log),
            Pane::History => Cow::Owned(history(issue, now)),
        }
    }
}

fn diff_line(line: &DiffLine) -> StyledText {
    let tone = match line.kind {
        DiffKind::File => Tone::Head,
        DiffKind::Hunk => Tone::Id,
        DiffKind::Added => Tone::Good,
        DiffKind::Removed => Tone::Bad,
        DiffKind::Header | DiffKind::Context => Tone::Plain,
    };
    (tone, line.text.replace('\t', "    "))
}

fn text(issue: &OpenIssue, now: Timestamp) -> Vec<StyledText> {
    let view = &issue.view;
    let mut lines = Vec::new();
    let mut facts: Vec<String> =
        view.stage.iter().flat_map(|stage| [stage.as_str().to_owned(), format!("P{}", view.priority)]).collect();
    facts.extend(view.labels.iter().cloned());
    facts.extend(view.agent.iter().map(|agent| format!("agent {agent}")));
    facts.extend(view.landing.clone());
    lines.push((Tone::Busy, facts.join(" · ")));
    lines.extend(view.workspace.iter().map(|path| (Tone::Faint, path.clone())));
    for question in &view.questions {
        lines.push((Tone::Bad, format!("asks you: {question}")));
    }
    lines.extend(view.why.iter().map(|why| (Tone::Bad, format!("waits: {why}"))));
    for (heading, text) in &view.text {
        lines.push((Tone::Plain, String::new()));
        if !heading.is_empty() {
            lines.push((Tone::Head, heading.clone()));
        }
        lines.extend(text.lines().map(|line| (Tone::Plain, line.to_owned())));
    }
    if !view.conversation.is_empty() {
        lines.extend([(Tone::Plain, String::new()), (Tone::Head, "What was said".to_owned())]);
    }
    for said in &view.conversation {
        lines.push((Tone::Faint, format!("{} {}, {} ago", said.by, said.what, age(Some(said.at), now))));
        lines.extend(said.text.lines().map(|line| (Tone::Plain, format!("  {line}"))));
    }
    for (heading, issues) in view.related() {
        if !issues.is_empty() {
            lines.extend([(Tone::Plain, String::new()), (Tone::Head, heading.to_owned())]);
        }
        for named in issues {
            lines.push((Tone::Plain, format!("{}  {}  {}", named.shown, named.status, named.title)));
        }
    }
    lines.extend(attempts(&view.attempts, now));
    if !view.notes.is_empty() {
        lines.extend([(Tone::Plain, String::new()), (Tone::Head, "Saved".to_owned())]);
    }
    for (at, note) in &view.notes {
        lines.push((Tone::Plain, format!("{:>7}  {note}", age(Some(*at), now))));
    }
    lines
}

/// Attempts one below the other, with how long nobody worked between them.
fn attempts(attempts: &[AttemptRow], now: Timestamp) -> Vec<StyledText> {
    let mut lines = Vec::new();
    if !attempts.is_empty() {
        lines.extend([(Tone::Plain, String::new()), (Tone::Head, "Attempts".to_owned())]);
    }
    let mut before: Option<Timestamp> = None;
    for attempt in attempts {
        if let Some(idle) = before.map(|before| attempt.started.since(before)).filter(|idle| idle.as_secs() >= 60) {
            lines.push((Tone::Faint, format!("         … {} nobody", span(idle))));
        }
        let took = span(attempt.ended.unwrap_or(now).since(attempt.started));
        let cost = attempt.cost.map(|cost| format!("  {cost:.2}")).unwrap_or_default();
        let result = if attempt.ended.is_none() { "works" } else { &attempt.result };
        lines.push((
            Tone::Plain,
            format!("{:>7}  {}  {took}{cost}  {result}", age(Some(attempt.started), now), attempt.agent),
        ));
        before = attempt.ended;
    }
    lines
}

fn log_lines(log: &[LogLine]) -> Vec<StyledText> {
    let mut lines = Vec::new();
    for said in log {
        let at = said.at.and_then(|at| jiff::Timestamp::from_millisecond(at.0).ok());
        let at = at.map(|at| at.to_zoned(toft::local_time_zone()).strftime("%H:%M:%S").to_string());
        let tone = if said.sign.starts_with("error") { Tone::Bad } else { Tone::Plain };
        let tone = if said.answer { Tone::Faint } else { tone };
        for (n, line) in said.text.lines().enumerate() {
            let lead = match n {
                0 => format!("{}  {}", at.as_deref().unwrap_or("        "), said.sign),
                _ => " ".repeat(10),
            };
            lines.push((tone, format!("{lead}{}", clean(line))));
        }
    }
    if lines.is_empty() {
        lines
            .push((Tone::Faint, "No log: no runner of this machine or server has started an agent for it.".to_owned()));
    }
    lines
}

fn history(issue: &OpenIssue, now: Timestamp) -> Vec<StyledText> {
    let rows = issue.view.history.iter().rev();
    rows.map(|row| (Tone::Plain, format!("{:>7}  {}  {}  {}", age(Some(row.at), now), row.actor, row.verb, row.text)))
        .collect()
}
