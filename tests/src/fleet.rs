//! A toft server of a story.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{ChildGuard, Home, toft_bin};

/// A port of this machine that was free just now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A running `toft serve`.
pub struct FleetServer {
    /// Its address.
    pub url: String,
    store: String,
    child: ChildGuard,
}

impl FleetServer {
    /// Serves a store on a free port of this machine.
    pub fn start(home: &Home, store: &str, args: &[&str]) -> Self {
        Self::listen(home, store, "127.0.0.1:0", args)
    }

    /// Serves a store at an address.
    pub fn listen(home: &Home, store: &str, address: &str, args: &[&str]) -> Self {
        let mut all = vec!["serve", "-q", "--listen", address, "--connections", "4"];
        all.extend(args);
        let mut command = home.command(Path::new("/"), toft_bin(), &all);
        // It belongs to no story's agents.
        command.env_remove("TOFT_STORY").env_remove("TOFT_TOKEN").env("TOFT_STORE", store).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http"), "the server did not start: {url}");
        Self { url: url.trim().to_owned(), store: store.to_owned(), child: ChildGuard(child) }
    }

    /// A new token, made where the store is.
    pub fn token(&self, home: &Home, name: &str, role: &str) -> String {
        let args = ["token", "create", name, "--role", role, "-q"];
        let env = [("TOFT_STORE", self.store.as_str()), ("TOFT_TOKEN", "")];
        home.toft_with(Path::new("/"), &env, &args).ok().trim().to_owned()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended; returns whether it has.
    pub fn wait(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Kills it, as a power cut does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// One connection to a server, without encryption.
pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Connects.
    pub fn to(server: &FleetServer) -> Self {
        Self::connect(server.url.trim_start_matches("http://"), None).unwrap()
    }

    /// Connects, and waits for this long for a connection and for each answer.
    pub fn connect(address: &str, patience: Option<Duration>) -> io::Result<Self> {
        let stream = match patience {
            Some(patience) => TcpStream::connect_timeout(&address.parse().map_err(io::Error::other)?, patience)?,
            None => TcpStream::connect(address)?,
        };
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(patience)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a verb; returns the status and the answer.
    pub fn verb(&mut self, token: &str, name: &str, body: &Value) -> (u16, Value) {
        self.send("POST", &format!("/v1/verbs/{name}"), token, &body.to_string())
    }

    /// Sends a request; returns the status and the answer, or 0 if the server closed the connection instead.
    pub fn send(&mut self, method: &str, path: &str, token: &str, body: &str) -> (u16, Value) {
        match self.try_send(method, path, token, body) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => (0, Value::Null),
            answered => answered.unwrap(),
        }
    }

    /// Sends a request over a connection that may break; then it is of no more use.
    pub fn try_send(&mut self, method: &str, path: &str, token: &str, body: &str) -> io::Result<(u16, Value)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut length) = (String::new(), 0);
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }
}
