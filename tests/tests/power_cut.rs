//! A true power cut: an ext4 of its own is shut down under load, unsynced writes and journal and all.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use toft_stories::{Home, sized};

/// An ext4 on a loop device; unmounted when dropped.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    /// Nothing if this user may not mount.
    fn new(dir: &Path) -> Option<Self> {
        let disk = Self { image: dir.join("disk.img"), at: dir.join("disk") };
        fs::create_dir(&disk.at).unwrap();
        let file = fs::File::create(&disk.image).unwrap();
        file.set_len(96 << 20).unwrap();
        run("mkfs.ext4", &["-q", disk.image.to_str().unwrap()]).then_some(())?;
        disk.mount().then_some(disk)
    }

    fn mount(&self) -> bool {
        run("mount", &["-o", "loop", self.image.to_str().unwrap(), self.at.to_str().unwrap()])
    }

    /// Drops everything that was not synced, as a power cut does, and mounts what is left.
    fn cut_power(&self) {
        const SHUTDOWN: &str = "import fcntl,os,struct,sys
fcntl.ioctl(os.open(sys.argv[1],0),0x8004587d,struct.pack('I',2))";
        assert!(run("python3", &["-c", SHUTDOWN, self.at.to_str().unwrap()]), "the file system shuts down");
    }

    fn restart(&self) {
        assert!(run("umount", &[self.at.to_str().unwrap()]));
        assert!(self.mount(), "the journal is replayed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &[self.at.to_str().unwrap()]);
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

#[test]
fn no_acknowledged_write_is_lost_to_a_power_cut() {
    let outside = Home::new();
    let Some(disk) = Disk::new(outside.path()) else {
        eprintln!("skipped: this user cannot mount a loop device");
        return;
    };
    let repo = disk.at.join("work");
    fs::create_dir(&repo).unwrap();
    outside.toft(&repo, &["init", "--no-vcs"]).ok();
    run("sync", &[]);
    let cuts = sized(3, 50);
    let mut acknowledged = 0;
    for cut in 0..cuts {
        let mut args = vec!["flow".to_owned(), "new".into(), format!("cut {cut}")];
        args.extend((0..400).flat_map(|n| ["--task".to_owned(), format!("c{cut}-{n}")]));
        outside.toft(&repo, &args.iter().map(String::as_str).collect::<Vec<_>>()).ok();
        let (stop, done) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for worker in 0..4 {
                let (outside, repo, stop, done) = (&outside, &repo, &stop, &done);
                scope.spawn(move || {
                    let agent = format!("w{cut}-{worker}");
                    while !stop.load(Ordering::Relaxed) {
                        let claim = outside.toft(repo, &["claim", "--as", &agent, "-q"]);
                        if claim.code != 0 {
                            break;
                        }
                        done.lock().unwrap().push(("claim", claim.out.trim().to_owned()));
                        let finish = outside.toft(repo, &["finish", "--as", &agent, "-q", "--evidence", "c"]);
                        if finish.code != 0 {
                            break;
                        }
                        done.lock().unwrap().push(("task.done", finish.out.trim().to_owned()));
                    }
                });
            }
            thread::sleep(Duration::from_millis(60 + 37 * (cut as u64 % 11)));
            disk.cut_power();
            stop.store(true, Ordering::Relaxed);
        });
        disk.restart();
        outside.toft(&repo, &["doctor"]).ok();
        let kept = history(&outside, &repo);
        let done = done.into_inner().unwrap();
        for op in &done {
            assert!(kept.contains(op), "cut {cut}: {op:?} was acknowledged and is lost");
        }
        acknowledged += done.len();
    }
    assert!(acknowledged > cuts, "there was load: {acknowledged}");
    eprintln!("{cuts} power cuts, {acknowledged} acknowledged writes, none lost");
}

fn history(home: &Home, repo: &Path) -> Vec<(&'static str, String)> {
    let events = home.toft(repo, &["log", "--json", "--after", "0", "--limit", "1000000"]).data();
    let mut found = Vec::new();
    for event in events.as_array().unwrap() {
        for verb in ["claim", "task.done"] {
            if event["verb"] == verb {
                found.push((verb, event["entity"].as_str().unwrap().to_owned()));
            }
        }
    }
    found
}
