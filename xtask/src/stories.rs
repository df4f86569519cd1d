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

/// Begins the mark of a test that is told at full size only.
const LONG_MARK: &str = concat!("#[ign", "ore = \"long: ");

/// A filter of the tests that are told at full size only, by their marks.
pub(crate) fn long_filter(sources: &BTreeMap<PathBuf, String>) -> String {
    let mut tests = Vec::new();
    for text in sources.values() {
        let mut is_marked = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with(LONG_MARK) {
                is_marked = true;
            } else if let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
                tests.extend(is_marked.then(|| format!("test(/(^|::){name}$/)")));
                is_marked = false;
            }
        }
    }
    if tests.is_empty() { "none()".to_owned() } else { tests.join(" | ") }
}

fn is_unexplained_mark(line: &str) -> bool {
    let line = line.trim();
    let marks = [concat!("#[ign", "ore = \"wide: "), LONG_MARK];
    line.starts_with(concat!("#[ign", "ore")) && !marks.iter().any(|mark| line.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_with_the_mark_are_left_to_the_long_run() {
        let text = format!("#[test]\n{LONG_MARK}a cluster\"]\nfn one() {{}}\n#[test]\nfn two() {{}}\n");
        assert_eq!(long_filter(&BTreeMap::from([("a.rs".into(), text)])), "test(/(^|::)one$/)");
        assert_eq!(long_filter(&BTreeMap::new()), "none()");
    }
}
