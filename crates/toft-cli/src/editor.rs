//! A text in the user's editor.

use std::process::Command;

use crate::exit::Failure;

/// A text that was changed in an editor. Its file is deleted with it.
pub(crate) struct Edited {
    pub(crate) text: String,
    dir: tempfile::TempDir,
    name: String,
}

impl Edited {
    /// The failure to use the text, which stays in its file.
    pub(crate) fn kept(self, mut failure: Failure) -> Failure {
        failure.help = Some(format!("what you wrote is in {}", self.dir.keep().join(self.name).display()));
        failure
    }
}

/// Opens a text in the editor that `VISUAL` or `EDITOR` names, at a terminal else in `vi`; nothing if it was saved as it was.
#[expect(clippy::disallowed_methods, reason = "the user's own editor, as git starts it")]
pub(crate) fn edited(name: &str, text: &str, at_terminal: bool) -> Result<Option<Edited>, Failure> {
    let stopped = |error: std::io::Error| Failure::stopped(format!("the editor: {error}"), "");
    let named = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let Some(editor) = named.or_else(|| at_terminal.then(|| "vi".to_owned())) else {
        return Err(Failure::invalid(
            "no editor is set, and there is no terminal",
            "set EDITOR, or use --title and -d",
        ));
    };
    let dir = tempfile::tempdir().map_err(stopped)?;
    let name = format!("{name}.md");
    let file = dir.path().join(&name);
    std::fs::write(&file, text).map_err(stopped)?;
    // The variable is a command line, as in `code --wait`.
    let line = format!("{editor} \"$@\"");
    let status = Command::new("sh").args(["-c", &line, &editor]).arg(&file).status().map_err(stopped)?;
    let saved = std::fs::read_to_string(&file).map_err(stopped)?;
    let edited = (saved != text).then(|| Edited { text: saved, dir, name });
    match edited {
        Some(edited) if !status.success() => {
            Err(edited.kept(Failure::stopped(format!("the editor `{editor}` ended with {status}"), "")))
        }
        None if !status.success() => Err(Failure::stopped(format!("the editor `{editor}` ended with {status}"), "")),
        edited => Ok(edited),
    }
}
