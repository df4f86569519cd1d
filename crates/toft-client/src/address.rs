//! The address of a server.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Where a server is: `https://HOST[:PORT][/SPACE]`.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerAddress {
    origin: String,
    space: String,
    authority: Option<PathBuf>,
    token: Option<String>,
}

impl ServerAddress {
    /// Reads an address. Only a server on this machine may be asked without encryption: a token would be readable on the way.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.contains('@') || host.contains(char::is_whitespace) {
            return Err("it names no host; a token is not part of the address".to_owned());
        }
        let space = path.trim_matches('/');
        if !space.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
            return Err(format!("`{space}` is no name of a space"));
        }
        match scheme {
            "https" => {}
            "http" if is_loopback(host) => {}
            "http" => return Err("without https, others on the network could read the token".to_owned()),
            _ => return Err("it has to begin with https://".to_owned()),
        }
        Ok(Self { origin: format!("{scheme}://{host}"), space: space.to_owned(), authority: None, token: None })
    }

    /// Trusts the certificates of this file instead of those of the system.
    #[must_use]
    pub fn trusting(mut self, authority: Option<PathBuf>) -> Self {
        self.authority = authority;
        self
    }

    /// Asks with this token instead of one that this user keeps.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// The token to ask with, if not one that this user keeps.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub(crate) fn encrypted(&self) -> bool {
        self.origin.starts_with("https:")
    }

    /// Scheme, host and port.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The space; empty if the token decides.
    pub fn space(&self) -> &str {
        &self.space
    }

    pub(crate) fn authority(&self) -> Option<&Path> {
        self.authority.as_deref()
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Without the token.
impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerAddress({self})")
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.space.is_empty() {
            true => f.write_str(&self.origin),
            false => write!(f, "{}/{}", self.origin, self.space),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_over_the_network_encrypted_only() {
        for good in ["https://fleet.example/team", "http://127.0.0.1:7878", "http://[::1]:7878/a", "http://localhost:1"]
        {
            assert_eq!(ServerAddress::parse(good).unwrap().to_string(), good);
        }
        for bad in [
            "http://fleet.example",
            "http://127.0.0.1.evil.example",
            "ftp://x",
            "https://",
            "https://me:pw@host",
            "https://host/a/b",
            "https://host/a b",
        ] {
            assert!(ServerAddress::parse(bad).is_err(), "{bad}");
        }
    }
}
