//! A true power cut: an ext4 of its own is shut down under load, unsynced writes and journal and all.

use std::sync::Mutex;

use toft_stories::prelude::*;

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
        // A story beside this one may have copied the mount into a namespace of its own: there the file system that was shut
        // down lives on, and mounting the same file would give it back.
        let left = self.image.with_extension("left");
        fs::copy(&self.image, &left).unwrap();
        fs::rename(&left, &self.image).unwrap();
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

/// What was acknowledged before the power went. What is told later nobody hears: the kernel of a real machine is gone
/// by then, while the one under this test goes on and may even call a sync a success whose journal was thrown away.
#[derive(Default)]
struct Acknowledged(Mutex<(bool, Vec<(&'static str, String)>)>);

impl Acknowledged {
    /// Notes a success; false when it was none, or came too late.
    fn note(&self, verb: &'static str, said: &Said) -> bool {
        let mut noted = self.0.lock().unwrap();
        let counts = said.code == 0 && !noted.0;
        if counts {
            noted.1.push((verb, said.out.trim().to_owned()));
        }
        counts
    }

    fn close(&self) {
        self.0.lock().unwrap().0 = true;
    }
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
    let cuts = sized(6, 50);
    let mut acknowledged = 0;
    for cut in 0..cuts {
        let mut args = vec!["flow".to_owned(), "new".into(), format!("cut {cut}")];
        args.extend((0..400).flat_map(|n| ["--task".to_owned(), format!("c{cut}-{n}")]));
        outside.toft(&repo, &args.iter().map(String::as_str).collect::<Vec<_>>()).ok();
        let acknowledged_before = Acknowledged::default();
        thread::scope(|scope| {
            for worker in 0..4 {
                let (outside, repo, acknowledged) = (&outside, &repo, &acknowledged_before);
                scope.spawn(move || {
                    let agent = format!("w{cut}-{worker}");
                    loop {
                        let claim = outside.toft(repo, &["claim", "--as", &agent, "-q"]);
                        if !acknowledged.note("claim", &claim) {
                            break;
                        }
                        let finish = outside.toft(repo, &["finish", "--as", &agent, "-q", "--no-change", "c"]);
                        if !acknowledged.note("task.done", &finish) {
                            break;
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(60 + 37 * (cut as u64 % 11)));
            acknowledged_before.close();
            disk.cut_power();
        });
        disk.restart();
        outside.toft(&repo, &["doctor"]).ok();
        let kept = history(&outside, &repo);
        let done = acknowledged_before.0.into_inner().unwrap().1;
        for op in &done {
            assert!(kept.contains(op), "cut {cut}: {op:?} was acknowledged and is lost");
        }
        acknowledged += done.len();
    }
    assert!(acknowledged > cuts, "there was load: {acknowledged}");
    eprintln!("{cuts} power cuts, {acknowledged} acknowledged writes, none lost");
}

fn history(home: &Home, repo: &Path) -> Vec<(&'static str, String)> {
    let events = home.toft(repo, &["history", "--json", "--after", "0", "--limit", "1000000"]).data();
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
