//! Agents review finished work, each under a task and a lease of its own.

#![cfg(unix)]

use toft_stories::prelude::*;

/// A reviewer that looks at the commit and the brief, and returns what says `bad`.
const REVIEWER: &str = r#"
cp "$TOFT_BRIEF" "$HOME/briefs/review"
landing=$(sed -n 's/.*`toft review \(ln_[^ `]*\)` shows.*/\1/p' "$TOFT_BRIEF")
toft review "$landing" > "$HOME/briefs/diff" || exit 1
if grep -q bad work.txt; then
  toft review "$landing" --return -m "not good enough" --at work.txt:1 "say good"
else
  toft review "$landing" --approve -m "looked at work.txt"
fi
"#;

fn reviewing_yard() -> (Yard, String) {
    let yard = Yard::new("[land]\nreview = \"agent:critic\"\n");
    let reviewer = yard.home.path().join("home/reviewer.sh");
    fs::write(&reviewer, REVIEWER).unwrap();
    (yard, reviewer.display().to_string())
}

fn review(yard: &Yard, reviewer: &str, args: &[&str]) -> String {
    let mut all = vec!["--as", "critic", "run", "--label", "review", "--until-idle"];
    all.extend(args);
    all.extend(["--", "sh", reviewer]);
    yard.home.toft(&yard.repo, &all).ok()
}

#[test]
fn an_agent_reviews_work_under_its_own_task_and_never_its_own() {
    let (yard, reviewer) = reviewing_yard();
    let id = yard.finish("work", "echo bad > work.txt", "echo good > work.txt");
    assert_eq!(yard.status(&id), "in_progress");
    // The author may not, by command or by claim.
    let listed = yard.home.toft(&yard.repo, &["land", "list", "--json"]).data();
    let landing = listed[0]["id"].as_str().unwrap().to_owned();
    let (author, task) = (listed[0]["author"].as_str().unwrap(), listed[0]["review_task"].as_str().unwrap());
    yard.home.toft(&yard.repo, &["--as", author, "review", &landing, "--approve"]).fails(4);
    yard.home.toft(&yard.repo, &["agent", "register", author, "--can", "critic"]).ok();
    yard.home.toft(&yard.repo, &["--as", author, "claim", task]).refuses(5, "your own work");
    let nothing = yard.home.toft(&yard.repo, &["--as", author, "claim"]).fails(6);
    assert!(!nothing.contains(task), "{nothing}");
    assert_eq!(yard.land()["landed"].as_array().unwrap().len(), 0, "nothing lands without the review");

    review(&yard, &reviewer, &[]);
    let brief = yard.brief("review");
    assert!(
        brief.contains("Review: work") && brief.contains("--approve") && brief.contains("What to review"),
        "{brief}"
    );
    assert!(yard.brief("diff").contains("+bad"));
    assert_eq!(yard.status(&id), "open", "it was returned");

    yard.run(&[]);
    assert!(yard.brief("work").contains("not good enough") && yard.brief("work").contains("work.txt:1"));
    review(&yard, &reviewer, &[]);
    yard.land_and_close(&id);
    assert_eq!(yard.git(&["show", "main:work.txt"]), "good");
    let shown = yard.home.toft(&yard.repo, &["land", "show", &landing, "--json"]).data();
    assert_eq!(shown["approval"]["by"], "critic-1");
}

#[test]
fn a_confined_agent_reviews_what_it_was_given_and_nothing_else() {
    let (yard, reviewer) = reviewing_yard();
    yard.issue("first", "echo one > work.txt", "false");
    yard.finish("second", "echo two > other.txt", "false");
    // It looks at all of it, and tries to approve the other work first.
    let script = r#"
mine=$(sed -n 's/.*`toft review \(ln_[^ `]*\)` shows.*/\1/p' "$TOFT_BRIEF")
for landing in $(toft review --json | grep -o 'ln_[0-9a-z]*' | sort -u); do
  toft review $landing > /dev/null || exit 1
  [ $landing = $mine ] && continue
  toft review $landing --approve && exit 1
done
toft review $mine --approve
"#;
    fs::write(&reviewer, script).unwrap();
    yard.home.toft(&yard.repo, &["--as", "critic", "run", "--once", "--sandbox", "--", "sh", &reviewer]).ok();
    let listed = yard.home.toft(&yard.repo, &["land", "list", "--json"]).data();
    let approved = listed.as_array().unwrap().iter().filter(|landing| !landing["approval"].is_null()).count();
    assert_eq!(approved, 1, "{listed}");
}

#[test]
fn a_review_that_is_not_needed_any_more_ends() {
    let (yard, reviewer) = reviewing_yard();
    let id = yard.finish("work", "echo good > work.txt", "false");
    yard.home.toft(&yard.repo, &["ready"]).says("Review: work");
    yard.home.toft(&yard.repo, &["review", &id, "--approve"]).ok();
    review(&yard, &reviewer, &[]);
    assert!(!yard.home.path().join("home/briefs/review").exists(), "no agent was started for it");
    yard.land_and_close(&id);
}

#[test]
fn a_review_ends_with_a_verdict_and_with_nothing_else() {
    let (mut yard, _) = reviewing_yard();
    yard.home.set("TOFT_RETRY_BACKOFF", "30s");
    let id = yard.finish("work", "echo good > work.txt", "false");
    // A reviewer that commits instead of deciding has failed, and nothing of it lands.
    let commits =
        "echo mine > mine.txt; git add -A; git commit -q -m mine; toft finish --evidence HEAD -m done && exit 1; true";
    let review = ["--as", "critic", "run", "--label", "review", "--once", "--", "sh", "-c", commits];
    yard.home.toft(&yard.repo, &review).says("ended without a verdict");
    assert_eq!(yard.home.toft(&yard.repo, &["land", "list", "--json"]).data().as_array().unwrap().len(), 1);
    // Runners of other agents do not wait for its next attempt.
    let begun = std::time::Instant::now();
    yard.run(&[]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    // A person decides: nothing is left of the review.
    yard.home.toft(&yard.repo, &["review", &id, "--approve"]).ok();
    yard.land_and_close(&id);
    let status = yard.home.toft(&yard.repo, &["status"]).ok();
    assert!(!status.contains("Review: work"), "{status}");
    assert!(!yard.home.toft(&yard.repo, &["ready"]).ok().contains("Review: work"));
}
