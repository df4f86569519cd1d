//! Requests of a client, written down by a proxy and sent again to another server.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::FleetServer;

/// A verb that was sent, and its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// The verb's name.
    pub verb: String,
    /// The secret of the token that sent it.
    pub token: String,
    /// The request.
    pub body: Value,
    /// The status of the answer.
    pub status: u16,
    /// The answer.
    pub answer: Value,
}

/// A proxy that writes down every verb that passes it.
pub struct Recorder {
    /// Its address.
    pub url: String,
    recorded: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Recorder {
    /// Starts before a server.
    pub fn before(server: &FleetServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let (to, all) = (server.url.trim_start_matches("http://").to_owned(), recorded.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (to, all) = (to.clone(), all.clone());
                // A connection that breaks off ends here.
                std::thread::spawn(move || pass(client, &to, &all).ok());
            }
        });
        Self { url, recorded }
    }

    /// What has passed so far.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.recorded.lock().unwrap().clone()
    }
}

/// Passes one request and its answer, and closes the connection.
fn pass(client: TcpStream, to: &str, all: &Mutex<Vec<RecordedRequest>>) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let (head, body) = read_message(&mut client)?;
    let server = TcpStream::connect(to)?;
    let mut server = BufReader::new(server);
    server.get_mut().write_all(&closing(&head, &body))?;
    let (said, answer) = read_message(&mut server)?;
    let first: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
    let path = first.get(1).copied().unwrap_or_default();
    if let Some(verb) = path.strip_prefix("/v1/verbs/") {
        let token = field(&head, "authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
        let status = said.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        all.lock().unwrap().push(RecordedRequest {
            verb: verb.split('?').next().unwrap_or_default().to_owned(),
            token,
            body: serde_json::from_slice(&body).unwrap_or_default(),
            status,
            answer: serde_json::from_slice(&answer).unwrap_or_default(),
        });
    }
    client.get_mut().write_all(&closing(&said, &answer))
}

/// Head and body of a request or an answer.
fn read_message(from: &mut BufReader<TcpStream>) -> io::Result<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let length = field(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((head, body))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The message, as the last one of its connection.
fn closing(head: &str, body: &[u8]) -> Vec<u8> {
    let kept = head.lines().filter(|line| !line.is_empty() && !line.to_ascii_lowercase().starts_with("connection:"));
    let mut message: Vec<u8> = kept.flat_map(|line| [line.as_bytes(), b"\r\n"].concat()).collect();
    message.extend(b"connection: close\r\n\r\n");
    message.extend(body);
    message
}

/// What another server calls the things of a recording.
#[derive(Default)]
pub struct NewNames(BTreeMap<String, Value>);

/// Shorter texts and smaller numbers mean the same at every server.
const SHORTEST_NAME: usize = 6;

impl NewNames {
    /// A recorded value, in the words of the other server.
    pub fn translate(&self, value: &Value) -> Value {
        match value {
            Value::Array(all) => all.iter().map(|value| self.translate(value)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (self.translate_text(name), self.translate(value))).collect()
            }
            Value::String(text) => match self.0.get(text) {
                Some(new) => new.clone(),
                None => self.translate_text(text).into(),
            },
            Value::Number(number) => self.0.get(&number.to_string()).unwrap_or(value).clone(),
            other => other.clone(),
        }
    }

    /// A text, with the names inside it.
    fn translate_text(&self, text: &str) -> String {
        let names = self.0.iter().filter(|(old, _)| old.contains('_') && text.contains(*old));
        names.fold(text.to_owned(), |text, (old, new)| text.replace(old, new.as_str().unwrap_or(old)))
    }

    /// Learns from two answers to the same request; returns what the new one lacks.
    pub fn compare(&mut self, old: &Value, new: &Value, at: &str) -> Vec<String> {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                let mut lacks = Vec::new();
                for (name, value) in old {
                    let at = format!("{at}.{name}");
                    match new.get(name).or_else(|| new.get(&self.translate_text(name))) {
                        Some(new) => lacks.extend(self.compare(value, new, &at)),
                        None => lacks.push(at),
                    }
                }
                lacks
            }
            (Value::Array(old), Value::Array(new)) => {
                old.iter().zip(new).flat_map(|(old, new)| self.compare(old, new, &format!("{at}[]"))).collect()
            }
            (Value::String(text), Value::String(_)) => {
                if text.len() >= SHORTEST_NAME && old != new {
                    self.0.insert(text.clone(), new.clone());
                }
                Vec::new()
            }
            (Value::Number(number), Value::Number(_)) => {
                if number.to_string().len() >= SHORTEST_NAME && old != new {
                    self.0.insert(number.to_string(), new.clone());
                }
                Vec::new()
            }
            (old, new) if std::mem::discriminant(old) == std::mem::discriminant(new) => Vec::new(),
            (old, new) => vec![format!("{at}: {old} became {new}")],
        }
    }
}
