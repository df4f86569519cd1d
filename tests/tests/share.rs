//! Sharing: clones under any version control that exchange ledgers, and never anything else.

use std::{collections::BTreeMap, fs, path::Path};

use toft_stories::{
    Home,
    issues::{add, ledger, listed},
    share::{Vcs, play_sapling, project_with, synced, users},
};

/// One ledger, two clones of it, each under the same version control: whatever that is, everything arrives.
fn exchanges_under(vcs: Vcs) {
    let mut home = Home::new();
    play_sapling(&mut home);
    let remote = vcs.remote(&home, "remote");
    let (one, two) = (vcs.clone(&home, &remote, "one"), vcs.clone(&home, &remote, "two"));
    let (a, b) = (project_with(&home, "a", &one), project_with(&home, "b", &two));
    let same = |what: &str| {
        let read = |dir: &Path| fs::read_to_string(dir.join("issues.jsonl")).unwrap();
        assert_eq!(read(&one), read(&two), "{vcs:?}: {what}");
    };
    let sync = |repo: &Path| {
        let row = synced(&home, repo, &["team"]).remove("team").unwrap();
        assert_eq!(row["how"], "synced", "{vcs:?}: {row}");
        row
    };
    let first = add(&home, &a, &["First", "--ledger", "team"]);
    assert_eq!(sync(&a)["sent"], 1);
    assert_eq!(sync(&b)["received"], 1);
    same("the first arrives");
    assert_eq!(sync(&a)["received"], 0, "nothing new is nothing to do");

    // Both write, of the same issue too; nobody's word is lost.
    let second = add(&home, &a, &["Second", "--ledger", "team"]);
    home.toft(&a, &["edit", &first, "-m", "said by a"]).ok();
    let third = add(&home, &b, &["Third", "--ledger", "team"]);
    home.toft(&b, &["edit", &first, "-p", "0", "-m", "said by b"]).ok();
    sync(&a);
    sync(&b);
    sync(&a);
    same("both wrote");
    let rows = listed(&home, &a);
    assert_eq!(rows[&first]["priority"], 0);
    assert_eq!(rows[&first]["comments"].as_array().unwrap().len(), 2);
    assert!(rows.contains_key(&second) && rows.contains_key(&third));

    // A deletion beats an edit that did not know of it.
    home.toft(&a, &["delete", &second]).ok();
    home.toft(&b, &["edit", &second, "-p", "1"]).ok();
    sync(&b);
    sync(&a);
    sync(&b);
    same("one deleted what the other edited");
    assert!(!listed(&home, &b).contains_key(&second), "no resurrection");

    // Other files of that repository come and stay as they are.
    fs::write(one.join("README"), "of one\n").unwrap();
    add(&home, &a, &["Fourth", "--ledger", "team"]);
    sync(&a);
    sync(&b);
    same("beside other files");
    assert_eq!(fs::read_to_string(one.join("README")).unwrap(), "of one\n");
    assert!(!two.join("README").exists(), "only the ledger's files are sent");
    home.toft(&a, &["doctor"]).ok();
}

#[test]
fn a_ledger_is_exchanged_under_git() {
    exchanges_under(Vcs::Git);
}

#[test]
fn a_ledger_is_exchanged_under_jujutsu() {
    exchanges_under(Vcs::Jj);
}

#[test]
fn a_ledger_is_exchanged_under_jujutsu_beside_git() {
    exchanges_under(Vcs::JjColocated);
}

#[test]
fn a_ledger_is_exchanged_under_mercurial() {
    exchanges_under(Vcs::Hg);
}

#[test]
fn a_ledger_is_exchanged_under_what_plays_sapling() {
    exchanges_under(Vcs::Sl);
}

#[test]
fn ledgers_of_every_kind_take_part_in_one_sync() {
    let mut home = Home::new();
    play_sapling(&mut home);
    let repo = home.repo("repo");
    for vcs in Vcs::ALL {
        let name = format!("{vcs:?}").to_lowercase();
        let remote = vcs.remote(&home, &format!("{name}-remote"));
        let dir = vcs.clone(&home, &remote, &name);
        home.toft(&repo, &["ledger", "add", &name, dir.to_str().unwrap()]).ok();
        add(&home, &repo, &["Here", "--ledger", &name]);
    }
    let plain = home.path().join("plain");
    fs::create_dir(&plain).unwrap();
    home.toft(&repo, &["ledger", "add", "plain", plain.to_str().unwrap()]).ok();
    add(&home, &repo, &["Here", "--ledger", "plain"]);
    add(&home, &repo, &["Here"]);
    let all = synced(&home, &repo, &[]);
    let how: BTreeMap<&str, &str> =
        all.iter().map(|(name, row)| (name.as_str(), row["how"].as_str().unwrap())).collect();
    let expected = [
        ("branch", "recorded"),
        ("git", "synced"),
        ("hg", "synced"),
        ("jj", "synced"),
        ("jjcolocated", "synced"),
        ("plain", "unversioned"),
        ("sl", "synced"),
    ];
    assert_eq!(how, BTreeMap::from(expected), "{all:#?}");
    assert!(ledger(&repo).exists() && users(&repo).len() > 3);
}
