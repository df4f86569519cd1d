//! Proving that a hook fires: the very command line in a harness's file is run, as the harness would run it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use jsonc_parser::{ParseOptions, cst::CstRootNode};
use serde_json::{Value, json};

use super::{
    HARNESSES, SetupTarget,
    harness::{Harness, command},
    read,
};
use crate::exit::Failure;

/// The variable that asks a hook only to show that it was reached.
const ASKED: &str = "TOFT_HOOK_PROBE";

/// A hook that was found in a file.
pub(crate) struct Probe {
    pub(crate) harness: &'static Harness,
    pub(crate) file: String,
    pub(crate) command: String,
    /// It is what toft writes, letter by letter. Anything else is somebody's own, and is not run.
    pub(crate) ours: bool,
}

/// Every hook command that is written down for this checkout and this user.
pub(crate) fn probes(targets: &[SetupTarget]) -> Result<Vec<Probe>, Failure> {
    let mut found = Vec::new();
    for harness in &HARNESSES {
        for target in targets {
            let (project, user) = harness.hook_files();
            let Some(name) = (if target.user { user } else { Some(project) }) else { continue };
            let path = target.root.join(name);
            let Some(text) = read(&path)? else { continue };
            for command in commands_in(&text, harness) {
                let (file, ours) = (path.display().to_string(), harness.wrote(&command));
                found.push(Probe { harness, file, command, ours });
            }
        }
    }
    Ok(found)
}

/// Strings in JSON that call a hook for this harness; for a plugin that is toft's own, what it calls.
fn commands_in(text: &str, harness: &Harness) -> Vec<String> {
    if harness.is_plugin(text) {
        return vec![command("prompt", harness.name)];
    }
    let ours = |text: &str| text.contains("toft hook ") && text.contains(&format!("--for {}", harness.name));
    let parsed = CstRootNode::parse(text, &ParseOptions::default()).ok().and_then(|root| root.to_serde_value());
    let mut found: Vec<String> = Vec::new();
    strings(&parsed.unwrap_or_default(), &mut |text| {
        if ours(text) && !found.iter().any(|known| known == text) {
            found.push(text.to_owned());
        }
    });
    found
}

fn strings(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(all) => all.iter().for_each(|value| strings(value, each)),
        Value::Object(all) => all.values().for_each(|value| strings(value, each)),
        _ => {}
    }
}

impl Probe {
    /// Runs the command as the harness would; says why it does not reach this store.
    pub(crate) fn fire(&self, dir: &Path, state: &Path) -> Result<(), String> {
        let mark = mark(state);
        // What an earlier one left would prove nothing.
        let _ = fs::remove_file(&mark);
        let word = format!("{}-{}", std::process::id(), self.harness.name);
        let input = json!({ "session_id": "doctor", "cwd": dir, "hook_event_name": "doctor" }).to_string();
        let ended = toft::runner::in_shell(&self.command, dir, &[(ASKED, &word)], Some(&input));
        let status = ended.map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("it ended with {status}"));
        }
        match fs::read_to_string(&mark) {
            Ok(found) if found == word => fs::remove_file(&mark).map_err(|error| error.to_string()),
            _ => Err("the hook runs, but toft does not answer for this store; is toft on PATH?".into()),
        }
    }
}

/// Shows that a hook was reached, if that is all that was asked; whether it was.
pub(crate) fn answer_probe(state: &Path) -> bool {
    let Ok(word) = std::env::var(ASKED) else { return false };
    // What could not be written is not found.
    let _ = fs::write(mark(state), word);
    true
}

fn mark(state: &Path) -> PathBuf {
    state.join("hook-probe")
}
