//! `toft try` from an empty directory with the installed binary: what it shows, and that it touches nothing else.
#![cfg(unix)]

use toft_stories::prelude::*;

#[test]
#[ignore = "wide: the whole demonstration"]
fn five_agents_build_a_village_and_leave_one_question() {
    let home = Home::new();
    let empty = home.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let before = snapshot(&home.path().join("home"));
    let begun = Instant::now();
    let said = home.toft(&empty, &["try", "ana's demo"]).ok();
    let took = begun.elapsed();
    eprintln!("{took:.1?}\n{said}");
    assert!(said.contains("40 issues and 5 agents"), "{said}");
    assert!(said.contains("Finished: 39 done, 1 waiting (42 attempts)."), "{said}");
    assert!(said.contains("Ring the bell in the morning or in the evening?"), "{said}");
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(snapshot(&home.path().join("home")), before, "nothing of the user's is touched");
    agents::none_left(&home);

    // As the text says: look around, answer, run the rest.
    let there = said.lines().find(|line| line.starts_with("  cd ")).unwrap();
    let shell = |line: &str| home.run(&empty, "sh", &["-c", &format!("{there} && {line}")]);
    let gate = said.split("toft answer ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(shell("toft list --graph").contains("Open the chapel"));
    shell(&format!("toft answer {gate} 'in the evening'"));
    assert_eq!(shell("git log --format=%s main | grep -c '^Merge: '").trim(), "39");
    let rest = shell("toft run --land --until-idle -- ../agent");
    assert!(rest.contains("1 done"), "{rest}");
    assert_eq!(shell("toft list --all -q --limit 100").lines().count(), 40);
    assert_eq!(shell("toft list --status closed -q --limit 100").lines().count(), 40);
    assert!(shell("toft history --limit 1000").contains("task.answered"));
    assert!(shell("git log --all --oneline").lines().count() > 40);
}
