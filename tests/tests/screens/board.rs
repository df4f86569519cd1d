//! `toft board` in a real browser: a person watches agents, and does everything there.

#![cfg(unix)]

use std::net::TcpStream;

use toft_stories::browser::{Browser, ServedBoard};
use toft_stories::fleet::free_port;
use toft_stories::issues::finish;
use toft_stories::night::{Night, pictures};
use toft_stories::prelude::*;

#[test]
#[ignore = "wide: a browser"]
fn an_evening_is_played_in_the_browser_alone() {
    let yard = Yard::new("[land]\nreview = \"human\"\n");
    let (home, repo) = (&yard.home, &yard.repo);
    let apples = add(home, repo, &["Sell apples"]);
    add(home, repo, &["Bake bread", "--needs", &apples]);
    home.toft(repo, &["--as", "bo", "claim", &apples]).ok();
    let board = ServedBoard::start(home, repo, &[]);
    let mut page = Browser::start(home);
    assert_eq!(page.open(&board.url), 200);
    page.until("Nothing needs you.");

    // A question.
    let ask = |question: &str, more: &[&str]| {
        let mut all = vec!["--as", "bo", "finish", &apples, "waiting", "-m", question];
        all.extend(more);
        home.toft(repo, &all).ok();
    };
    ask("By weight or by piece?", &["--choice", "by weight", "--choice=-by piece"]);
    page.until("By weight or by piece?");
    page.click("-by piece");
    page.until("-- '-by piece'");
    page.click_in("#ask", "button", "-by piece");
    page.until("Nothing needs you.");
    home.toft(repo, &["--as", "bo", "claim", &apples]).ok();
    ask("Is that fair?", &[]);
    page.until("Is that fair?");
    page.click("answer");
    page.until("toft answer gt_");
    page.enter("by weight, it's fair");
    page.press("Enter");
    page.until("Nothing needs you.");
    home.toft(repo, &["history"]).says_all(&["by weight, it's fair", "-by piece"]);

    // Finished work is looked at, and goes back with a comment on a line.
    finish(home, repo, &apples, "apples.txt", "price: 1\nper: piece\n");
    page.until("bo finished it; approve it");
    page.until("sold by the piece");
    page.press("j");
    page.press("Enter");
    page.until("+per: piece");
    page.click("Comment on apples.txt:2");
    page.until("Comment: apples.txt:2");
    page.enter("per weight");
    page.press("Enter");
    page.until("Not sent yet");
    // Also from a list, where the lines are not seen.
    page.press("1");
    page.until("bo finished it");
    page.click("return");
    page.until("What has to change");
    page.until("apples.txt:2: per weight");
    page.enter("see the line");
    page.press("Enter");
    page.until("Nothing needs you.");
    page.said();
    page.evaluate("history.back()");
    page.until("sent it back");
    page.until_gone("Not sent yet");

    // The agent takes it up.
    let claimed = finish(home, repo, &apples, "apples.txt", "price: 1\nper: weight\n");
    assert!(claimed.contains("apples.txt:2: per weight") && claimed.contains("see the line"), "{claimed}");
    page.until("+per: weight");
    page.until("waits for review");

    // It is approved, and lands after a preview.
    // A verdict is on the commit that was seen.
    home.toft(repo, &["review", &apples, "--approve", "--commit", "0123456789ab"]).fails(5);
    page.click_in("#list-issue", "button", "approve");
    page.until("--approve --commit");
    page.click_in("#ask", "button", "approve");
    page.until("ready to land");
    page.click_in("nav", "link", "Queue");
    page.click_in("#list-queue", "button", "land");
    page.until("No check is configured");
    page.click_in("#ask", "button", "land");
    page.until("landed as");
    page.said();
    assert_eq!(yard.git(&["show", "main:apples.txt"]), "price: 1\nper: weight");
    assert_eq!(yard.status(&apples), "closed");

    // What was added by mistake is undone, after a preview.
    page.press("n");
    page.until("Title of the new issue");
    page.enter("A mistake");
    page.press("Enter");
    page.click_in("nav", "link", "Graph");
    page.until("A mistake");
    page.press("u");
    page.until("toft undo --last");
    page.click_in("#ask", "button", "undo");
    page.until_gone("A mistake");

    // What landed is taken back, and its issue is to be done again.
    page.click_in("nav", "link", "Queue");
    page.click_in("#list-landed", "button", "revert");
    page.click_in("#ask", "button", "revert");
    page.until("landed, and taken back");
    page.said();
    page.click_in("nav", "link", "Board");
    page.until("landed, and taken back");
    page.click("reopen");
    page.click_in("#ask", "button", "reopen");
    page.until_gone("landed, and taken back");
    assert_eq!(yard.status(&apples), "open");

    // All of it is in the history.
    page.click_in("nav", "link", "History");
    page.until("took back");
    page.until("added");
    assert_eq!(page.errors(), Vec::<String>::new());
}

