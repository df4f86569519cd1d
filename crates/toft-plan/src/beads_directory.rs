//! The directory of beads: which files it has had over time, and what each is for.

use std::{fs, path::Path, path::PathBuf};

use toft_core::refusal::Refusal;
use toft_session::error::Error;

use crate::beads;

/// What beads called its ledger over time.
const LEDGERS: [&str; 3] = ["issues.jsonl", "beads.jsonl", "local.jsonl"];

/// What beads keeps in a directory.
pub struct BeadsDirectory {
    /// The newest file that has its issues.
    pub ledger: PathBuf,
    /// Its issues and deletions, a line each.
    pub text: String,
    /// What its settings mean here.
    pub notes: Vec<String>,
}

impl BeadsDirectory {
    /// Reads a directory, usually `.beads`.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let found: Vec<PathBuf> = LEDGERS.iter().map(|name| dir.join(name)).filter(|path| path.is_file()).collect();
        let Some(ledger) = found.first().cloned() else {
            let problem = format!("{} has no ledger of beads; `bd export` or `bd sync` writes one", dir.display());
            return Err(Refusal::Invalid { field: "beads".to_owned(), problem }.into());
        };
        let mut text = String::new();
        for path in &found {
            text.push_str(&read_text(path)?);
            text.push('\n');
        }
        let deletions = dir.join("deletions.jsonl");
        if deletions.is_file() {
            text.push_str(&beads::deletions(&text, &read_text(&deletions)?));
        }
        let mut notes = Vec::new();
        for name in ["config.yaml", "config.toml"] {
            let path = dir.join(name);
            if path.is_file()
                && let Some(line) = planning_setting(&read_text(&path)?)
            {
                notes.push(format!(
                    "{name} says `{line}`: toft init --contributor --planning DIR plans in private here too"
                ));
            }
        }
        Ok(Self { ledger, text, notes })
    }
}

/// The line of a configuration by which beads plans elsewhere than in the repository.
fn planning_setting(settings: &str) -> Option<&str> {
    let lines = settings.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.into_iter().find(|line| line.contains("contributor") || line.contains("planning"))
}

fn read_text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| {
        let problem = format!("{}: {error}; name a file of UTF-8 text", path.display());
        Refusal::Invalid { field: "beads".to_owned(), problem }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_ledger_is_read_and_the_first_is_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(BeadsDirectory::read(dir.path()).is_err_and(|error| error.to_string().contains("bd export")));
        for name in ["local.jsonl", "beads.jsonl"] {
            fs::write(dir.path().join(name), format!("{{\"id\":\"{name}\"}}")).unwrap();
        }
        fs::write(dir.path().join("config.yaml"), "# planning: no\nrole: contributor\n").unwrap();
        let read = BeadsDirectory::read(dir.path()).unwrap();
        assert_eq!(read.ledger, dir.path().join("beads.jsonl"));
        assert!(read.text.contains("local.jsonl") && read.text.contains("beads.jsonl"));
        assert_eq!(read.notes.len(), 1, "{:?}", read.notes);
        assert!(read.notes[0].contains("role: contributor"));
    }
}
