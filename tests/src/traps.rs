//! Programs that agents and strangers plant where version control would start them.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use crate::{Home, workspaces::commit_all};

/// A planted program. Each start of it leaves a line in a file.
pub struct Trap {
    /// Where it is.
    pub program: String,
    trace: PathBuf,
}

impl Trap {
    /// Nobody has sprung it yet.
    pub fn new(home: &Home) -> Self {
        let (program, trace) = (home.path().join("evil.sh"), home.path().join("trace"));
        fs::write(&program, format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat 2>/dev/null\nexit 0\n", trace.display()))
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program: program.display().to_string(), trace }
    }

    /// A command line that springs it, saying how.
    pub fn by(&self, how: &str) -> String {
        format!("{} {how}", self.program)
    }

    /// Forgets starts from while the trap was being laid.
    pub fn lay(&self) {
        let _ = fs::remove_file(&self.trace);
    }

    /// It must not have been sprung.
    pub fn assert_untouched(&self, after: &str) {
        let trace = fs::read_to_string(&self.trace).unwrap_or_default();
        assert!(trace.is_empty(), "executed by {after}: {trace}");
    }
}

fn lines(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// A repository with some files and a submodule.
pub fn project(home: &Home) -> PathBuf {
    let sub = home.git("library");
    fs::write(sub.join("x"), "x\n").unwrap();
    commit_all(home, &sub, "x");
    let repo = home.repo("api");
    for n in 0..20 {
        fs::write(repo.join(format!("f{n}")), format!("{n}\n")).unwrap();
    }
    fs::write(repo.join(".gitignore"), lines(&["*.good", "*.bad", "*.tmp", "eg/", "out/"])).unwrap();
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.to_str().unwrap(), "sub"];
    home.run(&repo, "git", &add);
    commit_all(home, &repo, "files");
    repo
}

/// A configuration that names programs wherever git would start one.
pub fn programs(trap: &Trap, tag: &str) -> String {
    let by = |what: &str| trap.by(&format!("{tag}-{what}"));
    format!(
        "[core]\n\tfsmonitor = {}\n\tsshCommand = {}\n\talternateRefsCommand = {}\n\teditor = {}\n\tpager = {}\n\
         [filter \"e\"]\n\tclean = {}\n\tsmudge = {}\n\tprocess = {}\n\trequired = true\n\
         [diff \"e\"]\n\ttextconv = {}\n\tcommand = {}\n[merge \"e\"]\n\tdriver = {}\n",
        by("fsmonitor"),
        by("ssh"),
        by("alternates"),
        by("editor"),
        by("pager"),
        by("clean"),
        by("smudge"),
        by("process"),
        by("textconv"),
        by("command"),
        by("driver")
    )
}
