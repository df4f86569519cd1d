//! The network of an agent that may reach some hosts only: a proxy for HTTP outside, and its way in.
//!
//! Inside there is no network but loopback. [`forward`] listens there and passes every connection to a Unix socket of the
//! attempt; [`pass_on`] answers that socket outside, and connects to hosts of its list only.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, ToSocketAddrs as _},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use super::socket::{Connection, SocketAddress};

/// The head of a request is at most this long.
const LONGEST: u64 = 64 << 10;
/// How long it waits for a host.
const PATIENCE: Duration = Duration::from_secs(20);

/// The variables that tell programs about a proxy.
const VARIABLES: [&str; 6] = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// Answers one connection.
pub(super) fn pass_on(stream: UnixStream, hosts: &[String], connection: &Connection<'_>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut from = BufReader::new(stream.try_clone()?);
    let mut limited = from.by_ref().take(LONGEST);
    let mut first = String::new();
    limited.read_line(&mut first)?;
    let mut fields = Vec::new();
    loop {
        let mut field = String::new();
        if limited.read_line(&mut field)? == 0 || field.trim().is_empty() {
            break;
        }
        fields.push(field);
    }
    let mut to = stream;
    to.set_read_timeout(None)?;
    let Some(request) = Request::read(&first) else {
        return to.write_all(answer("400 Bad Request", "this is a proxy for HTTP").as_bytes());
    };
    if !allowed(&request.host, hosts) {
        let said = format!("this agent may not reach {}; toft run --allow-host HOST allows it", request.host);
        return to.write_all(answer("403 Forbidden", &said).as_bytes());
    }
    let mut outside = match connect(&request.host, request.port) {
        Ok(outside) => outside,
        Err(error) => {
            return to.write_all(answer("502 Bad Gateway", &format!("{}: {error}", request.host)).as_bytes());
        }
    };
    let closing = outside.try_clone()?;
    connection.all.close_with(connection.number, move || drop(closing.shutdown(Shutdown::Both)));
    match &request.line {
        None => to.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
        Some(line) => outside.write_all(request.head(line, &fields).as_bytes())?,
    }
    let mut back = outside.try_clone()?;
    let returning = thread::Builder::new().spawn(move || {
        // One side closed it; the other learns it.
        let _ = io::copy(&mut back, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    })?;
    // The same for the other direction.
    let _ = io::copy(&mut from, &mut outside);
    let _ = outside.shutdown(Shutdown::Write);
    let _ = returning.join();
    Ok(())
}

/// An answer of the proxy's own.
fn answer(status: &str, said: &str) -> String {
    let body = format!("toft: {said}\n");
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// A request to a proxy.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    host: String,
    port: u16,
    /// The first line for the host; nothing if a connection is asked for.
    line: Option<String>,
}

impl Request {
    /// The head that the host gets. It names that host and no other; one connection is for one host, so another request
    /// comes on another one.
    fn head(&self, line: &str, fields: &[String]) -> String {
        const OWN: [&str; 4] = ["host", "connection", "proxy-connection", "keep-alive"];
        let name = |field: &str| field.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
        let kept = fields.iter().filter(|field| !OWN.contains(&name(field).as_str()));
        let kept: String = kept.map(|field| format!("{}\r\n", field.trim_end())).collect();
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{line}\r\nHost: {host}:{}\r\n{kept}Connection: close\r\n\r\n", self.port)
    }

    /// From its first line.
    fn read(first: &str) -> Option<Self> {
        let mut words = first.split_ascii_whitespace();
        let (method, address, version) = (words.next()?, words.next()?, words.next()?);
        if method == "CONNECT" {
            let (host, port) = address.rsplit_once(':')?;
            return Some(Self { host: bare(host), port: port.parse().ok()?, line: None });
        }
        let rest = address.strip_prefix("http://")?;
        let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, 80),
        };
        Some(Self { host: bare(host), port, line: Some(format!("{method} {path} {version}")) })
    }
}

