//! Containers of a story: podman with a storage of its own, and a systemd that boots in one of them. No command runs without a
//! time limit.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use crate::{Home, toft_bin};

/// Runs a program for at most so many seconds.
pub fn limited(home: &Home, dir: &Path, seconds: u32, program: &str, args: &[&str]) -> Output {
    let seconds = seconds.to_string();
    home.command(dir, "timeout", &[&["-k", "5", &seconds, program], args].concat()).output().unwrap()
}

/// The stdout of a program that must succeed within a time.
pub fn succeeds(home: &Home, dir: &Path, seconds: u32, program: &str, args: &[&str]) -> String {
    let output = limited(home, dir, seconds, program, args);
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// podman with images, containers and volumes of its own, all of which go with it.
pub struct Podman {
    /// Its commands run here.
    pub home: Home,
}

impl Podman {
    /// Nothing where containers cannot be started, or not by this user.
    pub fn new() -> Option<Self> {
        let mut home = Home::new();
        home.toft_on_path();
        // Limits cannot be raised everywhere.
        let limits = "default_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n";
        write(&mut home, "CONTAINERS_CONF", &format!("[containers]\n{limits}[engine]\nruntime = \"runc\"\n"));
        let (graph, run) = (home.path().join("graph"), home.path().join("containers-run"));
        let (graph, run) = (graph.display(), run.display());
        let storage = format!("[storage]\ndriver = \"vfs\"\ngraphroot = \"{graph}\"\nrunroot = \"{run}\"\n");
        write(&mut home, "CONTAINERS_STORAGE_CONF", &storage);
        let installed = Command::new("podman").arg("--version").output().is_ok();
        assert!(
            installed || std::env::var_os("TOFT_TEST_ALL").is_none(),
            "podman is not installed; .ci/run installs it"
        );
        let podman = Self { home };
        if !installed || !nix::unistd::geteuid().is_root() || !podman.works() {
            println!("skipped: podman cannot start containers here, or this user is not root");
            return None;
        }
        Some(podman)
    }

    /// Whether a container with the machine's own programs runs.
    fn works(&self) -> bool {
        let root = self.home.path().join("image");
        for dir in
            ["usr/local/bin", "etc", "tmp", "proc", "sys", "dev", "root", "run", "src", "var/log", "var/lib", "var/tmp"]
        {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for dir in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir(root.join("usr").join(dir)).unwrap();
            symlink(format!("usr/{dir}"), root.join(dir)).unwrap();
        }
        fs::create_dir(root.join("usr/share")).unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
        let target = root.join("etc/systemd/system/story.target");
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, "[Unit]\nDescription=What a story needs\n").unwrap();
        let tar = self.home.path().join("image.tar").display().to_string();
        self.home.run(&root, "tar", &["-cf", &tar, "."]);
        let import = limited(&self.home, &root, 60, "podman", &["import", "-q", &tar, "machine"]);
        let volumes = programs();
        let run = [&["run", "--rm", "--network", "none"], &words(&volumes)[..], &["machine", "true"]].concat();
        let run = limited(&self.home, &root, 60, "podman", &run);
        if !run.status.success() {
            println!("{import:?}\n{run:?}");
        }
        run.status.success()
    }

    /// Runs podman; it must succeed.
    pub fn run(&self, args: &[&str]) -> String {
        succeeds(&self.home, self.home.path(), 60, "podman", args)
    }

    /// Waits until a container does something, for at most 40 seconds.
    pub fn until(&self, container: &str, does: impl Fn() -> bool) {
        let begun = Instant::now();
        while !does() {
            let log = || limited(&self.home, self.home.path(), 10, "podman", &["logs", container]);
            assert!(begun.elapsed() < Duration::from_secs(40), "{container}: {:?}", log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Boots systemd with the machine's own programs and a network of its own. `src` is seen as `/src`.
    pub fn boot(&self, src: &Path) -> Machine<'_> {
        let (volumes, src) = (programs(), format!("{}:/src:ro", src.display()));
        let own = ["run", "-d", "--name", "machine", "--systemd=always", "--network", "none", "--cap-add", "SYS_ADMIN"];
        // As on a machine: systemd mounts credentials in a namespace of its own, and the others see them.
        let init = "mount --make-rshared / && exec /lib/systemd/systemd --unit=story.target";
        let boots = ["-v", &src, "machine", "sh", "-c", init];
        self.run(&[&own, &words(&volumes)[..], &boots].concat());
        let machine = Machine(self);
        machine.sh_until("systemctl is-active story.target");
        machine
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let home = &self.home;
        limited(home, home.path(), 60, "podman", &["rm", "-f", "-t", "0", "-a"]);
        limited(home, home.path(), 60, "podman", &["volume", "rm", "-f", "-a"]);
    }
}

/// A container in which systemd runs.
pub struct Machine<'a>(&'a Podman);

impl Machine<'_> {
    /// Runs a script as root; it must succeed.
    pub fn sh(&self, script: &str) -> String {
        let output = self.try_sh(60, script);
        assert!(output.status.success(), "{script}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a script as root until it succeeds, for at most 40 seconds.
    pub fn sh_until(&self, script: &str) {
        let begun = Instant::now();
        while !self.try_sh(10, script).status.success() {
            assert!(begun.elapsed() < Duration::from_secs(40), "{script}\n{}", self.log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn log(&self) -> String {
        let log = self.try_sh(10, "journalctl -u toft-serve --no-pager | tail -30");
        String::from_utf8_lossy(&log.stdout).into_owned()
    }

    /// Runs a script as root.
    pub fn try_sh(&self, seconds: u32, script: &str) -> Output {
        let args = ["exec", "-w", "/src", "machine", "sh", "-euc", script];
        limited(&self.0.home, self.0.home.path(), seconds, "podman", &args)
    }

    /// A property of the server's unit.
    pub fn property(&self, name: &str) -> String {
        self.sh(&format!("systemctl show -P {name} toft-serve"))
    }
}

/// Mounts of the machine's programs, but not of its `/usr/local`.
fn programs() -> Vec<String> {
    let dirs = ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share"];
    dirs.into_iter().filter(|dir| Path::new(dir).is_dir()).map(|dir| format!("-v={dir}:{dir}:ro")).collect()
}

fn words(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// Writes a file whose path is in a variable of this home.
fn write(home: &mut Home, variable: &str, text: &str) {
    let path = home.path().join(variable.to_lowercase());
    fs::write(&path, text).unwrap();
    home.set(variable, path.to_str().unwrap());
}

/// A directory that looks like a clone with a release build.
pub fn clone_with_build(dir: &Path) {
    let root = crate::stories_dir().join("..").canonicalize().unwrap();
    fs::create_dir_all(dir.join("target/release")).unwrap();
    fs::copy(toft_bin(), dir.join("target/release/toft")).unwrap();
    let deploy = root.join("deploy");
    for part in ["systemd", "oci", "kubernetes"] {
        fs::create_dir_all(dir.join("deploy").join(part)).unwrap();
        for file in fs::read_dir(deploy.join(part)).unwrap() {
            let file = file.unwrap().path();
            fs::copy(&file, dir.join("deploy").join(part).join(file.file_name().unwrap())).unwrap();
        }
    }
}
