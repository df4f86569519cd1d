//! A server on a Unix socket that plays the part of GitHub's API that pull requests need, for the real `gh`.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// What the server knows; a test changes it.
#[derive(Default)]
pub struct ForgeState {
    /// Pull requests, oldest first; their numbers start with 1.
    pub pulls: Vec<Value>,
    /// Reviews of the last one.
    pub reviews: Vec<Value>,
    /// Comments at its lines.
    pub comments: Vec<Value>,
    /// Checks, each of the commit `head_sha`.
    pub check_runs: Vec<Value>,
    /// What the log of every job says.
    pub log: String,
    /// Every request: method and path.
    pub asked: Vec<String>,
}

/// A running server.
pub struct PlayedForge {
    /// What it knows.
    pub state: Arc<Mutex<ForgeState>>,
}

impl PlayedForge {
    /// Answers on `socket` for a project whose branches are in the repository `bare`.
    pub fn start(socket: &Path, bare: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let state = Arc::new(Mutex::new(ForgeState::default()));
        let (shared, bare) = (state.clone(), bare.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &shared, &bare);
            }
        });
        Self { state }
    }
}

fn answer(mut stream: UnixStream, state: &Mutex<ForgeState>, bare: &PathBuf) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut state = state.lock().unwrap();
    state.asked.push(format!("{method} {path}"));
    let said = reply(&mut state, &method, path.split('?').next().unwrap(), &body, bare);
    let (code, text) = said.unwrap_or_else(|| ("404 Not Found", json!({ "message": "Not Found" }).to_string()));
    let head = format!("HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", text.len());
    let _ = stream.write_all(format!("{head}Connection: close\r\n\r\n{text}").as_bytes());
}

fn reply(
    state: &mut ForgeState,
    method: &str,
    path: &str,
    body: &[u8],
    bare: &PathBuf,
) -> Option<(&'static str, String)> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').skip(3).collect();
    let ok = |value: Value| Some(("200 OK", value.to_string()));
    let shown = |pull: &Value| {
        let mut pull = pull.clone();
        let branch = pull["head"]["ref"].as_str().unwrap().to_owned();
        let tip = Command::new("git").arg("-C").arg(bare).args(["rev-parse", &format!("refs/heads/{branch}")]).output();
        pull["head"]["sha"] = String::from_utf8(tip.unwrap().stdout).unwrap().trim().into();
        pull
    };
    match (method, parts.as_slice()) {
        ("GET", ["pulls"]) => {
            let open = state.pulls.iter().filter(|pull| pull["state"] == "open").map(shown);
            ok(open.collect::<Vec<_>>().into())
        }
        ("POST", ["pulls"]) => {
            let asked: Value = serde_json::from_slice(body).unwrap();
            let number = state.pulls.len() + 1;
            let pull = json!({
                "number": number,
                "html_url": format!("https://github.com/acme/shop/pull/{number}"),
                "state": "open",
                "merged": false,
                "merge_commit_sha": null,
                "title": asked["title"],
                "body": asked["body"],
                "base": { "ref": asked["base"] },
                "head": { "ref": asked["head"] },
            });
            state.pulls.push(pull.clone());
            Some(("201 Created", shown(&pull).to_string()))
        }
        ("GET", ["pulls", number]) => ok(shown(state.pulls.get(number.parse::<usize>().ok()? - 1)?)),
        ("GET", ["pulls", _, "reviews"]) => ok(state.reviews.clone().into()),
        ("GET", ["pulls", _, "comments"]) => ok(state.comments.clone().into()),
        ("GET", ["commits", _, "status"]) => ok(json!({ "state": "pending", "statuses": [] })),
        ("GET", ["commits", sha, "check-runs"]) => {
            let of = |run: &&Value| run["head_sha"] == *sha;
            ok(json!({ "check_runs": state.check_runs.iter().filter(of).collect::<Vec<_>>() }))
        }
        ("GET", ["actions", "jobs", _, "logs"]) => Some(("200 OK", state.log.clone())),
        _ => None,
    }
}
