//! A browser that a story looks at and clicks in: the system's Chromium, driven by Playwright.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{ChildGuard, Home, toft_bin, tool_dir};

/// A board that is served, until it is dropped.
pub struct ServedBoard {
    child: ChildGuard,
    /// The address that opens it once.
    pub url: String,
}

impl ServedBoard {
    /// Starts `toft board` on a free port.
    pub fn start(home: &Home, repo: &Path, args: &[&str]) -> Self {
        let mut all = vec!["--json", "board"];
        if !args.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        all.extend(args);
        let mut child = home.command(repo, toft_bin(), &all).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("toft board said {line}"));
        Self { child: ChildGuard(child), url: answer["data"]["url"].as_str().unwrap().to_owned() }
    }

    /// The host and port.
    pub fn host(&self) -> String {
        let rest = self.url.trim_start_matches("http://");
        rest.split('/').next().unwrap().to_owned()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// One browser with one page.
pub struct Browser {
    _child: ChildGuard,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts it.
    pub fn start(home: &Home) -> Self {
        let root = crate::stories_dir();
        let tools = tool_dir("browser");
        assert!(tools.join("node_modules").is_dir(), "{}: .ci/run installs it", tools.display());
        let mut child = Command::new("node")
            .arg(root.join("browser/driver.mjs"))
            .arg(&tools)
            .env("HOME", home.path().join("home"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: ChildGuard(child), input, output: BufReader::new(output) }
    }

    /// Asks the driver, and returns what it answers; an error is text.
    pub fn try_ask(&mut self, request: &Value) -> Result<Value, String> {
        writeln!(self.input, "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("the driver said {line}"));
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_owned()),
            None => Ok(answer["value"].take()),
        }
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.try_ask(request).unwrap_or_else(|error| panic!("{request}: {error}"))
    }

    /// Opens an address; returns the status.
    pub fn open(&mut self, url: &str) -> u64 {
        self.ask(&json!({ "request": "open", "url": url })).as_u64().unwrap()
    }

    /// Goes on as a device of another size, light or dark, with an empty page.
    pub fn device(&mut self, (width, height): (u32, u32), scheme: &str) {
        self.ask(&json!({ "request": "device", "width": width, "height": height, "scheme": scheme }));
    }

    /// Waits until the page has a text; returns the milliseconds that it took.
    pub fn until(&mut self, wanted: &str) -> u64 {
        self.ask(&json!({ "request": "until", "wanted": wanted, "there": true })).as_u64().unwrap()
    }

    /// Waits until the page has a text no more.
    pub fn until_gone(&mut self, wanted: &str) {
        self.ask(&json!({ "request": "until", "wanted": wanted, "there": false }));
    }

    /// All text of the page.
    pub fn text(&mut self) -> String {
        self.ask(&json!({ "request": "text" })).as_str().unwrap().to_owned()
    }

    /// Clicks a button.
    pub fn click(&mut self, name: &str) {
        self.ask(&json!({ "request": "click", "role": "button", "name": name }));
    }

    /// Clicks something of a role and a name, within an element.
    pub fn click_in(&mut self, within: &str, role: &str, name: &str) {
        self.ask(&json!({ "request": "click", "role": role, "name": name, "within": within }));
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        self.ask(&json!({ "request": "press", "key": key }));
    }

    /// Types a text.
    pub fn enter(&mut self, text: &str) {
        self.ask(&json!({ "request": "type", "text": text }));
    }

    /// The value of a script in the page.
    pub fn evaluate(&mut self, script: &str) -> Value {
        self.ask(&json!({ "request": "evaluate", "script": script }))
    }

    /// Waits until the command of a button of the board has ended; returns what it said.
    pub fn said(&mut self) -> String {
        let said = "new Promise((done) => { const look = setInterval(() => { const said = document.querySelector('#said'); \
                    if (said.className === 'running') return; clearInterval(look); done(said.textContent); }, 20); })";
        self.evaluate(said).as_str().unwrap().to_owned()
    }

    /// Takes a picture.
    pub fn screenshot(&mut self, path: &Path) {
        self.ask(&json!({ "request": "screenshot", "path": path }));
    }

    /// What axe finds wrong for people who cannot see, or not well.
    pub fn accessibility(&mut self) -> Vec<String> {
        serde_json::from_value(self.ask(&json!({ "request": "axe" }))).unwrap()
    }

    /// Bytes of the page's heap, without what is unused.
    pub fn heap(&mut self) -> u64 {
        self.ask(&json!({ "request": "heap" })).as_u64().unwrap()
    }

    /// Errors that the page wrote to its console since.
    pub fn errors(&mut self) -> Vec<String> {
        serde_json::from_value(self.ask(&json!({ "request": "errors" }))).unwrap()
    }
}
