//! What a person can do about something that they see: each action is a command of toft.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use serde::Serialize;
use toft_core::{
    text::short,
    token::TokenRole,
    verbs::{Verb as _, agent, answer, assign, flow, inbox, issue::Note, land, replan, send, stop, undo::Undone},
};

/// Characters of a proposed answer on a button.
const CHOICE: usize = 40;

/// Runs a command of toft, and returns what it printed. It ends early when the flag becomes true.
pub type CommandRunner = Arc<dyn Fn(&[String], &AtomicBool) -> CommandResult + Send + Sync>;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    pub succeeded: bool,
    pub text: String,
}

/// The directory in which a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandDir {
    pub path: PathBuf,
    /// Whether it is a clone. On a server it is not: what needs files is not offered there, and a person who copies a command
    /// runs it in a clone of their own.
    pub is_clone: bool,
    /// What the token with which commands run there may do; without one, everything.
    pub role: Option<TokenRole>,
}

impl CommandDir {
    fn arguments(&self) -> [String; 2] {
        ["-C".to_owned(), self.path.display().to_string()]
    }
}

/// Something to do about a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowAction {
    /// The key that does it.
    pub key: char,
    pub label: String,
    /// The title of what it is about.
    pub title: String,
    /// The arguments of `toft`, without what a person says.
    pub command: Vec<String>,
    /// Where it runs, if that is not where the person is.
    #[serde(skip)]
    pub dir: Option<CommandDir>,
    /// What a person has to say first; that becomes the last argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<&'static str>,
    /// What is put before that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The command that shows what would happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<Vec<String>>,
    /// Whether it needs the files of the repository.
    #[serde(skip)]
    pub needs_clone: bool,
    /// The call that a token has to allow.
    #[serde(skip)]
    pub verb: &'static str,
}

impl RowAction {
    fn new(key: char, label: &str, command: &[&str]) -> Self {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        Self {
            key,
            label: label.to_owned(),
            title: String::new(),
            command,
            dir: None,
            asks: None,
            prefix: String::new(),
            preview: None,
            needs_clone: false,
            verb: Note::NAME,
        }
    }

    fn by(self, verb: &'static str) -> Self {
        Self { verb, ..self }
    }

    fn asking(self, what: &'static str) -> Self {
        Self { asks: Some(what), ..self }
    }

    fn previewed(self, command: &[&str]) -> Self {
        Self { preview: Some(command.iter().map(|&word| word.to_owned()).collect()), ..self }
    }

    fn in_clone(self) -> Self {
        Self { needs_clone: true, ..self }
    }

    /// Actions about something of this title, in a directory: those that can be done there.
    pub(crate) fn about(actions: impl IntoIterator<Item = Self>, title: &str, dir: Option<&CommandDir>) -> Vec<Self> {
        let allows = |dir: &CommandDir, action: &Self| {
            dir.role.is_none_or(|role| role.may(action.verb)) && (dir.is_clone || !action.needs_clone)
        };
        let can = |action: &Self| dir.is_none_or(|dir| allows(dir, action));
        let about = |action: Self| Self { title: title.to_owned(), dir: dir.cloned(), ..action };
        actions.into_iter().filter(can).map(about).collect()
    }

    /// The command as a person would type it, with `…` for what is asked.
    #[must_use]
    pub fn line(&self) -> String {
        let dir = self.dir.as_ref().filter(|dir| dir.is_clone);
        let words = dir.into_iter().flat_map(CommandDir::arguments).chain(self.command.iter().cloned());
        let line = command_line(&words.collect::<Vec<_>>());
        match self.asks {
            Some(_) if line.ends_with('=') => format!("{line}…"),
            Some(_) => format!("{line} …"),
            None => line,
        }
    }

    /// The arguments with what was said, and where they run.
    #[must_use]
    pub fn with(&self, said: &str) -> Vec<String> {
        let mut arguments = self.placed(&self.command);
        if self.asks.is_none() {
            return arguments;
        }
        let said = format!("{}{said}", self.prefix);
        match arguments.last_mut() {
            Some(option) if option.ends_with('=') => option.push_str(&said),
            _ => {
                // What begins as an option is none.
                arguments.extend(said.starts_with('-').then(|| "--".to_owned()));
                arguments.push(said);
            }
        }
        arguments
    }

    /// The arguments of the preview, and where they run.
    #[must_use]
    pub fn preview_arguments(&self) -> Option<Vec<String>> {
        self.preview.as_ref().map(|preview| self.placed(preview))
    }

    fn placed(&self, arguments: &[String]) -> Vec<String> {
        self.dir.iter().flat_map(CommandDir::arguments).chain(arguments.iter().cloned()).collect()
    }

    /// Answers a question, which its gate names: the next one of the same task is another one.
    pub(crate) fn answer(id: &str) -> Self {
        Self::new('a', "answer", &["answer", id]).asking("Answer").by(answer::Request::NAME)
    }

