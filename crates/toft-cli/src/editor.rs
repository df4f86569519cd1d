//! A text in the user's editor.

use std::process::Command;

use crate::exit::Failure;

/// Opens a text in the editor that `VISUAL` or `EDITOR` names, and gives what was saved; nothing if it stayed as it was.
#[expect(clippy::disallowed_methods, reason = "the user's own editor, as their shell would start it")]
pub(crate) fn edited(name: &str, text: &str) -> Result<Option<String>, Failure> {
    let stopped = |error: std::io::Error| Failure::stopped(format!("the editor: {error}"), "");
    let named = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let editor = named.unwrap_or_else(|| "vi".to_owned());
    let dir = tempfile::tempdir().map_err(stopped)?;
    let file = dir.path().join(format!("{name}.md"));
    std::fs::write(&file, text).map_err(stopped)?;
    // The variable may hold options, as in `code --wait`.
    let status = Command::new("sh").args(["-c", "exec $0 \"$1\"", &editor]).arg(&file).status().map_err(stopped)?;
    if !status.success() {
        return Err(Failure::stopped(format!("the editor `{editor}` ended with {status}; nothing was changed"), ""));
    }
    let saved = std::fs::read_to_string(&file).map_err(stopped)?;
    Ok(Some(saved).filter(|saved| saved != text))
}
