//! Lists of workspaces, timed beside bare git in the same run.

use toft_stories::prelude::*;
use toft_stories::workspaces::busy_workspaces;

/// How long the fastest of three takes: others share the machine.
fn fastest(mut what: impl FnMut()) -> Duration {
    let one = |_| {
        let start = Instant::now();
        what();
        start.elapsed()
    };
    (0..3).map(one).min().unwrap()
}

#[test]
fn a_list_takes_little_more_than_one_git_status_for_each_and_status_less() {
    let home = Home::new();
    let (files, count) = (sized(800, 5_000), sized(6, 100));
    let (repo, paths) = busy_workspaces(&home, files, count);
    let index = fs::read(repo.join(".git/worktrees").join(paths[1].file_name().unwrap()).join("index")).unwrap();
    home.toft(&repo, &["ws", "list", "--limit", "200"]).ok();
    let list = fastest(|| drop(home.toft(&repo, &["ws", "list", "--limit", "200"]).ok()));
    let status = fastest(|| drop(home.toft(&repo, &["status"]).ok()));
    let after = fs::read(repo.join(".git/worktrees").join(paths[1].file_name().unwrap()).join("index")).unwrap();
    assert!(index == after, "a workspace's own index is never written");
    let bare = fastest(|| {
        for path in &paths {
            home.run(path, "git", &["status", "--porcelain"]);
        }
    });
    println!("{count} workspaces of {files} files: ws list {list:?}, status {status:?}, bare git status {bare:?}");
    assert!(list < bare * 3 + Duration::from_millis(300), "{list:?} beside {bare:?}");
    assert!(status < Duration::from_millis(1_500), "{status:?}");
}
