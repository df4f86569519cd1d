//! The board of a server, in a real browser: each person sees what their token may see, and acts with it.

#![cfg(unix)]

use std::net::TcpStream;

use toft_stories::browser::{Browser, ServedBoard};
use toft_stories::fleet::free_port;
use toft_stories::issues::finish;
use toft_stories::prelude::*;
use toft_stories::provider::Provider;

/// A server with a board, and a machine with a clone.
struct ServedTeam {
    home: Home,
    repo: PathBuf,
    server: FleetServer,
    url: String,
}

impl ServedTeam {
    fn new() -> Self {
        let mut home = Home::new();
        home.until_landed();
        let url = format!("http://127.0.0.1:{}", free_port());
        let (store, address) = (home.path().join("team.db").display().to_string(), url.trim_start_matches("http://"));
        let server = FleetServer::listen(&home, &store, address, &["--board", &url]);
        let machine = server.token(&home, "machine", "admin");
        home.set("TOFT_STORE", &url);
        home.set("TOFT_TOKEN", &machine);
        let repo = home.repo("shop");
        Self { home, repo, server, url }
    }

    /// Finished work waits for a person.
    fn review_by_people(&self) {
        self.home.configure("[land]\nreview = \"human\"\n");
    }

    fn sign_in(&self, page: &mut Browser, token: &str) {
        page.open(&self.url);
        page.until("Sign in");
        page.evaluate("document.querySelector('#token').focus()");
        page.enter(token);
        page.press("Enter");
    }
}

#[test]
#[ignore = "wide: a browser"]
fn a_team_answers_reviews_and_undoes_at_the_board_of_its_server() {
    let team = ServedTeam::new();
    let ServedTeam { home, repo, server, url } = &team;
    team.review_by_people();
    let mut page = Browser::start(home);
    team.sign_in(&mut page, "wrong");
    page.until("does not know this token");
    assert_eq!(page.evaluate("document.querySelectorAll('#main *').length"), 0);
    let ana = server.token(home, "ana", "coordinator");
    page.errors();
    team.sign_in(&mut page, &ana);
    page.until("Nothing needs you.");
    page.until("ana (");
    // She adds an issue; an agent elsewhere works on it and asks.
    page.press("n");
    page.until("Title of the new issue");
    page.enter("Sell apples");
    page.press("Enter");
    page.press("3");
    page.until("Sell apples");
    let claimed = home.toft(repo, &["--as", "bo", "claim", "--json"]).data();
    let id = claimed["issue"]["id"].as_str().unwrap().to_owned();
    page.until("bo");
    page.press("j");
    page.press("Enter");
    page.until("it is shown in a clone");
    home.toft(repo, &["--as", "bo", "finish", &id, "waiting", "-m", "By weight?", "--choice", "by the piece"]).ok();
    page.press("1");
    page.until("By weight?");
    page.click("by the piece");
    page.click_in("#ask", "button", "by the piece");
    page.until("Nothing needs you.");
    page.said();
    home.toft(repo, &["history", "--json"]).says_all(&["by the piece", "\"actor\":\"ana\""]);
    // Finished work goes back, comes again, and is approved; it lands where there are files.
    finish(home, repo, &id, "apples.txt", "per: weight\n");
    page.until("bo finished it");
    page.click("return");
    page.until("What has to change");
    page.enter("by the piece, please");
    page.press("Enter");
    page.until("Nothing needs you.");
    let claimed = finish(home, repo, &id, "apples.txt", "per: piece\n");
    assert!(claimed.contains("by the piece, please"), "{claimed}");
    page.until("bo finished it");
    page.click("approve");
    page.until("--approve --commit");
    assert!(!page.text().contains("-C /"), "a directory of the server is nobody's concern: {}", page.text());
    page.click_in("#ask", "button", "approve");
    page.until("Nothing needs you.");
    page.press("4");
    page.until("ready to land in any clone");
    assert!(!page.text().contains("\nland\n"), "nothing lands without files: {}", page.text());
    home.toft(repo, &["land"]).ok();
    page.until("landed as");
    // What was added by mistake is undone.
    add(home, repo, &["Sell pears"]);
    page.press("n");
    page.until("Title of the new issue");
    page.enter("A mistake");
    page.press("Enter");
    page.press("5");
    page.until("A mistake");
    page.press("u");
    page.until("toft undo --last");
    page.click_in("#ask", "button", "undo");
    page.until_gone("A mistake");
    page.until("Sell pears");
    assert_eq!(page.errors(), Vec::<String>::new());
    assert_eq!(home.run(repo, "git", &["status", "--porcelain"]), "");

    // Who only reads sees the same, and nothing to press.
    page.click("Sign out");
    page.until("Sign in");
    let ben = server.token(home, "ben", "viewer");
    team.sign_in(&mut page, &ben);
    page.until("ben (");
    page.press("3");
    page.until("Sell pears");
    assert_eq!(page.evaluate("document.querySelectorAll('button[data-action]').length"), 0);
    // Asked for all the same, it is refused before anything is written, at the board and in a clone.
    let add_it = r#"{"place":{"screen":"board"},"item":null,"action":"n","line":"toft add …","said":"Sell it all"}"#;
    let (bearer, origin) = (format!("authorization: Bearer {ben}"), format!("origin: {url}"));
    let asked = ["-s", "-H", &bearer, "-H", &origin, "-H", "content-type: application/json", "-d", add_it];
    let said = home.run(repo, "curl", &[&asked[..], &[&format!("{url}/action")]].concat());
    assert!(!said.contains("Added"), "{said}");
    let viewed = home.toft_with(repo, &[("TOFT_TOKEN", ben.as_str())], &["add", "Sell it all"]);
    viewed.fails(4);
    page.press("1");
    page.press("3");
    page.until("Sell pears");
    assert!(!home.toft(repo, &["list"]).ok().contains("Sell it all"));
    // A token that counts no more shows nothing from now on.
    page.press("5");
    page.until("Sell pears");
    home.toft(Path::new("/"), &["token", "revoke", "ben"]).ok();
    page.until_gone("Sell pears");
    page.until("Sign in");
    // A repository of a name that leads elsewhere is none.
    let worker = server.token(home, "eve", "worker");
    let visit = r#"{"request":{"repository":{"id":"rp_../../evil","name":"e","vcs":"git","common_dir":"/e","roots":[],"remotes":[],
        "created":"2026-11-18T00:00:00Z"},"worktree":{"repository":"rp_../../evil","name":"main","path":"/e",
        "seen":"2026-11-18T00:00:00Z"}}}"#;
    let bearer = format!("authorization: Bearer {worker}");
    let asked = ["-s", "-H", &bearer, "-H", "content-type: application/json", "-d", visit];
    let said = home.run(repo, "curl", &[&asked[..], &[&format!("{url}/v1/verbs/visit")]].concat());
    assert!(said.contains("is no id of a repository"), "{said}");
    // A stranger's name for this machine is told apart, and the server's own paths are as they were.
    let status =
        |args: &[&str]| home.run(repo, "curl", &[&["-s", "-o", "/dev/null", "-w", "%{http_code}"][..], args].concat());
    assert_eq!(status(&["-H", "host: evil.example", url]), "421");
    assert_eq!(status(&[&format!("{url}/changes?screen=board&epoch=&since=0")]), "401");
    assert_eq!(status(&[&format!("{url}/v1/nothing")]), "404");
    assert_eq!(status(&["-H", &format!("authorization: Bearer {ana}"), &format!("{url}/v1/token")]), "200");
}

