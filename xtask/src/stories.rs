//! The stories: no file of them is forgotten, and each one that the gate leaves out says why.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub(crate) fn check(sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) {
    for (path, text) in sources {
        if let Some(problem) = forgotten_module(path, sources) {
            wrong.push(problem);
        }
        for (n, line) in text.lines().enumerate() {
            if is_unexplained_mark(line) {
                let at = format!("{}:{}", path.display(), n + 1);
                wrong.push(format!(
                    "{at}: a test that the gate leaves out says so: #[ignore = \"wide: what it needs\"], or long"
                ));
            }
        }
    }
}

/// Says that a file of a kind of stories is not part of its program: the compiler does not see that.
fn forgotten_module(path: &Path, sources: &BTreeMap<PathBuf, String>) -> Option<String> {
    let kind = path.strip_prefix("tests/tests").ok()?.parent()?;
    let module = path.file_stem()?.to_str()?;
    let main = Path::new("tests/tests").join(kind).join("main.rs");
    let is_part = module == "main" || sources.get(&main)?.lines().any(|line| line == format!("mod {module};"));
    (!is_part).then(|| format!("{}: {} does not name it", path.display(), main.display()))
}

fn is_unexplained_mark(line: &str) -> bool {
    let line = line.trim();
    let marks = [concat!("#[ign", "ore = \"wide: "), concat!("#[ign", "ore = \"long: ")];
    line.starts_with(concat!("#[ign", "ore")) && !marks.iter().any(|mark| line.starts_with(mark))
}
