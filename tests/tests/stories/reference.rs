//! Pages that the binary writes about itself: what is checked in is what it writes now.

use toft_stories::prelude::*;

#[test]
fn the_reference_in_the_book_is_what_the_binary_says() {
    let home = Home::new();
    let written = home.path().join("reference");
    home.toft(home.path(), &["reference", "--dir", written.to_str().unwrap()]).ok();
    let checked_in = toft_stories::stories_dir().join("../docs/reference");
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // The others are written by hand.
    assert!(names(&written).iter().all(|name| names(&checked_in).contains(name)), "{:?}", names(&written));
    for name in names(&written) {
        let (old, new) = (checked_in.join(&name), written.join(&name));
        let same = fs::read_to_string(old).unwrap() == fs::read_to_string(new).unwrap();
        assert!(same, "docs/reference/{} is out of date: cargo xtask reference", name.display());
    }
}

#[test]
fn every_command_has_a_man_page() {
    let home = Home::new();
    let dir = home.path().join("man1");
    home.toft(home.path(), &["man", "--dir", dir.to_str().unwrap()]).ok();
    let mut help = home.toft(home.path(), &["--help"]).ok();
    for topic in ["issues", "agents", "plans", "share", "fleet", "admin"] {
        help += &home.toft(home.path(), &["help", topic]).ok();
    }
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let commands: Vec<_> = commands.filter(|name| *name != "help").collect();
    assert!(commands.len() > 40, "{commands:?}");
    for name in commands {
        let page = fs::read_to_string(dir.join(format!("toft-{name}.1"))).unwrap_or_else(|_| panic!("{name}"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(fs::read_to_string(dir.join("toft.1")).unwrap().contains("Exit codes:"));
    assert!(!dir.join("toft-hook.1").exists(), "internal commands have none");
}
