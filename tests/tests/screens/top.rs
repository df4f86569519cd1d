//! `toft top` in a real terminal: a person watches agents, and does everything by keys.

#![cfg(unix)]

use toft_stories::issues::finish;
use toft_stories::prelude::*;
use toft_stories::terminal::Terminal;

#[test]
#[ignore = "wide: a terminal"]
fn an_evening_is_played_by_keys_alone() {
    let yard = Yard::new("[land]\nreview = \"human\"\n");
    let (home, repo) = (&yard.home, &yard.repo);
    let apples = add(home, repo, &["Sell apples"]);
    add(home, repo, &["Bake bread", "--needs", &apples]);
    home.toft(repo, &["--as", "bo", "claim", &apples]).ok();
    let top = Terminal::toft(home, repo, &["top"], (120, 36));
    top.until("Nothing needs you.");

    // A question.
    home.toft(repo, &["--as", "bo", "finish", &apples, "waiting", "-m", "By weight or by piece?"]).ok();
    top.until("By weight or by piece?");
    top.press(&["a"]);
    top.until("Answer (Sell apples):");
    top.enter("by weight, it's fair");
    top.until("toft answer");
    top.press(&["Enter"]);
    top.until("Nothing needs you.");
    home.toft(repo, &["history"]).says("by weight, it's fair");

    // Finished work is looked at, and goes back with a comment on a line.
    finish(home, repo, &apples, "apples.txt", "price: 1\nper: piece\n");
    top.until("bo finished it; approve it");
    top.press(&["Enter"]);
    top.until("waits for review");
    top.press(&["d"]);
    top.until("+per: piece");
    for _ in 0..20 {
        top.press(&["Down"]);
    }
    top.press(&["c"]);
    top.until("apples.txt:2:");
    top.enter("per weight");
    top.press(&["Enter"]);
    top.until("← per weight");
    top.press(&["r"]);
    top.until("What has to change (");
    top.enter("see the line");
    top.press(&["Enter"]);
    top.until("sent back");

    // The agent takes it up.
    home.toft(repo, &["show", &apples, "--context"]).says_all(&["apples.txt:2: per weight", "see the line"]);
    let claimed = finish(home, repo, &apples, "apples.txt", "price: 1\nper: weight\n");
    assert!(claimed.contains("it was sent back (review)") && claimed.contains("apples.txt:2: per weight"), "{claimed}");
    top.until("+per: weight");
    top.press(&["i"]);
    top.until("waits for review");

    // It is approved, and lands after a preview.
    top.press(&["a"]);
    top.until("(Sell apples)? Enter");
    top.press(&["Enter"]);
    top.until("ready to land");
    top.press(&["Escape"]);
    top.until("q quit");
    top.press(&["4"]);
    top.until("ready to land");
    top.press(&["l"]);
    top.until("Esc closes");
    top.press(&["Enter"]);
    top.until("landed as");
    assert_eq!(yard.git(&["show", "main:apples.txt"]), "price: 1\nper: weight");
    assert_eq!(yard.status(&apples), "closed");

    // What was added by mistake is undone, after a preview.
    top.press(&[":"]);
    top.enter("add 'A mistake'");
    top.press(&["Enter"]);
    top.until("Added");
    top.press(&["5"]);
    top.until("A mistake");
    top.until("Bake bread");
    top.press(&["u"]);
    top.until("toft undo --last");
    top.press(&["Enter"]);
    top.until_gone("A mistake");
    top.press(&["q"]);
    top.until("ended with 0");
}

#[test]
#[ignore = "wide: a terminal"]
fn what_others_do_is_seen_at_once_at_any_size() {
    let (home, repo) = Home::with_repository("shop");
    let top = Terminal::toft(&home, &repo, &["top"], (80, 24));
    top.until("Nothing needs you.");
    top.press(&["3"]);
    top.until("planned 0");
    let begun = Instant::now();
    let id = add(&home, &repo, &["Sell apples \u{1b}[31mred\u{202e}"]);
    top.until("ready 1");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    top.press(&["Right"]);
    top.until("Sell apples");
    assert!(!top.coloured_screen().contains("apples \u{1b}[31mred"), "text of an issue colours nothing");
    home.toft(&repo, &["--as", "bo", "claim", &id]).ok();
    top.press(&["Right"]);
    top.until("bo");
    for (width, height) in [(20, 5), (200, 60), (120, 30)] {
        top.resize(width, height);
    }
    top.press(&["2"]);
    top.until("bo on");
    // Work that no issue asked for opens, too.
    home.toft(&repo, &["flow", "new", "Sweep the yard"]).ok();
    top.press(&["3"]);
    top.until("Sweep the yard");
    top.press(&["Left"]);
    top.until("Enter open");
    top.press(&["Enter"]);
    top.until("Parts");
    top.press(&["Escape"]);
    top.until("q quit");
    top.press(&["q"]);
    top.until("ended with 0");
}