#[test]
#[ignore = "wide: a browser"]
fn each_token_sees_and_does_what_it_may_and_strangers_hold_nobody_up() {
    let team = ServedTeam::new();
    let ServedTeam { home, repo, server, url } = &team;
    let id = add(home, repo, &["Sell apples"]);
    home.toft(repo, &["--as", "bo", "claim", &id]).ok();
    home.toft(repo, &["--as", "bo", "finish", &id, "waiting", "-m", "By weight?", "--choice", "yes"]).ok();
    let get = |token: &str, path: &str| {
        home.run(repo, "curl", &["-s", "-H", &format!("authorization: Bearer {token}"), &format!("{url}{path}")])
    };
    // Who only looks may be the first who does.
    let viewer = server.token(home, "vic", "viewer");
    let seen = get(&viewer, "/changes?screen=board&epoch=&since=0");
    assert!(seen.contains("Sell apples") && seen.contains("By weight?") && !seen.contains("data-action"), "{seen}");
    let viewed =
        |args: &[&str]| home.toft_with(repo, &[("TOFT_TOKEN", viewer.as_str())], &[&["--as", "vic"], args].concat());
    assert!(viewed(&["list"]).ok().contains("Sell apples"));
    viewed(&["add", "Sell it all"]).fails(4);

    // A worker is offered what a worker may do.
    let worker = server.token(home, "wil", "worker");
    let seen = get(&worker, "/changes?screen=board&epoch=&since=0");
    assert!(seen.contains("By weight?") && !seen.contains("toft answer") && seen.contains("toft add"), "{seen}");
    let works =
        |args: &[&str]| home.toft_with(repo, &[("TOFT_TOKEN", worker.as_str())], &[&["--as", "wil"], args].concat());
    works(&["add", "A mistake"]).ok();
    let undone = works(&["undo"]).ok();
    assert!(!undone.contains("not recorded"), "{undone}");
    works(&["add", "Another mistake"]).ok();
    works(&["undo"]).ok();
    let coordinator = server.token(home, "pia", "coordinator");
    let seen = get(&coordinator, "/changes?screen=board&epoch=&since=0");
    assert!(seen.contains("toft answer") && !seen.contains("mistake"), "{seen}");

    // What is no token is refused at once, and a body that never comes is not waited for.
    let (origin, begun) = (format!("origin: {url}"), Instant::now());
    for secret in ["x\ny", "", &"x".repeat(300)] {
        let asked = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &origin, "--data-binary", secret];
        assert_eq!(home.run(repo, "curl", &[&asked[..], &[&format!("{url}/open")]].concat()), "401");
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let host = url.trim_start_matches("http://");
    let mut stranger = TcpStream::connect(host).unwrap();
    stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stranger, "POST /open HTTP/1.1\r\nHost: {host}\r\nOrigin: {url}\r\nContent-Length: 10\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    let long = "x".repeat(10_000);
    let asked = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &origin, "--data-binary", &long];
    assert_eq!(home.run(repo, "curl", &[&asked[..], &[&format!("{url}/open")]].concat()), "413");
}

