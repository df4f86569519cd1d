//! What a person can do about something that they see: each act is a command of toft.

use std::path::PathBuf;

use serde::Serialize;

/// Something to do about a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Act {
    /// The key that does it.
    pub key: char,
    pub label: &'static str,
    /// The arguments of `toft`.
    pub command: Vec<String>,
    /// What a person has to say first; that becomes the last argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<&'static str>,
    /// What is put before that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The command that shows what would happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<Vec<String>>,
}

impl Act {
    fn new(key: char, label: &'static str, command: &[&str]) -> Self {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        Self { key, label, command, asks: None, prefix: String::new(), preview: None }
    }

    fn asking(self, what: &'static str) -> Self {
        Self { asks: Some(what), ..self }
    }

    fn previewed(self, command: &[&str]) -> Self {
        Self { preview: Some(command.iter().map(|&word| word.to_owned()).collect()), ..self }
    }

    /// The same act, in another directory.
    #[must_use]
    pub fn in_dir(mut self, dir: Option<&PathBuf>) -> Self {
        let Some(dir) = dir else { return self };
        for command in std::iter::once(&mut self.command).chain(&mut self.preview) {
            command.splice(0..0, ["-C".to_owned(), dir.display().to_string()]);
        }
        self
    }

    /// The arguments with what was said.
    #[must_use]
    pub fn with(&self, said: &str) -> Vec<String> {
        let said = self.asks.map(|_| format!("{}{said}", self.prefix));
        self.command.iter().cloned().chain(said).collect()
    }

    pub(crate) fn answer(id: &str) -> Self {
        Self::new('a', "answer", &["answer", id]).asking("Answer")
    }

    pub(crate) fn tell(id: &str) -> Self {
        Self::new('t', "tell", &["tell", id]).asking("Tell the agent")
    }

    pub(crate) fn comment(id: &str) -> Self {
        Self::new('c', "comment", &["edit", id, "--comment"]).asking("Comment")
    }

    pub(crate) fn stop(id: &str) -> Self {
        Self::new('s', "stop", &["stop", id])
    }

    pub(crate) fn retry(id: &str) -> Self {
        Self::new('r', "retry", &["flow", "retry", id])
    }

    pub(crate) fn approve(id: &str) -> Self {
        Self::new('a', "approve", &["review", id, "--approve"])
    }

    pub(crate) fn send_back(id: &str) -> Self {
        Self::new('r', "return", &["review", id, "--return", "-m"]).asking("What has to change")
    }

    pub(crate) fn land(id: &str) -> Self {
        Self::new('l', "land", &["land", id]).previewed(&["land", "-n", id])
    }

    pub(crate) fn land_all() -> Self {
        Self::new('l', "land", &["land"]).previewed(&["land", "-n"])
    }

    pub(crate) fn revert(id: &str) -> Self {
        Self::new('v', "revert", &["land", "revert", id])
    }

    pub(crate) fn accept(id: &str) -> Self {
        Self::new('a', "accept", &["accept", id])
    }

    pub(crate) fn reject(id: &str) -> Self {
        Self::new('r', "reject", &["reject", id, "-m"]).asking("Reason")
    }

    pub(crate) fn unassign(id: &str) -> Self {
        Self::new('a', "unassign", &["assign", id, "--none"])
    }

    pub(crate) fn raise(workflow: &str) -> Self {
        Self::new('a', "raise", &["flow", "limit", workflow, "--budget"]).asking("New budget")
    }

    pub(crate) fn read_messages() -> Self {
        Self::new('a', "read", &["agent", "inbox", "--human"])
    }

    pub(crate) fn pause(agent: &str) -> Self {
        Self::new('p', "pause", &["agent", "pause", agent])
    }

    pub(crate) fn resume(agent: &str) -> Self {
        Self::new('p', "resume", &["agent", "resume", agent])
    }

    pub(crate) fn end_rest(agent: &str) -> Self {
        Self::new('a', "resume", &["resume", agent])
    }

    /// Undo the caller's last operation.
    #[must_use]
    pub fn undo() -> Self {
        Self::new('u', "undo", &["undo"]).previewed(&["undo", "-n"])
    }

    /// A comment on a line of a diff, to the agent that works on it.
    #[must_use]
    pub fn tell_about_line(id: &str, place: &str) -> Self {
        Self { prefix: format!("{place}: "), ..Self::new('c', "comment", &["tell", id]).asking("Comment") }
    }

    /// Finished work goes back with comments, each with its file and line.
    #[must_use]
    pub fn send_back_with(id: &str, comments: &[(String, String)]) -> Self {
        let mut command = vec!["review", id, "--return"];
        for (place, text) in comments {
            command.extend(["--at", place, text]);
        }
        command.push("-m");
        Self::new('r', "return", &command).asking("What has to change")
    }
}

/// A command as a person would type it in a shell.
#[must_use]
pub fn command_line(arguments: &[String]) -> String {
    let plain =
        |text: &str| !text.is_empty() && text.chars().all(|sign| sign.is_alphanumeric() || "-_./:=@+%,".contains(sign));
    let quoted = |text: &String| match plain(text) {
        true => text.clone(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    };
    let words: Vec<String> = arguments.iter().map(quoted).collect();
    format!("toft {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_a_command_with_what_was_said() {
        let act = Act::answer("tf-1").in_dir(Some(&PathBuf::from("/shop")));
        assert_eq!(command_line(&act.with("it's 7 days")), r"toft -C /shop answer tf-1 'it'\''s 7 days'");
        let line = Act::tell_about_line("tf-1", "a.rs:7");
        assert_eq!(command_line(&line.with("why?")), "toft tell tf-1 'a.rs:7: why?'");
        assert_eq!(command_line(&Act::stop("tf-1").with("ignored")), "toft stop tf-1");
    }
}