/// Sends a request, and returns what came back.
fn request(host: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
#[ignore = "wide: a browser"]
fn only_the_browser_that_opened_the_address_gets_in() {
    let (home, repo) = Home::with_repository("shop");
    let id = add(&home, &repo, &["Sell apples"]);
    home.toft(&repo, &["board", "--listen", "0.0.0.0:0"]).fails(2);
    home.toft(&repo, &["board", "--url", "http://box.example"]).fails(2);
    let board = ServedBoard::start(&home, &repo, &[]);
    let host = board.host();
    let get = |path: &str, headers: &str| {
        request(&host, &format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"))
    };
    let own = format!("Host: {host}\r\n");
    // The page itself has nothing in it, and nobody gets more without the address that was printed.
    for path in ["/changes?screen=board&epoch=&since=0", "/text?kind=log&id=x&from=0&width=80", "/stream"] {
        assert_eq!(status(&get(path, &own)), "401", "{path}");
    }
    assert_eq!(status(&get("/nothing", &own)), "404");
    let page = get("/", &own);
    assert!(status(&page) == "200" && !page.contains("shop") && !page.contains("apples"), "{page}");
    // A page of another name that leads here by DNS is told apart, and so is one that names two.
    assert_eq!(status(&get("/", "Host: evil.example\r\n")), "421");
    assert_eq!(status(&get("/", &format!("Host: {host}.evil.example\r\n"))), "421");
    assert_eq!(status(&get("/", &format!("{own}Host: evil.example\r\n"))), "421");
    let secret = board.url.split('#').nth(1).unwrap();
    let here = format!("Origin: http://{host}\r\n");
    let open = |origin: &str, secret: &str| {
        let length = secret.len();
        let rest = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{secret}");
        request(&host, &format!("POST /open HTTP/1.1\r\n{own}{origin}{rest}"))
    };
    for origin in ["", "Origin: null\r\n", "Origin: http://evil.example\r\n"] {
        assert_eq!(status(&open(origin, secret)), "403", "{origin}");
    }
    assert_eq!(status(&open(&here, "x")), "401");
    let opened = open(&here, secret);
    assert_eq!(status(&opened), "200", "{opened}");
    assert!(!opened.contains("set-cookie"), "a cookie would go to other ports: {opened}");
    assert_eq!(status(&open(&here, secret)), "401", "the address opens once");
    let session = format!("Authorization: Bearer {}\r\n", opened.lines().last().unwrap());
    assert_eq!(status(&get("/changes?screen=board&epoch=&since=0", &format!("{own}{session}"))), "200");
    let policy = page.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(page.contains(&format!("nonce=\"{nonce}\"")));
    assert!(!get("/", &own).contains(nonce), "a nonce counts once");
    assert!(page.contains("x-content-type-options: nosniff") && page.contains("referrer-policy: no-referrer"));
    // Numbers that no event has are answered at once.
    let far = get("/changes?screen=history&before=18446744073709551615&epoch=&since=0", &format!("{own}{session}"));
    assert!(status(&far) == "200" && far.contains("added"), "{far}");

    // A write needs the board's own page, and an action that it showed.
    let body = |line: &str, action: &str, item: &str| {
        format!(r#"{{"place":{{"screen":"board"}},"item":{item},"action":"{action}","line":"{line}","said":"x"}}"#)
    };
    let post = |origin: &str, body: &str| {
        let length = body.len();
        let rest =
            format!("Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        request(&host, &format!("POST /action HTTP/1.1\r\n{own}{session}{origin}{rest}"))
    };
    let new = body("toft add …", "n", "null");
    for origin in ["", "Origin: null\r\n", "Origin: http://evil.example\r\n", "Origin: http://localhost:1\r\n"] {
        assert_eq!(status(&post(origin, &new)), "403", "{origin}");
    }
    let stranger = format!("POST /action HTTP/1.1\r\n{own}{here}Content-Length: 0\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&request(&host, &stranger)), "401");
    for (line, action, item) in [
        ("toft delete x", "n", "null".to_owned()),
        ("toft undo --last x; rm", "u", "null".to_owned()),
        ("toft run", "x", "null".to_owned()),
        ("toft stop x", "s", format!("\" {id}\"")),
        ("toft tell x", "t", "\"nothing\"".to_owned()),
    ] {
        assert_eq!(status(&post(&here, &body(line, action, &item))), "409", "{line}");
    }
    // Comments change nothing about that.
    let commented = format!(
        r#"{{"place":{{"screen":"issue","id":"{id}"}},"item":"x","action":"a","line":"rm","comments":[["a:1","x"]]}}"#
    );
    assert_eq!(status(&post(&here, &commented)), "409");
    assert_eq!(status(&post(&here, &new)), "200");
    assert_eq!(home.toft(&repo, &["list", "--json"]).ok().matches("\"title\"").count(), 2);
    // A form of another site cannot even be read.
    let form = post(&here.replace("Origin", "X-Origin"), "item=1");
    assert_eq!(status(&form), "403");
}

#[test]
#[ignore = "wide: a browser"]
fn what_agents_write_is_only_text() {
    let (home, repo) = Home::with_repository("shop");
    let hostile = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2> \u{202e}evil\u{1b}[31m";
    let id = add(&home, &repo, &[hostile, "-l", "<b>x", "-d", "<iframe srcdoc='<script>top.hacked=3</script>'>"]);
    home.toft(&repo, &["--as", "<i>bo</i>", "claim", &id]).fails(2);
    home.toft(&repo, &["--as", "bo", "claim", &id, "--ws"]).ok();
    let workspace = home.toft(&repo, &["--as", "bo", "ws", "path", &id]).ok();
    let workspace = Path::new(workspace.trim());
    fs::write(workspace.join("<img src=x onerror=hacked=4>.txt"), format!("{hostile}\n")).unwrap();
    fs::write(workspace.join("long.txt"), "x".repeat(50 << 20)).unwrap();
    home.run(workspace, "git", &["add", "-A"]);
    home.toft(&repo, &["--as", "bo", "save", &id, "-m", hostile]).ok();
    home.toft(&repo, &["--as", "bo", "finish", &id, "waiting", "-m", hostile]).ok();
    let board = ServedBoard::start(&home, &repo, &[]);
    let mut page = Browser::start(&home);
    page.open(&board.url);
    page.until("<script>");
    for screen in ["Needs you", "Agents", "Board", "Queue", "Graph", "History", "Machines"] {
        let key = ["Needs you", "Agents", "Board", "Queue", "Graph", "History", "Machines"]
            .iter()
            .position(|name| *name == screen);
        page.press(&(key.unwrap() + 1).to_string());
        if !["Queue", "Machines"].contains(&screen) {
            page.until("<script>");
        }
    }
    let origin = board.url.split("/#").next().unwrap();
    page.open(&format!("{origin}/issue?id={id}"));
    page.until("<iframe srcdoc=");
    page.until("+</script>");
    page.press("?");
    page.until("these keys");
    page.press("Escape");
    assert_eq!(page.evaluate("typeof window.hacked"), "undefined");
    let elements = "document.querySelectorAll('iframe, img, #main script').length";
    assert_eq!(page.evaluate(elements), 0);
    let text = page.text();
    assert!(
        !text.contains('\u{202e}') && !text.contains('\u{1b}'),
        "direction and control characters are shown, not obeyed"
    );
    assert_eq!(page.errors(), Vec::<String>::new());
}

const WIDTHS: [(u32, u32); 3] = [(390, 844), (1024, 768), (1920, 1080)];

/// Takes a picture of what is seen now; returns what some people cannot read, or what does not fit.
fn look(page: &mut Browser, name: &str) -> Vec<String> {
    page.screenshot(&pictures().join(format!("{name}.png")));
    let mut wrong: Vec<String> = page.accessibility().into_iter().map(|found| format!("{name}: {found}")).collect();
    let over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    if over.as_f64().unwrap() > 0.0 {
        wrong.push(format!("{name}: {over} pixels too wide"));
    }
    wrong
}

/// Looks at every screen in every width, light and dark; returns what is wrong.
fn look_at_every_screen(page: &mut Browser, origin: &str, issues: &[&str], name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut paths: Vec<(String, String)> = ["needs-you", "agents", "board", "queue", "graph", "history", "machines"]
        .iter()
        .map(|screen| ((*screen).to_owned(), format!("/?screen={screen}")))
        .collect();
    paths.extend(issues.iter().enumerate().map(|(n, id)| (format!("issue-{n}"), format!("/issue?id={id}"))));
    for scheme in ["light", "dark"] {
        for size in WIDTHS {
            page.device(size, scheme);
            for (label, path) in &paths {
                page.open(&format!("{origin}{path}"));
                page.evaluate(
                    "new Promise((done) => { const look = setInterval(() => { \
                     if (!document.querySelector('#main .list')) return; clearInterval(look); done(true); }, 20); })",
                );
                // The lines of a diff come after the page.
                page.evaluate(
                    "new Promise((done) => { const look = setInterval(() => { \
                     if (![...document.querySelectorAll('board-text')].every((text) => text.version)) return; \
                     clearInterval(look); done(true); }, 20); })",
                );
                wrong.extend(look(page, &format!("{name}-{label}-{}-{scheme}", size.0)));
            }
        }
    }
    wrong.extend(page.errors());
    wrong
}

#[test]
#[ignore = "wide: a browser"]
fn every_screen_can_be_read_by_everyone_at_every_width() {
    let (home, repo) = Home::with_repository("shop");
    let board = ServedBoard::start(&home, &repo, &[]);
    let mut page = Browser::start(&home);
    page.open(&board.url);
    let origin = board.url.split("/#").next().unwrap().to_owned();
    let mut wrong = look_at_every_screen(&mut page, &origin, &[], "empty");
    drop(board);
    page.device(WIDTHS[0], "light");
    page.errors();
    let night = Night::new(60, 12);
    let board = ServedBoard::start(&night.home, &night.repo, &[]);
    let origin = board.url.split("/#").next().unwrap().to_owned();
    page.open(&board.url);
    page.until("Round prices up");
    let (_, working) = &night.at_work[0];
    wrong.extend(look_at_every_screen(&mut page, &origin, &[&night.reviewed, working], "busy"));
    page.open(&format!("{origin}/issue?id=sh-9999"));
    page.until("sh-9999");
    wrong.extend(look(&mut page, "broken-issue"));
    page.errors();
    // The board is gone: what was shown stays, and the page says so.
    for scheme in ["light", "dark"] {
        for size in WIDTHS {
            let board = ServedBoard::start(&night.home, &night.repo, &[]);
            page.device(size, scheme);
            page.open(&board.url);
            page.until("Round prices up");
            drop(board);
            page.until("Not up to date");
            page.until("Round prices up");
            wrong.extend(look(&mut page, &format!("broken-needs-you-{}-{scheme}", size.0)));
            page.press("3");
            page.until("Not up to date");
            wrong.extend(look(&mut page, &format!("broken-board-{}-{scheme}", size.0)));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
#[ignore = "wide: a browser"]
fn a_store_that_cannot_be_reached_is_said_and_comes_back() {
    let mut home = Home::new();
    let store = home.path().join("far.db").display().to_string();
    let address = format!("127.0.0.1:{}", free_port());
    let mut server = FleetServer::listen(&home, &store, &address, &[]);
    let token = server.token(&home, "ana", "admin");
    home.set("TOFT_STORE", &server.url);
    home.set("TOFT_TOKEN", &token);
    let repo = home.repo("shop");
    add(&home, &repo, &["Sell apples"]);
    let board = ServedBoard::start(&home, &repo, &[]);
    let mut page = Browser::start(&home);
    page.open(&board.url);
    page.until("Nothing needs you.");
    page.press("3");
    page.until("Sell apples");
    server.kill();
    page.until("Not up to date");
    page.until("Sell apples");
    let wrong = look(&mut page, "broken-store");
    let server = FleetServer::listen(&home, &store, &address, &[]);
    page.until_gone("Not up to date");
    add(&home, &repo, &["Sell pears"]);
    page.until("Sell pears");
    drop(server);
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
#[ignore = "wide: a browser"]
fn what_others_do_is_seen_at_once_in_every_tab() {
    let (home, repo) = Home::with_repository("shop");
    let board = ServedBoard::start(&home, &repo, &[]);
    let mut page = Browser::start(&home);
    page.open(&board.url);
    page.until("Nothing needs you.");
    page.press("3");
    page.until("planned");
    let begun = Instant::now();
    let id = add(&home, &repo, &["Sell apples"]);
    page.until("Sell apples");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    home.toft(&repo, &["--as", "bo", "claim", &id]).ok();
    page.until("bo");
    // Only what changed is put in place: the other card is the same element.
    page.evaluate("document.querySelector('#main li[data-key]').mark = 1");
    add(&home, &repo, &["Sell pears"]);
    page.until("Sell pears");
    assert_eq!(
        page.evaluate("[...document.querySelectorAll('#main li[data-key]')].filter((row) => row.mark).length"),
        1
    );
    // A question is about the page that it was asked on.
    page.press("2");
    page.until("at work");
    // A key without a chosen row chooses the first that has it.
    page.press("t");
    assert!(page.evaluate("document.activeElement.innerText").as_str().unwrap().contains("Sell apples"));
    page.press("t");
    page.until("Tell the agent");
    page.press("Escape");
    page.press("n");
    page.until("Title of the new issue");
    page.evaluate("history.back()");
    page.until_gone("Title of the new issue");
    page.until("planned");
    // A second tab listens through the first.
    page.evaluate("void window.open('/?screen=board')");
    let streams = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/stream')).length";
    assert!(page.evaluate(streams).as_u64().unwrap() <= 1);
    // What is typed in a filter hides the rest, until Esc.
    page.press("/");
    page.enter("pears");
    page.until_gone("Sell apples");
    page.press("Enter");
    page.press("Escape");
    page.until("Sell apples");
    // What was typed and refused is there again.
    page.press("n");
    page.until("Title of the new issue");
    page.enter("-");
    page.press("Enter");
    page.until("a title has a letter");
    page.press("n");
    page.until("Title of the new issue");
    assert_eq!(page.evaluate("document.querySelector('#ask-said').value"), "-");
    page.press("Escape");
    let errors: Vec<String> = page.errors().into_iter().filter(|error| !error.contains("409")).collect();
    assert_eq!(errors, Vec::<String>::new());

    // The board ends, and is opened anew in another tab: this one goes on.
    let host = board.host();
    drop(board);
    page.until("Not up to date");
    let board = ServedBoard::start(&home, &repo, &["--listen", &host]);
    page.evaluate(&format!("void window.open('{}')", board.url));
    page.until_gone("Not up to date");
    add(&home, &repo, &["Sell plums"]);
    page.until("Sell plums");
}