    /// Answers a question: one of the answers that the agent proposes, or another one.
    pub(crate) fn answers(id: &str, choices: &[String]) -> Vec<Self> {
        let chosen = |(key, choice): (char, &String)| {
            let mut action = Self::new(key, "", &["answer", id]).by(answer::Request::NAME);
            action.label = short(choice, CHOICE);
            action.command.extend(choice.starts_with('-').then(|| "--".to_owned()));
            action.command.push(choice.clone());
            action
        };
        let mut all: Vec<Self> = ('A'..='I').zip(choices).map(chosen).collect();
        all.push(Self::answer(id));
        all
    }

    pub(crate) fn tell(id: &str) -> Self {
        Self::new('t', "tell", &["tell", id]).asking("Tell the agent").by(send::Request::NAME)
    }

    pub(crate) fn comment(id: &str) -> Self {
        Self::new('c', "comment", &["edit", id, "--comment="]).asking("Comment")
    }

    pub(crate) fn stop(id: &str) -> Self {
        Self::new('s', "stop", &["stop", id]).by(stop::Request::NAME)
    }

    pub(crate) fn retry(id: &str) -> Self {
        Self::new('r', "retry", &["retry", id]).by(replan::Decide::NAME)
    }

    /// A closed issue is to be done after all.
    pub(crate) fn reopen(id: &str) -> Self {
        Self::new('r', "reopen", &["reopen", id])
    }

    /// Approves finished work, as it was seen.
    pub(crate) fn approve(id: &str, tip: &str) -> Self {
        Self::new('a', "approve", &["review", id, "--approve", "--commit", short_commit(tip)]).by(land::Review::NAME)
    }

    /// Sends finished work back, as it was seen.
    pub(crate) fn send_back(id: &str, tip: &str) -> Self {
        let command = ["review", id, "--return", "--commit", short_commit(tip), "--message="];
        Self::new('r', "return", &command).asking("What has to change").by(land::Review::NAME)
    }

    /// Lands finished work, as it was seen.
    pub(crate) fn land(id: &str, tip: &str) -> Self {
        Self::new('l', "land", &["land", id, "--commit", short_commit(tip)])
            .previewed(&["land", "-n", id])
            .in_clone()
            .by(land::RecordLandings::NAME)
    }

    pub(crate) fn land_all() -> Self {
        Self::new('l', "land", &["land"]).previewed(&["land", "-n"]).in_clone().by(land::RecordLandings::NAME)
    }

    pub(crate) fn revert(id: &str) -> Self {
        Self::new('v', "revert", &["land", "revert", id]).in_clone().by(land::Revert::NAME)
    }

    pub(crate) fn accept(id: &str) -> Self {
        Self::new('a', "accept", &["accept", id])
    }

    pub(crate) fn reject(id: &str) -> Self {
        Self::new('r', "reject", &["close", id, "--reason="]).asking("Reason")
    }

    pub(crate) fn unassign(id: &str) -> Self {
        Self::new('a', "unassign", &["edit", id, "--assignee="]).by(assign::Request::NAME)
    }

    pub(crate) fn raise(workflow: &str) -> Self {
        Self::new('a', "raise", &["flow", "edit", workflow, "--budget="]).asking("New budget").by(flow::Limit::NAME)
    }

    /// A paused workflow gives no task to a claim.
    pub(crate) fn pause_work(workflow: &str, paused: bool) -> Self {
        match paused {
            true => Self::new('p', "resume", &["flow", "resume", workflow]).by(flow::Move::NAME),
            false => Self::new('p', "pause", &["flow", "pause", workflow]).by(flow::Move::NAME),
        }
    }

    pub(crate) fn read_messages() -> Self {
        Self::new('a', "read", &["agent", "inbox", "--human"]).by(inbox::Request::NAME)
    }

    pub(crate) fn pause(agent: &str) -> Self {
        Self::new('p', "pause", &["pause", agent]).by(agent::TellRunner::NAME)
    }

    pub(crate) fn resume(agent: &str) -> Self {
        Self::new('p', "resume", &["pause", "--off", agent]).by(agent::TellRunner::NAME)
    }

    /// Pauses all agents of a machine.
    pub(crate) fn drain(machine: &str) -> Self {
        let command = ["pause", &format!("--machine={machine}"), "--message="];
        Self::new('p', "drain", &command).asking("Why, for others who look").by(agent::TellRunner::NAME)
    }

    pub(crate) fn resume_machine(machine: &str) -> Self {
        Self::new('p', "resume", &["pause", "--off", &format!("--machine={machine}")]).by(agent::TellRunner::NAME)
    }

    pub(crate) fn end_rest(agent: &str) -> Self {
        Self::new('a', "resume", &["pause", "--off", agent]).by(agent::TellRunner::NAME)
    }

