//! kill -9, a full disk and a failing disk at every system call that writes: old or new state, and no repair.

use toft_stories::prelude::*;

/// Calls through which anything reaches the disk or a lock.
const WRITING: [&str; 9] =
    ["pwrite64", "write", "fsync", "fdatasync", "ftruncate", "unlink", "openat", "fcntl", "rename"];

/// A command under test, and how to see whether it happened.
struct Case {
    name: &'static str,
    prepare: &'static [&'static [&'static str]],
    command: &'static [&'static str],
    /// Event it leaves behind.
    verb: &'static str,
}

const CASES: [Case; 4] = [
    Case { name: "flow new", prepare: &[], command: &["flow", "new", "second"], verb: "flow.new" },
    Case { name: "claim", prepare: &[], command: &["claim"], verb: "claim" },
    Case { name: "save", prepare: &[&["claim"]], command: &["save", "-m", "half"], verb: "save" },
    Case {
        name: "finish",
        prepare: &[&["claim"]],
        command: &["finish", "-m", "m", "--no-change", "c"],
        verb: "task.done",
    },
];

fn traced(home: &Home, repo: &Path, extra: &[&str], command: &[&str]) -> std::process::Output {
    let trace = format!("trace={}", WRITING.join(","));
    let log = home.path().join("strace.log");
    let mut args = vec!["-f", "-o", log.to_str().unwrap(), "-e", &trace];
    args.extend(extra);
    let bin = toft_bin();
    args.push(bin.to_str().unwrap());
    args.extend(command);
    home.command(repo, "strace", &args).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
}

/// How often a command makes each call.
fn calls(home: &Home, repo: &Path, command: &[&str]) -> BTreeMap<String, usize> {
    let output = traced(home, repo, &[], command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(home.path().join("strace.log")).unwrap().lines() {
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        if let Some((name, _)) = call.split_once('(') {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

fn count(home: &Home, repo: &Path, verb: &str) -> usize {
    let events = home.toft(repo, &["history", "--json", "--limit", "1000"]).data();
    events.as_array().unwrap().iter().filter(|event| event["verb"] == verb).count()
}

fn copy_files(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, copy) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        match path.is_file() {
            true => drop(fs::copy(path, copy).unwrap()),
            false => copy_files(&path, &copy),
        }
    }
}

/// Runs each case once for every call, with `inject` doing harm there; every `step`th call in CI.
fn harm(inject: impl Fn(&str, usize) -> Option<String>, step: usize) -> usize {
    let mut injected = 0;
    for Case { name, prepare, command, verb } in CASES {
        let home = Home::new();
        let repo = home.repo("api");
        home.toft(&repo, &["flow", "new", "first"]).ok();
        for args in prepare {
            home.toft(&repo, args).ok();
        }
        let (store, saved) = (repo.join(".git/toft"), home.path().join("saved"));
        copy_files(&store, &saved);
        let before = count(&home, &repo, verb);
        let counts = calls(&home, &repo, command);
        let mut nth = 0;
        for (call, times) in counts {
            for when in 1..=times {
                nth += 1;
                let Some(option) = inject(&call, when).filter(|_| nth % step == 0) else { continue };
                copy_files(&saved, &store);
                let output = traced(&home, &repo, &["-e", &option], command);
                injected += 1;
                let told = format!("{name}, {option}: {output:?}");
                home.toft(&repo, &["doctor"]).ok();
                let after = count(&home, &repo, verb);
                assert!(after == before || after == before + 1, "{told}");
                if output.status.success() {
                    assert_eq!(after, before + 1, "acknowledged and lost: {told}");
                } else if after == before {
                    home.toft(&repo, command).ok();
                    assert_eq!(count(&home, &repo, verb), before + 1, "works again: {told}");
                }
                if output.status.code().is_some() && !output.status.success() {
                    let error = String::from_utf8_lossy(&output.stderr);
                    assert!(error.starts_with("error["), "a clean error: {told}");
                }
            }
        }
    }
    injected
}

#[test]
fn killed_at_any_writing_call_the_store_is_old_or_new() {
    let injected = harm(|call, when| Some(format!("inject={call}:signal=KILL:when={when}")), sized(2, 1));
    assert!(injected > 50, "{injected}");
    eprintln!("{injected} kills");
}

#[test]
fn a_full_disk_gives_a_clean_error_and_leaves_the_store_whole() {
    let full = |call: &str, when: usize| {
        matches!(call, "pwrite64" | "ftruncate" | "fsync" | "fdatasync")
            .then(|| format!("inject={call}:error=ENOSPC:when={when}+"))
    };
    let injected = harm(full, sized(3, 1));
    assert!(injected > 10, "{injected}");
    eprintln!("{injected} full disks");
}

#[test]
fn a_failing_disk_gives_a_clean_error_and_leaves_the_store_whole() {
    let failing = |call: &str, when: usize| {
        matches!(call, "pwrite64" | "ftruncate" | "fsync" | "fdatasync")
            .then(|| format!("inject={call}:error=EIO:when={when}+"))
    };
    let injected = harm(failing, sized(3, 1));
    assert!(injected > 10, "{injected}");
    eprintln!("{injected} failing disks");
}
