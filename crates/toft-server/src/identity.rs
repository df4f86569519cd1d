//! People whom an identity provider knows (OpenID Connect). A person proves themselves to the provider; what it signs is
//! checked here, and traded for a token.

use std::{
    collections::HashMap,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    jwk::{Jwk, JwkSet},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use toft_core::{
    login::{RoleRule, person_name},
    wire::SentLogin,
};

use crate::objects::connector::agent;

/// How long a provider may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Keys are asked for again at most this often.
const KEYS_AGAIN: Duration = Duration::from_secs(10);
/// The largest answer of a provider.
const LARGEST: u64 = 1 << 20;
/// Signatures that are believed: only the provider can make them.
const BELIEVED: [Algorithm; 5] =
    [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::ES256, Algorithm::ES384];
/// What is asked of the provider.
const SCOPE: &str = "openid email profile groups";

/// How people log in.
#[derive(Clone, Debug)]
pub struct IdentityRules {
    /// The address of the provider.
    pub issuer: String,
    /// The name of this server at the provider.
    pub client: String,
    /// What the provider says that names a person.
    pub name: String,
    /// What the provider says that decides about roles.
    pub claim: String,
    pub roles: Vec<RoleRule>,
    /// How long the token of a person lives.
    pub lives: Duration,
}

/// A provider that was asked where its keys are.
pub(crate) struct IdentityProvider {
    pub(crate) rules: IdentityRules,
    found: Discovered,
    keys: Mutex<(JwkSet, Instant)>,
    /// Keys are asked for right now.
    asking: AtomicBool,
    /// Proofs that were used, and until when they would count.
    used: Mutex<HashMap<String, u64>>,
}

/// What a provider says of itself.
#[derive(Clone, Debug, Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
    token_endpoint: String,
    device_authorization_endpoint: String,
}

/// A person who proved themselves.
pub(crate) struct Person {
    pub(crate) name: String,
    /// Who it is, at which provider.
    pub(crate) subject: String,
    /// What decides about roles.
    pub(crate) values: Vec<String>,
}

impl IdentityProvider {
    /// Asks a provider.
    pub(crate) fn open(rules: &IdentityRules) -> io::Result<Self> {
        let issuer = rules.issuer.trim_end_matches('/');
        let found: Discovered = ask(&format!("{issuer}/.well-known/openid-configuration"))?;
        if found.issuer.trim_end_matches('/') != issuer {
            return Err(io::Error::other(format!("{issuer} says that it is {}", found.issuer)));
        }
        let keys = ask(&found.jwks_uri)?;
        let (keys, asking) = (Mutex::new((keys, Instant::now())), AtomicBool::new(false));
        Ok(Self { rules: rules.clone(), found, keys, asking, used: Mutex::default() })
    }

    /// Where people log in.
    pub(crate) fn login(&self) -> SentLogin {
        SentLogin {
            issuer: self.found.issuer.clone(),
            client: self.rules.client.clone(),
            device_endpoint: self.found.device_authorization_endpoint.clone(),
            token_endpoint: self.found.token_endpoint.clone(),
            scope: SCOPE.to_owned(),
        }
    }

    /// The person whom a proof is of; why not, otherwise. A proof counts once.
    pub(crate) fn check(&self, proof: &str) -> Result<Person, String> {
        let header = decode_header(proof).map_err(|error| format!("it cannot be read: {error}"))?;
        if !BELIEVED.contains(&header.alg) {
            return Err(format!("its signature is of an unknown kind ({:?})", header.alg));
        }
        let key = self.key(header.kid.as_deref())?;
        let key = DecodingKey::from_jwk(&key).map_err(|error| format!("the provider's key is of no use: {error}"))?;
        let mut wanted = Validation::new(header.alg);
        wanted.set_audience(&[&self.rules.client]);
        wanted.set_issuer(&[&self.found.issuer]);
        wanted.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        wanted.validate_nbf = true;
        let claims = decode::<Value>(proof, &key, &wanted).map_err(|error| error.to_string())?.claims;
        if claims["azp"].as_str().is_some_and(|client| client != self.rules.client) {
            return Err("it is for another program".to_owned());
        }
        let text = |name: &str| claims[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let said = text(&self.rules.name).ok_or_else(|| format!("it has no `{}`", self.rules.name))?;
        let verified = &claims["email_verified"];
        if self.rules.name == "email" && !(verified.is_null() || *verified == true || *verified == "true") {
            return Err("the address of this person is not verified".to_owned());
        }
        let subject = text("sub").ok_or("it names nobody")?;
        self.use_once(proof, claims["exp"].as_u64().unwrap_or(u64::MAX))?;
        let values = match &claims[&self.rules.claim] {
            Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Value::String(one) => vec![one.clone()],
            _ => Vec::new(),
        };
        let subject = format!("{subject} at {}", self.found.issuer);
        Ok(Person { name: person_name(&said), subject, values })
    }

    fn use_once(&self, proof: &str, until: u64) -> Result<(), String> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = jsonwebtoken::get_current_timestamp();
        used.retain(|_, until| until.saturating_add(120) > now);
        // The same words may have several signatures.
        let words = proof.rsplit_once('.').map_or(proof, |(words, _)| words);
        match used.insert(blake3::hash(words.as_bytes()).to_hex().to_string(), until) {
            Some(_) => Err("it was used already".to_owned()),
            None => Ok(()),
        }
    }

    /// The key with this id. Providers change their keys: an unknown one is asked for, by one request at a time.
    fn key(&self, id: Option<&str>) -> Result<Jwk, String> {
        let unknown = || "the provider does not know its key".to_owned();
        let find = |keys: &JwkSet| match id {
            Some(id) => keys.find(id).cloned(),
            None => keys.keys.first().filter(|_| keys.keys.len() == 1).cloned(),
        };
        let (found, asked) = {
            let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            (find(&keys.0), keys.1)
        };
        if let Some(key) = found {
            return Ok(key);
        }
        if asked.elapsed() < KEYS_AGAIN || self.asking.swap(true, Ordering::SeqCst) {
            return Err(unknown());
        }
        let answer = ask::<JwkSet>(&self.found.jwks_uri);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.1 = Instant::now();
        self.asking.store(false, Ordering::SeqCst);
        keys.0 = answer.map_err(|error| error.to_string())?;
        find(&keys.0).ok_or_else(unknown)
    }
}

/// Asks for a document; encrypted, unless the provider is on this machine.
fn ask<T: DeserializeOwned>(url: &str) -> io::Result<T> {
    let failed = |cause: String| io::Error::other(format!("{url}: {cause}"));
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"]
        .iter()
        .any(|begin| url.strip_prefix(begin).is_some_and(|rest| rest.starts_with([':', '/'])));
    if !local && !url.starts_with("https://") {
        return Err(failed("an identity provider is asked by https only".to_owned()));
    }
    let mut answer = agent(ANSWER).get(url).call().map_err(|error| failed(error.to_string()))?;
    if !answer.status().is_success() {
        return Err(failed(answer.status().to_string()));
    }
    let text =
        answer.body_mut().with_config().limit(LARGEST).read_to_vec().map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))
}