    /// Adds an issue.
    #[must_use]
    pub fn add() -> Self {
        Self::new('n', "new", &["add"]).asking("Title of the new issue")
    }

    /// Undo the caller's last operation.
    #[must_use]
    pub fn undo() -> Self {
        Self::new('u', "undo", &["undo"]).previewed(&["undo", "-n"]).by(Undone::NAME)
    }

    /// Makes the action do only what its preview shows; returns whether it can. An undo takes back the operation that the preview
    /// names, and nothing that came after it.
    pub fn limit_to(&mut self, preview: &str) -> bool {
        if self.key != 'u' {
            return true;
        }
        let op = preview.lines().find_map(|line| line.strip_prefix("  only this: toft undo --last "));
        let known = |sign: char| sign.is_ascii_alphanumeric() || sign == '-' || sign == '_';
        let op = op.filter(|op| !op.is_empty() && op.chars().all(known));
        self.command.extend(op.into_iter().flat_map(|op| ["--last".to_owned(), op.to_owned()]));
        op.is_some()
    }

    /// The same action, about what another one is about, where that one runs.
    pub(crate) fn like(mut self, other: &Self) -> Self {
        self.title.clone_from(&other.title);
        self.dir.clone_from(&other.dir);
        self
    }

    /// A comment on a line of a diff, to the agent that works on it.
    #[must_use]
    pub(crate) fn tell_about_line(id: &str, place: &str) -> Self {
        Self {
            prefix: format!("{place}: "),
            ..Self::new('c', "comment", &["tell", id]).asking("Comment").by(send::Request::NAME)
        }
    }

    /// A verdict on finished work with comments, each with its file and line.
    pub(crate) fn with_comments(mut self, comments: &[(String, String)]) -> Self {
        let pairs = comments.iter().flat_map(|(place, text)| ["--at".to_owned(), place.clone(), text.clone()]);
        let at = self.command.len() - usize::from(self.asks.is_some());
        self.command.splice(at..at, pairs);
        self
    }
}

/// As many characters of a commit as name it.
fn short_commit(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// A command as a person would type it in a shell.
#[must_use]
pub fn command_line(arguments: &[String]) -> String {
    let plain =
        |text: &str| !text.is_empty() && text.chars().all(|sign| sign.is_alphanumeric() || "-_./:=@+%,".contains(sign));
    let quoted = |text: &str| match plain(text) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    };
    let word = |text: &String| match text.split_once('=').filter(|(name, _)| name.starts_with("--") && plain(name)) {
        Some((name, "")) => format!("{name}="),
        Some((name, value)) => format!("{name}={}", quoted(value)),
        None => quoted(text),
    };
    let words: Vec<String> = arguments.iter().map(word).collect();
    format!("toft {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_a_command_with_what_was_said() {
        let about = |action, is_clone| {
            RowAction::about([action], "Sell apples", Some(&CommandDir { path: "/shop".into(), is_clone, role: None }))
                .pop()
        };
        let action = about(RowAction::answer("tf-1"), true).unwrap();
        assert_eq!(command_line(&action.with("it's 7 days")), r"toft -C /shop answer tf-1 'it'\''s 7 days'");
        assert_eq!(action.line(), "toft -C /shop answer tf-1 …");
        let action = about(RowAction::stop("tf-1"), false).unwrap();
        assert_eq!(command_line(&action.with("")), "toft -C /shop stop tf-1");
        assert_eq!(action.line(), "toft stop tf-1");
        let action = about(RowAction::land("tf-1", "3b326cf8b1c2d3"), true).unwrap();
        assert_eq!(command_line(&action.preview_arguments().unwrap()), "toft -C /shop land -n tf-1");
        assert_eq!(about(RowAction::land("tf-1", "3b326cf8b1c2d3"), false), None, "nothing lands without files");
        let line = RowAction::tell_about_line("tf-1", "a.rs:7");
        assert_eq!(command_line(&line.with("why?")), "toft tell tf-1 'a.rs:7: why?'");
        assert_eq!(command_line(&RowAction::answer("tf-1").with("-x")), "toft answer tf-1 -- -x");
        let comments = [("a.rs:7".to_owned(), "- no".to_owned())];
        let back = RowAction::send_back("tf-1", "0123456789abcdef").with_comments(&comments);
        assert_eq!(
            command_line(&back.with("-1 and so on")),
            "toft review tf-1 --return --commit 0123456789ab --at a.rs:7 '- no' --message='-1 and so on'"
        );
        let approved = RowAction::approve("tf-1", "0123456789abcdef").with_comments(&comments);
        assert_eq!(approved.line(), "toft review tf-1 --approve --commit 0123456789ab --at a.rs:7 '- no'");
        assert_eq!(command_line(&RowAction::stop("tf-1").with("ignored")), "toft stop tf-1");
    }
}