/// A host as it is compared.
fn bare(host: &str) -> String {
    host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

/// Whether a text can be in the list of hosts: a name, an address, or `*.` and a name.
pub fn is_host(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    bare(name).parse::<std::net::IpAddr>().is_ok() || !name.is_empty() && name.chars().all(plain)
}

/// Whether a host is in the list: by its name, or below a name that begins with `*.`.
fn allowed(host: &str, hosts: &[String]) -> bool {
    hosts.iter().map(|known| bare(known)).any(|known| match known.strip_prefix("*.") {
        Some(above) => host.strip_suffix(above).is_some_and(|below| below.ends_with('.') && below.len() > 1),
        None => host == known,
    })
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Listens on loopback inside, passes on what comes to the socket of the proxy, and returns the variables that say so.
pub fn forward(proxy: SocketAddress) -> io::Result<Vec<(String, String)>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let proxy = proxy.clone();
            thread::spawn(move || {
                // What cannot be passed on ends.
                let _ = join(stream, &proxy);
            });
        }
    });
    let address = format!("http://127.0.0.1:{port}");
    let mut variables: Vec<_> = VARIABLES.map(|name| (name.to_owned(), address.clone())).into();
    // Not even loopback is there without it.
    variables.extend(["no_proxy", "NO_PROXY"].map(|name| (name.to_owned(), String::new())));
    Ok(variables)
}

fn join(mut inside: TcpStream, proxy: &SocketAddress) -> io::Result<()> {
    let mut outside = proxy.connect()?;
    let (mut from, mut to) = (outside.try_clone()?, inside.try_clone()?);
    let returning = thread::spawn(move || {
        // One side closed it; the other learns it.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    io::copy(&mut inside, &mut outside)?;
    let _ = outside.shutdown(Shutdown::Write);
    let _ = returning.join();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_host() {
        let connect = Request::read("CONNECT API.example.com.:443 HTTP/1.1\r\n").unwrap();
        assert_eq!(connect, Request { host: "api.example.com".into(), port: 443, line: None });
        let plain = Request::read("POST http://a.b:8080/x?y=1 HTTP/1.1\r\n").unwrap();
        assert_eq!(plain, Request { host: "a.b".into(), port: 8080, line: Some("POST /x?y=1 HTTP/1.1".into()) });
        let whole = plain.head("POST /x?y=1 HTTP/1.1", &["Host: evil.org\r\n".into(), "X-A: connection: b\r\n".into()]);
        assert_eq!(whole, "POST /x?y=1 HTTP/1.1\r\nHost: a.b:8080\r\nX-A: connection: b\r\nConnection: close\r\n\r\n");
        assert_eq!(Request::read("GET http://a.b?q HTTP/1.1\r\n").unwrap().line.unwrap(), "GET /?q HTTP/1.1");
        let hidden = Request::read("GET http://good.org@evil.org/ HTTP/1.1\r\n").unwrap();
        assert_eq!((hidden.host.as_str(), hidden.port), ("evil.org", 80));
        let six = Request::read("CONNECT [::1]:443 HTTP/1.1\r\n").unwrap();
        assert_eq!(six.host, "::1");
        for wrong in ["", "GET / HTTP/1.1\r\n", "CONNECT a HTTP/1.1\r\n", "CONNECT a:70000 HTTP/1.1\r\n"] {
            assert_eq!(Request::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        assert!(["a.b", "*.a.b", "10.0.0.1", "::1", "[::1]", "localhost"].into_iter().all(is_host));
        assert!(!["", "*", "https://a.b/", "a.b:443", "a b", "*.", "a/b"].into_iter().any(is_host));
    }

    #[test]
    fn only_hosts_of_the_list_are_reached() {
        let hosts = ["api.example.com".to_owned(), "*.Example.org".to_owned()];
        for good in ["api.example.com", "a.example.org", "b.a.example.org"] {
            assert!(allowed(good, &hosts), "{good}");
        }
        for bad in ["example.com", "example.org", "evilexample.org", "api.example.com.evil.org", "127.0.0.1", ""] {
            assert!(!allowed(bad, &hosts), "{bad}");
        }
    }
}
