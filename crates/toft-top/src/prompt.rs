//! A line that a person types.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toft::{
    text::short,
    views::{RowAction, command_line},
};

/// Characters of a title that are shown.
const TITLE: usize = 40;

/// What the line is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A command of toft.
    Command,
    /// What an action asks for.
    RowAction(RowAction),
    /// Enter does it.
    Confirm(RowAction),
    /// What to look for in the rows.
    Filter,
    /// A comment on a line of a diff that goes back with the others.
    Draft { place: String },
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) purpose: Purpose,
    pub(crate) text: String,
    /// Where the cursor is, in characters.
    pub(crate) at: usize,
}

/// What a key did to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptKey {
    Edited,
    Submitted,
    Cancelled,
}

impl Prompt {
    pub(crate) fn new(purpose: Purpose, text: &str) -> Self {
        Self { purpose, at: text.chars().count(), text: text.to_owned() }
    }

    /// What stands before it.
    pub(crate) fn label(&self) -> String {
        match &self.purpose {
            Purpose::Command => "toft ".to_owned(),
            Purpose::RowAction(action) => {
                format!("{} ({}): ", action.asks.unwrap_or(&action.label), short(&action.title, TITLE))
            }
            Purpose::Confirm(action) if action.title.is_empty() => {
                format!("{}? Enter does it, Esc does not", action.line())
            }
            Purpose::Confirm(action) => {
                let (command, title) = (action.line(), short(&action.title, TITLE));
                format!("{command} ({title})? Enter does it, Esc does not")
            }
            Purpose::Filter => "/".to_owned(),
            Purpose::Draft { place } => format!("{place}: "),
        }
    }

    /// The command behind it.
    pub(crate) fn command(&self) -> Option<String> {
        match &self.purpose {
            Purpose::RowAction(action) if self.text.is_empty() => Some(action.line()),
            Purpose::RowAction(action) => Some(command_line(&action.with(&self.text))),
            _ => None,
        }
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> PromptKey {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return PromptKey::Submitted,
            KeyCode::Esc => return PromptKey::Cancelled,
            KeyCode::Char('c' | 'g') if control => return PromptKey::Cancelled,
            _ if matches!(self.purpose, Purpose::Confirm(_)) => {
                return if key.code == KeyCode::Char('y') { PromptKey::Submitted } else { PromptKey::Edited };
            }
            KeyCode::Left => self.at = self.at.saturating_sub(1),
            KeyCode::Right => self.at = (self.at + 1).min(self.text.chars().count()),
            KeyCode::Home => self.at = 0,
            KeyCode::Char('a') if control => self.at = 0,
            KeyCode::End => self.at = self.text.chars().count(),
            KeyCode::Char('e') if control => self.at = self.text.chars().count(),
            KeyCode::Char('u') if control => {
                self.text = self.text.chars().skip(self.at).collect();
                self.at = 0;
            }
            KeyCode::Char('w') if control => {
                let before: String = self.text.chars().take(self.at).collect();
                let kept = before.trim_end().rfind(' ').map_or(0, |end| end + 1);
                let after: String = self.text.chars().skip(self.at).collect();
                self.text = format!("{}{after}", &before[..kept]);
                self.at = before[..kept].chars().count();
            }
            KeyCode::Backspace if self.at > 0 => {
                self.at -= 1;
                let start = self.byte();
                self.text.remove(start);
            }
            KeyCode::Backspace if self.text.is_empty() => return PromptKey::Cancelled,
            KeyCode::Delete if self.at < self.text.chars().count() => {
                let start = self.byte();
                self.text.remove(start);
            }
            KeyCode::Char(sign) if !control => self.insert(&sign.to_string()),
            _ => {}
        }
        PromptKey::Edited
    }

    /// Adds text at the cursor, in one line.
    pub(crate) fn insert(&mut self, text: &str) {
        let line: String = text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect();
        let start = self.byte();
        self.text.insert_str(start, &line);
        self.at += line.chars().count();
    }

    fn byte(&self) -> usize {
        self.text.char_indices().nth(self.at).map_or(self.text.len(), |(byte, _)| byte)
    }
}

/// The words of a command, as a shell splits them; nothing if a quote does not end.
pub(crate) fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (Some(open), sign) if sign == open => quote = None,
            (Some('"') | None, '\\') => word.push(signs.next()?),
            (Some(_), sign) => word.push(sign),
            (None, '\'' | '"') => (quote, any) = (Some(sign), true),
            (None, ' ' | '\t') => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            (None, sign) => word.push(sign),
        }
    }
    if quote.is_some() {
        return None;
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    // People type the name of the program, too.
    if words.first().is_some_and(|first| first == "toft") {
        words.remove(0);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let split = |line: &str| words(line).unwrap();
        assert_eq!(
            split("answer tf-1 'it is 7' \"a \\\"b\\\"\" c\\ d ''"),
            ["answer", "tf-1", "it is 7", "a \"b\"", "c d", ""]
        );
        assert_eq!(split("  toft  land  "), ["land"]);
        assert_eq!(words("answer 'open"), None);
        let said = ["tell", "tf-1", "it's \"7\" \\ 8"].map(str::to_owned);
        assert_eq!(split(&command_line(&said)), said);
    }

    #[test]
    fn a_line_is_edited_where_the_cursor_is() {
        let mut prompt = Prompt::new(Purpose::Command, "land tü");
        let mut press = |code, modifiers| prompt.key(KeyEvent::new(code, modifiers));
        press(KeyCode::Left, KeyModifiers::NONE);
        press(KeyCode::Backspace, KeyModifiers::NONE);
        press(KeyCode::Char('x'), KeyModifiers::NONE);
        press(KeyCode::End, KeyModifiers::NONE);
        press(KeyCode::Char('!'), KeyModifiers::NONE);
        assert_eq!(prompt.text, "land xü!");
        prompt.key(KeyEvent::new(KeyCode::Char('w'), KeyModifiers::CONTROL));
        assert_eq!(prompt.text, "land ");
        prompt.insert("a\nb");
        assert_eq!(prompt.text, "land a b");
    }
}