#[test]
#[ignore = "wide: a browser"]
fn a_person_signs_in_at_the_board_with_their_account() {
    let home = Home::new();
    let Some(provider) = Provider::start(&home) else { return };
    let url = format!("http://127.0.0.1:{}", free_port());
    let server = provider.serve_at(&home, url.trim_start_matches("http://"), &["--board", &url]);
    let mut page = Browser::start(&home);
    page.open(&url);
    page.click("Sign in with your account");
    page.until("the sign-in page");
    let address = page.evaluate("document.querySelector('#provider-link').href");
    provider.browse(&home, address.as_str().unwrap(), "ana");
    page.until("ana.example.com (");
    page.until("Nothing needs you.");
    // Another tab is signed in, too; with the token gone, both are out.
    let admin = server.token(&home, "root", "admin");
    let env = [("TOFT_STORE", url.as_str()), ("TOFT_TOKEN", admin.as_str())];
    home.toft_with(Path::new("/"), &env, &["token", "revoke", "ana.example.com"]).ok();
    page.until("Sign in");
    assert_eq!(page.evaluate("document.querySelectorAll('#main li').length"), 0);
    assert_eq!(page.evaluate("localStorage.getItem('session')"), serde_json::Value::Null, "the token is forgotten");
}

#[test]
#[ignore = "wide: a browser"]
fn finished_work_is_reviewed_in_any_clone_that_shares_its_history() {
    let team = ServedTeam::new();
    let ServedTeam { home, repo, .. } = &team;
    team.review_by_people();
    let id = add(home, repo, &["Sell apples"]);
    let (clone, behind) = (home.path().join("clone"), home.path().join("behind"));
    for dir in [&clone, &behind] {
        home.run(home.path(), "git", &["clone", "-q", repo.to_str().unwrap(), dir.to_str().unwrap()]);
        home.toft(dir, &["init"]).ok();
    }
    finish(home, repo, &id, "apples.txt", "per: weight\n");
    let before = snapshot(&clone.join(".git/objects"));
    // A reviewer's own clone sees what waits, and the changes, and stays as it is.
    home.toft(&clone, &["status"]).says("1 to review");
    assert!(home.toft(&clone, &["review", &id]).ok().contains("+per: weight"));
    let board = ServedBoard::start(home, &clone, &[]);
    let mut page = Browser::start(home);
    page.open(&board.url);
    page.until("bo finished it");
    page.press("j");
    page.press("Enter");
    page.until("+per: weight");
    assert_eq!(snapshot(&clone.join(".git/objects")), before);
    // What the work is built on may be missing.
    std::fs::write(repo.join("more.txt"), "more\n").unwrap();
    commit_all(home, repo, "more");
    let other = add(home, repo, &["Sell pears"]);
    finish(home, repo, &other, "pears.txt", "per: piece\n");
    let said = home.toft(&behind, &["review", &other]);
    assert!(said.out.contains("built on commits that are not here"), "{said:?}");
    // It is approved there, and lands where it was made.
    home.toft(&clone, &["review", &id, "--approve"]).ok();
    home.toft(repo, &["land", &id]).ok();
    assert_eq!(home.run(repo, "git", &["show", "main:apples.txt"]), "per: weight\n");
}
