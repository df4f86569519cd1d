//! Tokens of this user, by server. A token goes to the server that it is kept for, and to no other.

use std::{collections::BTreeMap, fs, path::PathBuf, thread, time::Duration};

use serde::{Deserialize, Serialize};
use toft_client::{DeviceLogin, RemoteStore, ServerAddress};
use toft_core::{
    refusal::VerbError,
    repository::Place,
    token::TOKEN_PREFIX,
    verbs::{Caller, Policy, VerbRun, token::Join},
    wire::SentToken,
};
use toft_store::private;

use crate::{
    config::{config_home, variable},
    distant,
    error::{Error, io},
    holds::write_private,
    machine::Machine,
    session::random_ids,
};

pub use toft_client::on_wait;

/// A token that is kept, and whose it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptToken {
    name: String,
    token: String,
}

/// The address that a text names. `TOFT_CA` names a file with the certificates to trust.
pub(crate) fn address(text: &str) -> Result<ServerAddress, Error> {
    let parsed = ServerAddress::parse(text.trim().trim_end_matches('/'));
    let wrong = |problem: String| Error::Config { path: "store".into(), problem: format!("{text}: {problem}") };
    Ok(parsed.map_err(wrong)?.trusting(variable("TOFT_CA").map(PathBuf::from)))
}

/// The token for a server: that of the address, else `TOFT_TOKEN` if `TOFT_STORE` names that server, else the one that was kept.
pub(crate) fn of(server: &ServerAddress) -> Result<Option<String>, Error> {
    if let Some(token) = server.token() {
        return Ok(Some(token.to_owned()));
    }
    let named = variable("TOFT_STORE").and_then(|text| address(&text).ok());
    if let Some(token) = variable("TOFT_TOKEN").filter(|_| named.as_ref() == Some(server)) {
        return Ok(Some(token.trim().to_owned()));
    }
    Ok(kept_for(server)?.map(|kept| kept.token))
}

/// The name under which this user acts on a server.
pub(crate) fn name_on(server: &ServerAddress) -> Option<String> {
    // A file that cannot be read is an error when the token is needed.
    kept_for(server).ok().flatten().map(|kept| kept.name)
}

/// Asks a server whose a token is, and keeps it.
pub fn login(server: &str, token: &str) -> Result<(SentToken, PathBuf), Error> {
    let known = known_token(server, token)?;
    let path = keep(&address(server)?, &known.name, token)?;
    Ok((known, path))
}

/// Asks a server whose a token is.
pub fn known_token(server: &str, token: &str) -> Result<SentToken, Error> {
    Ok(RemoteStore::new(address(server)?, token.to_owned())?.own_token()?)
}

/// A person who logs in with the identity provider of a server, and gets a token.
pub struct ProviderLogin {
    server: ServerAddress,
    remote: RemoteStore,
    login: DeviceLogin,
    secret: String,
    digest: String,
}

impl ProviderLogin {
    /// Begins; the person opens the address next.
    pub fn begin(server: &str) -> Result<Self, Error> {
        let server = address(server)?;
        let (remote, (secret, digest)) = (RemoteStore::new(server.clone(), String::new())?, new_secret()?);
        Ok(Self { login: remote.begin_login()?, server, remote, secret, digest })
    }

    /// The address to open, and the code to type or compare there.
    pub fn shown(&self) -> (&str, &str) {
        (self.login.address(), self.login.code())
    }

    /// Asks whether the person has logged in; if so, returns whose the token is, and the token.
    pub fn ask(&mut self) -> Result<Option<(SentToken, String)>, Error> {
        let Some(proof) = self.remote.ask_login(&mut self.login)? else { return Ok(None) };
        Ok(Some((self.remote.trade_login(proof, self.digest.clone())?, self.secret.clone())))
    }

    /// Waits until the person has logged in, and keeps the token.
    pub fn wait(mut self) -> Result<(SentToken, PathBuf), Error> {
        loop {
            thread::sleep(self.login.pause());
            if let Some((known, secret)) = self.ask()? {
                let path = keep(&self.server, &known.name, &secret)?;
                return Ok((known, path));
            }
        }
    }
}

/// Trades a code for a token of this machine, and keeps it. A code is used once: the token is kept before it is sent.
pub fn join(server: &str, code: &str) -> Result<(SentToken, PathBuf), Error> {
    let (address, machine) = (address(server)?, Machine::this());
    let (remote, (secret, digest)) = (RemoteStore::new(address.clone(), code.to_owned())?, new_secret()?);
    let (known, before) = (remote.own_token()?, kept()?);
    let path = keep(&address, &known.name, &secret)?;
    let mut caller = Caller {
        actor: &known.name,
        place: Place::default(),
        ids: &mut random_ids(),
        processes: &machine,
        policy: &Policy::default(),
        holds: &[],
        role: None,
        token: None,
        op: None,
    };
    let join = Join { code: blake3::hash(code.as_bytes()).to_hex().to_string(), digest };
    let mut join = VerbRun::new(join);
    let done = distant::perform(&remote, &mut caller, &mut join, Duration::ZERO);
    match done.and_then(|()| join.into_outcome()) {
        Ok(token) => Ok((SentToken { name: token.name, role: token.role, space: known.space }, path)),
        Err(VerbError::Refused(refusal)) => {
            write(&before)?;
            Err(refusal.into())
        }
        // It may have been done: the token is tried with the next command.
        Err(error) => Err(error.into()),
    }
}

fn keep(address: &ServerAddress, name: &str, token: &str) -> Result<PathBuf, Error> {
    let mut all = kept()?;
    all.insert(address.to_string(), KeptToken { name: name.to_owned(), token: token.to_owned() });
    write(&all)
}

fn write(all: &BTreeMap<String, KeptToken>) -> Result<PathBuf, Error> {
    let path = file();
    let unwritable =
        |error: toml::ser::Error| Error::Config { path: path.display().to_string(), problem: error.to_string() };
    let text = toml::to_string(all).map_err(unwritable)?;
    private::create_dir_all(&config_home()).map_err(io("make", &path))?;
    write_private(&path, text.as_bytes())?;
    Ok(path)
}

/// A new secret, and its digest.
pub fn new_secret() -> Result<(String, String), Error> {
    let mut random = [0_u8; 32];
    getrandom::fill(&mut random).map_err(|error| Error::Io {
        doing: "read",
        path: PathBuf::from("the system's randomness"),
        cause: std::io::Error::other(error.to_string()),
    })?;
    let secret = random.iter().fold(TOKEN_PREFIX.to_owned(), |text, byte| format!("{text}{byte:02x}"));
    let digest = blake3::hash(secret.as_bytes()).to_hex().to_string();
    Ok((secret, digest))
}

fn kept_for(server: &ServerAddress) -> Result<Option<KeptToken>, Error> {
    let mut kept = kept()?;
    Ok(kept.remove(&server.to_string()).or_else(|| kept.remove(server.origin())))
}

fn kept() -> Result<BTreeMap<String, KeptToken>, Error> {
    let path = file();
    match fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text)
            .map_err(|error| Error::Config { path: path.display().to_string(), problem: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(io("read", &path)(error)),
    }
}

fn file() -> PathBuf {
    config_home().join("tokens.toml")
}
