//! The address of a store: a PostgreSQL URL with some additional parameters.

use toft_core::store::{Result, StoreError};
use tokio_postgres::config::{Host, SslMode};

/// A hash of a name in sixteen digits: FNV-1a, which is the same in every version of toft.
pub(super) fn digest(name: &str) -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", name.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// The address of a store: servers, schema and space.
#[derive(Clone, Debug)]
pub(super) struct StoreAddress {
    pub(super) server: tokio_postgres::Config,
    pub(super) schema: String,
    pub(super) space: String,
    /// A file of certificates to trust instead of the system's.
    pub(super) roots: Option<String>,
    /// The URL without its password.
    pub(super) shown: String,
}

impl StoreAddress {
    /// Reads `postgres://user@host:port,host:port/database?space=team&schema=toft&sslrootcert=FILE&…`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let shown = without_password(url);
        let wrong = |reason: String| StoreError::Unsuitable { path: shown.clone(), reason };
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut schema, mut space, mut roots, mut theirs) = ("toft".to_owned(), "main".to_owned(), None, Vec::new());
        let mut tls_named = false;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "space" => {
                    space = plain_word(value).ok_or_else(|| wrong(format!("`{value}` is no name for a space")))?;
                }
                "schema" => {
                    schema = plain_word(value).ok_or_else(|| wrong(format!("`{value}` is no name for a schema")))?;
                }
                "sslrootcert" => roots = Some(value.to_owned()),
                "sslmode" => {
                    tls_named = true;
                    // Certificates are always verified, so the stricter words mean no more than this one.
                    let word = if matches!(value, "verify-ca" | "verify-full") { "require" } else { value };
                    theirs.push(format!("sslmode={word}"));
                }
                _ => theirs.push(pair.to_owned()),
            }
        }
        let url = if theirs.is_empty() { front.to_owned() } else { format!("{front}?{}", theirs.join("&")) };
        let mut server: tokio_postgres::Config = url.parse().map_err(|error| wrong(reason(&error)))?;
        if !tls_named {
            // An address, where there is one, is what is connected to, whatever the host is called.
            let near = match server.get_hostaddrs() {
                [] => server.get_hosts().iter().all(is_near),
                addresses => addresses.iter().all(std::net::IpAddr::is_loopback),
            };
            server.ssl_mode(if near { SslMode::Disable } else { SslMode::Require });
        }
        if server.get_hosts().len() > 1 {
            server.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
        }
        if server.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            server.password(password);
        }
        if server.get_application_name().is_none() {
            server.application_name("toft");
        }
        Ok(Self { server, schema, space, roots, shown })
    }
}

/// The space that a URL names.
pub fn named_space(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("space="))
}

/// The URL of another space on the same server.
pub fn in_space(url: &str, space: &str) -> String {
    let (front, query) = url.split_once('?').unwrap_or((url, ""));
    let others = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("space="));
    let pairs: Vec<String> = others.map(str::to_owned).chain([format!("space={space}")]).collect();
    format!("{front}?{}", pairs.join("&"))
}

/// An error with its causes.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) if !error.to_string().contains(&cause.to_string()) => format!("{error}: {}", reason(cause)),
        _ => error.to_string(),
    }
}

fn is_near(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        Host::Unix(_) => true,
    }
}

/// A word that never needs quotes.
fn plain_word(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    (!text.is_empty() && text.len() <= 50 && text.chars().all(fits)).then(|| text.to_owned())
}

/// The URL without secrets, for display and logs.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A password may hold a slash: what comes before the last `@` of the address is who, not where.
    let address = rest.find('?').unwrap_or(rest.len());
    let who = rest[..address].rfind('@').map_or(0, |at| at + 1);
    let end = rest[who..].find(['/', '?']).map_or(rest.len(), |at| who + at);
    let (authority, path) = rest.split_at(end);
    let shown = match authority.rsplit_once('@') {
        Some((user, hosts)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:***@{hosts}"),
            None => authority.to_owned(),
        },
        None => authority.to_owned(),
    };
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let query = query.map(|query| query.split('&').map(without_secret).collect::<Vec<_>>().join("&"));
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{scheme}://{shown}{path}{query}")
}

/// URL parameters whose values are not secret. Others may be a password in some spelling.
const SHOWN: [&str; 14] = [
    "application_name",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "load_balance_hosts",
    "port",
    "schema",
    "space",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
];

fn without_secret(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) if !SHOWN.contains(&name) => format!("{name}=***"),
        _ => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_words_are_taken_out_and_the_rest_is_theirs() {
        let address =
            StoreAddress::parse("postgres://ana:s3cret@db.example:5433,standby/work?space=team-a&schema=t1").unwrap();
        assert_eq!((address.space.as_str(), address.schema.as_str()), ("team-a", "t1"));
        assert_eq!(address.server.get_dbname(), Some("work"));
        assert_eq!(address.server.get_hosts().len(), 2);
        assert_eq!(address.server.get_ssl_mode(), SslMode::Require);
        assert!(!address.shown.contains("s3cret"));
    }

    #[test]
    fn nothing_shown_holds_a_password() {
        for url in [
            "postgres://a:pw@h/db",
            "postgres://a:p/pw@h/db",
            "postgres://h/db?user=a&password=pw",
            "postgres://h/db?password=pw&x=1",
            "postgres://h/db?pass%77ord=pw",
            "postgres://h/db?PASSWORD=pw&sslpassword=pw",
        ] {
            assert!(!without_password(url).contains("pw"), "{url}");
        }
        assert_eq!(without_password("postgres://a@h:1/db?space=x"), "postgres://a@h:1/db?space=x");
    }

    #[test]
    fn only_what_is_on_this_machine_is_spoken_to_in_the_clear() {
        let mode = |url: &str| StoreAddress::parse(url).unwrap().server.get_ssl_mode();
        for near in ["postgres://localhost/d", "postgres://127.0.0.1/d", "postgres://localhost/d?hostaddr=127.0.0.1"] {
            assert_eq!(mode(near), SslMode::Disable, "{near}");
        }
        for far in [
            "postgres://db.example/d",
            "postgres://localhost/d?hostaddr=10.1.2.3",
            "postgres://db.example/d?hostaddr=10.1.2.3",
            "postgres:///d?hostaddr=10.1.2.3",
            "postgres://localhost,db.example/d",
        ] {
            assert_eq!(mode(far), SslMode::Require, "{far}");
        }
    }

    #[test]
    fn a_url_names_one_space() {
        let url = "postgres://h/db?sslmode=require&space=a&schema=t";
        assert_eq!((named_space(url), named_space("postgres://h/db")), (Some("a"), None));
        assert_eq!(in_space(url, "b"), "postgres://h/db?sslmode=require&schema=t&space=b");
        assert_eq!(in_space("postgres://h/db", "b"), "postgres://h/db?space=b");
    }

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        assert!(StoreAddress::parse("postgres://h/db?schema=a;b").is_err());
        assert!(StoreAddress::parse("postgres://h/db?space=").is_err());
    }
}