#[test]
#[ignore = "wide: a terminal"]
fn an_act_concerns_what_was_chosen_whatever_others_do_meanwhile() {
    let (home, repo) = Home::with_repository("shop");
    let ask = |title: &str, question: &str| {
        let id = add(&home, &repo, &[title]);
        home.toft(&repo, &["--as", title, "claim", &id]).ok();
        home.toft(&repo, &["--as", title, "finish", &id, "waiting", "-m", question]).ok();
        id
    };
    let (apples, pears) = (ask("apples", "red?"), ask("pears", "green?"));
    let top = Terminal::toft(&home, &repo, &["top"], (140, 30));
    top.until("2 need you");
    top.press(&["Down"]);
    top.until("pears says");
    // The row above goes away: the same one stays chosen.
    home.toft(&repo, &["answer", &apples, "red"]).ok();
    top.until("1 needs you");
    top.until("pears says");
    // Another question of the same task is not answered by what was typed for the first.
    top.press(&["a"]);
    top.until("Answer (pears):");
    top.enter("green");
    home.toft(&repo, &["answer", &pears, "yellow"]).ok();
    home.toft(&repo, &["--as", "pears", "claim", &pears]).ok();
    home.toft(&repo, &["--as", "pears", "finish", &pears, "waiting", "-m", "May I push?"]).ok();
    top.press(&["Enter"]);
    top.until("Esc closes");
    assert!(home.toft(&repo, &["status"]).ok().contains("May I push?"));
    top.press(&["Escape"]);
    top.until("May I push?");

    // What is pasted is text, whatever lines it has.
    top.press(&["2"]);
    top.until("waits for you: pears");
    top.press(&["/"]);
    top.paste("pears\nstop\n");
    top.until("pears stop");
    top.press(&["Escape"]);

    // What would be undone is what was shown.
    home.toft(&repo, &["add", "First"]).ok();
    top.press(&["5"]);
    top.until("First");
    top.press(&["u"]);
    top.until("toft undo --last");
    home.toft(&repo, &["add", "Second"]).ok();
    top.press(&["Enter"]);
    top.until("it is not the last operation any more");
    assert!(home.toft(&repo, &["list"]).ok().contains("Second"));

    // Signals leave the terminal as it was.
    home.run(&repo, "kill", &["-TERM", &top.pid()]);
    let screen = top.until("ended with 0");
    assert!(!screen.contains("need you"), "{screen}");
    drop(top);
    // A terminal that goes away takes it along.
    let top = Terminal::toft(&home, &repo, &["top"], (80, 24));
    top.until("needs you");
    let process = Path::new("/proc").join(top.pid());
    drop(top);
    until(10, "it ends without a terminal", || process.join("exe").read_link().is_err());
}

#[test]
#[ignore = "wide: a terminal"]
fn every_repository_is_seen_and_commands_run_where_they_belong() {
    let home = Home::new();
    let (shop, yard) = (home.repo("shop"), home.repo("yard"));
    for (repo, title) in [(&shop, "Sell apples"), (&yard, "Sweep")] {
        let id = add(&home, repo, &[title]);
        home.toft(repo, &["--as", "bo", "claim", &id]).ok();
        home.toft(repo, &["--as", "bo", "finish", &id, "waiting", "-m", "how?"]).ok();
    }
    let top = Terminal::toft(&home, &shop, &["top", "--all-repos"], (160, 30));
    top.until("2 need you");
    top.press(&["/"]);
    top.enter("sweep");
    top.press(&["Enter"]);
    top.until_gone("Sell apples");
    top.press(&["a"]);
    top.enter("-x with a broom");
    top.press(&["Enter"]);
    top.until("1 needs you");
    home.toft(&yard, &["history"]).says("-x with a broom");
}

#[test]
#[ignore = "wide: a terminal"]
fn lines_are_printed_for_who_sees_no_screen() {
    let (home, repo) = Home::with_repository("shop");
    let id = add(&home, &repo, &["Sell apples"]);
    home.toft(&repo, &["top"]).fails(2);
    let mut command = home.command(&repo, toft_bin(), &["top", "--plain"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines().map(Result::unwrap);
    let mut until = |text: &str| lines.by_ref().find(|line| line.contains(text)).unwrap();
    until("any toft command");
    home.toft(&repo, &["--as", "bo", "claim", &id]).ok();
    home.toft(&repo, &["--as", "bo", "finish", &id, "waiting", "-m", "By weight?"]).ok();
    assert!(until("needs you: question").contains("Sell apples, bo: By weight?"));
    assert!(until("to answer").contains("toft answer gt_"));
    writeln!(input, "answer {id} 'by weight'").unwrap();
    until("nswer");
    writeln!(input, "board").unwrap();
    until("ready: 1");
    writeln!(input, "nonsense").unwrap();
    until("failed: toft nonsense");
    drop(input);
    assert!(child.wait().unwrap().success());
}
