//! What a shared ledger costs: bytes on disk, processes, turns among clones, and what `toft history` still knows.

#![cfg(unix)]

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use toft_stories::prelude::*;

/// A bare git repository with one commit on main, and clones of it.
fn team(home: &Home, count: usize) -> (PathBuf, Vec<PathBuf>) {
    let names: Vec<String> = (0..count).map(|n| format!("c{n}")).collect();
    cloned(home, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn sync(home: &Home, repo: &Path) -> Value {
    let row = synced(home, repo, &["--yes"]).remove("branch").unwrap();
    assert_eq!(row["how"], "synced", "{row}");
    row
}

/// Words that hardly compress.
fn words(dice: &mut Dice, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        write!(text, "{:06x} ", dice.below(1 << 24)).unwrap();
    }
    text
}

/// Adds issues with a long body; gives their ids.
fn fill(home: &Home, repo: &Path, dice: &mut Dice, count: usize, body: usize) -> Vec<String> {
    let mut text = String::new();
    for n in 0..count {
        let issue = serde_json::json!({ "title": format!("issue {n}"), "body": words(dice, body) });
        writeln!(text, "{issue}").unwrap();
    }
    let list = home.path().join("list.jsonl");
    fs::write(&list, text).unwrap();
    let mut command = home.command(repo, toft_bin(), &["add", "-", "-q"]);
    let output = command.stdin(fs::File::open(list).unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Bytes of all files below a directory.
fn bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

#[test]
#[ignore = "wide: hundreds of edits"]
fn a_ledger_that_is_edited_for_long_stays_small_on_disk() {
    let (home, (remote, clones)) = Home::with(|home| team(home, sized(2, 5)));
    let mut dice = Dice::new(7);
    let (issues, edits, each) = (sized(1_000, 2_000), sized(42, 20_000), sized(3, 10));
    let ids = fill(&home, &clones[0], &mut dice, issues, sized(150, 80));
    clones.iter().for_each(|repo| drop(sync(&home, repo)));
    // Something of the user's that nothing refers to, which only the user's own git may delete.
    fs::write(clones[0].join("precious"), "mine\n").unwrap();
    let mine = home.run(&clones[0], "git", &["hash-object", "-w", "precious"]);

    for round in 0..edits / each {
        let repo = &clones[round % clones.len()];
        for n in 0..each {
            let id = &ids[usize::try_from(dice.below(ids.len() as u64)).unwrap()];
            let text = words(&mut dice, 20);
            let change = [["-m", &text], ["-p", "1"], ["--title", &text[..30]], ["-d", &text]][n % 4];
            home.toft(repo, &["edit", id, change[0], change[1]]).ok();
        }
        sync(&home, repo);
    }
    let commits: usize = home.run(&remote, "git", &["rev-list", "--count", "toft-ledger"]).trim().parse().unwrap();
    assert!(commits > edits / each, "the history is whole: {commits}");
    let file = fs::metadata(ledger(&clones[0])).unwrap().len();
    let most = sized(6 << 20, 30 << 20) as u64;
    // A remote belongs to its owner, whose git packs it.
    home.run(&remote, "git", &["gc", "--quiet"]);
    let there = bytes(&remote);
    assert!(there < most, "the remote: {there} bytes for {commits} commits of {file} bytes");
    for repo in &clones {
        let (objects, history) = (bytes(&repo.join(".git/objects")), bytes(&repo.join(".git/toft/ledger.git")));
        let counted = if sized(0, 1) == 1 { bytes(&repo.join(".git")) } else { objects + history };
        assert!(counted < most, "{}: {counted}, of it {objects} + {history} bytes", repo.display());
        home.run(&repo.join(".git/toft/ledger.git"), "git", &["fsck", "--strict", "--no-dangling"]);
        home.run(repo, "git", &["fsck", "--strict", "--no-dangling"]);
    }
    home.run(&remote, "git", &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(home.run(&clones[0], "git", &["cat-file", "-p", mine.trim()]), "mine\n");

    let begun = Instant::now();
    home.toft(&clones[0], &["history", &ids[0]]).ok();
    assert!(begun.elapsed() < Duration::from_secs(5), "it reads no content");
}

/// Puts a git on the path that writes down each of its starts; gives the file.
fn counted(home: &mut Home) -> PathBuf {
    let (bin, starts) = (home.path().join("counting"), home.path().join("starts"));
    let path = home.variable("PATH");
    let real = path.split(':').map(|dir| Path::new(dir).join("git")).find(|file| file.is_file()).unwrap();
    fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\necho \"$*\" >> {}\nexec {} \"$@\"\n", starts.display(), real.display());
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    home.set("PATH", &format!("{}:{path}", bin.display()));
    starts
}

#[test]
fn one_changed_issue_takes_five_starts_of_git_and_a_look_takes_one() {
    let (mut home, (_, clones)) = Home::with(|home| team(home, 2));
    let (a, b) = (&clones[0], &clones[1]);
    let id = add(&home, a, &["One"]);
    clones.iter().for_each(|repo| drop(sync(&home, repo)));
    let starts = counted(&mut home);
    let started = |what: &str, most: usize, run: &dyn Fn()| {
        let _ = fs::remove_file(&starts);
        run();
        let text = fs::read_to_string(&starts).unwrap_or_default();
        assert!(text.lines().count() <= most, "{what}:\n{text}");
    };
    home.toft(a, &["edit", &id, "-m", "word"]).ok();
    // To fetch, to read, who commits, to commit, to send.
    started("one changed issue", 5, &|| drop(sync(&home, a)));
    // What was written within a tick of the last look is looked at again.
    thread::sleep(Duration::from_millis(40));
    sync(&home, a);
    started("nothing to do", 1, &|| drop(sync(&home, a)));
    started("one issue comes in", 5, &|| drop(sync(&home, b)));
    started("log", 1, &|| assert!(home.toft(b, &["history", &id]).ok().contains("comments: 0 → 1")));
}

#[test]
fn clones_that_sync_in_a_loop_all_get_through() {
    let (home, (_, clones)) = Home::with(|home| team(home, 5));
    let mut dice = Dice::new(3);
    let ids = fill(&home, &clones[0], &mut dice, sized(50, 2_000), 20);
    clones.iter().for_each(|repo| drop(sync(&home, repo)));
    let (total, wanted) = (AtomicUsize::new(0), sized(40, 400));
    let counts: Vec<usize> = thread::scope(|scope| {
        let each = clones.iter().enumerate().map(|(n, repo)| {
            let (home, ids, total) = (&home, &ids, &total);
            scope.spawn(move || {
                let mut done = 0;
                while total.load(Ordering::Relaxed) < wanted {
                    home.toft(repo, &["edit", &ids[(n * 7 + done) % ids.len()], "-m", "word"]).ok();
                    sync(home, repo);
                    total.fetch_add(1, Ordering::Relaxed);
                    done += 1;
                }
                done
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut sorted = counts.clone();
    sorted.sort_unstable();
    assert!(sorted[0] * 2 >= sorted[2], "the slowest gets through half as often as the median: {counts:?}");
    for _ in 0..2 {
        clones.iter().for_each(|repo| drop(sync(&home, repo)));
    }
    let files: BTreeMap<Vec<u8>, &PathBuf> =
        clones.iter().map(|repo| (fs::read(ledger(repo)).unwrap(), repo)).collect();
    assert_eq!(files.len(), 1, "all have the same");
}

#[test]
fn the_log_reads_commits_that_say_nothing_and_is_whole_in_a_shallow_clone() {
    let (home, (remote, clones)) = Home::with(|home| team(home, 1));
    let a = &clones[0];
    let id = add(&home, a, &["By toft"]);
    let other = add(&home, a, &["Other"]);
    sync(&home, a);
    // By hand, as in a web editor: its message says nothing.
    home.run(home.path(), "git", &["clone", "-q", "-b", "toft-ledger", remote.to_str().unwrap(), "hand"]);
    let hand = home.path().join("hand");
    let text = fs::read_to_string(hand.join("issues.jsonl")).unwrap();
    fs::write(hand.join("issues.jsonl"), text.replace("By toft", "By hand")).unwrap();
    home.run(&hand, "git", &["commit", "-qam", "Update issues.jsonl"]);
    home.run(&hand, "git", &["push", "-q", "origin", "toft-ledger"]);
    sync(&home, a);
    home.toft(a, &["edit", &id, "-p", "0"]).ok();
    sync(&home, a);
    let log = home.toft(a, &["history", &id]).ok();
    let commits: Vec<&str> = log.lines().filter(|line| line.starts_with("commit ")).collect();
    assert_eq!(commits.len(), 3, "{log}");
    for (commit, said) in commits.iter().zip(["priority: 0", "title: By hand", "created"]) {
        assert!(commit.contains(said), "{log}");
    }
    home.toft(a, &["edit", &other, "-p", "1"]).ok();
    sync(&home, a);

    let url = format!("file://{}", remote.display());
    home.run(home.path(), "git", &["clone", "-q", "--depth=1", "--no-single-branch", &url, "shallow"]);
    let shallow = home.path().join("shallow");
    home.toft(&shallow, &["init"]).ok();
    sync(&home, &shallow);
    home.toft(&shallow, &["edit", &id, "-m", "word"]).ok();
    sync(&home, &shallow);
    home.toft(&shallow, &["history", &id]).says_all(&["comments: 0 → 1", "created"]);
}

/// System calls on files, descriptors and processes that an everyday command makes, with the binary of the dev profile in
/// a fresh repository. Times differ from machine to machine; these do not.
const SYSTEM_CALLS: [(&str, &[&str], usize); 4] = [
    ("ready", &["ready"], 168),
    ("claim", &["claim"], 380),
    ("save", &["save", "-m", "half"], 235),
    ("finish", &["finish", "--no-change", "done"], 458),
];

#[test]
#[cfg(target_os = "linux")]
fn system_calls_of_everyday_commands_do_not_grow() {
    const COUNTED: &str =
        "trace=%file,%process,read,write,pread64,pwrite64,fcntl,flock,fsync,fdatasync,getdents64,close";
    let (mut home, repo) = Home::with_repository("repo");
    home.set("TOFT_SESSION", "one");
    for title in ["one", "two", "three"] {
        add(&home, &repo, &[title]);
    }
    home.toft(&repo, &["--as", "first", "claim"]).ok();
    let trace = home.path().join("trace");
    for (name, words, expected) in SYSTEM_CALLS {
        let program = toft_bin().display().to_string();
        let args =
            [&["-f", "-qq", "-e", COUNTED, "-o", trace.to_str().unwrap(), &program, "--as", "second"], words].concat();
        home.run(&repo, "strace", &args);
        let text = fs::read_to_string(&trace).unwrap();
        // The compiler checks a descriptor before it closes it in builds like this one, and not in those that are shipped.
        let counts = |line: &&str| !line.contains(" resumed>") && !line.contains("F_GETFD");
        let calls = text.lines().filter(counts).count();
        let started = text.lines().filter(|line| line.contains("execve(")).count();
        println!("{name}: {calls} system calls");
        assert_eq!(started, 1, "{name} starts no other program");
        assert!(
            calls <= expected + expected / 10,
            "{name} makes {calls} system calls, where it made {expected}:\n{text}"
        );
    }
}
