//! Logging in with an identity provider: OAuth's device flow (RFC 8628). The person opens an address in any browser; meanwhile
//! the provider is asked whether they did.

use std::time::{Duration, Instant};

use serde::{Deserialize, de::DeserializeOwned};
use toft_core::{
    store::{Fault, Result as StoreResult, StoreError},
    wire::{SentIdentity, SentLogin, SentToken},
};
use ureq::http::StatusCode;

use crate::{ANSWER, RemoteStore, only_failed};

/// How often a provider is asked that names no pause, and how much longer after it said that this is too often.
const PAUSE: Duration = Duration::from_secs(5);
const SLOWER: Duration = Duration::from_secs(5);
const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// What the provider answers first.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeviceCode {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// A person who is logging in.
#[derive(Debug)]
pub struct DeviceLogin {
    at: SentLogin,
    device: DeviceCode,
    until: Instant,
    pause: Duration,
    next: Instant,
}

impl DeviceLogin {
    fn new(at: SentLogin, device: DeviceCode) -> Self {
        let now = Instant::now();
        let until = now + Duration::from_secs(device.expires_in.clamp(1, 3_600));
        let pause = Duration::from_secs(device.interval.unwrap_or(PAUSE.as_secs()).clamp(1, 60));
        Self { at, device, until, pause, next: now + pause }
    }

    /// The address that the person opens, with the code in it if the provider can.
    #[must_use]
    pub fn address(&self) -> &str {
        self.device.verification_uri_complete.as_deref().unwrap_or(&self.device.verification_uri)
    }

    /// The code that the person types or compares there.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.device.user_code
    }

    /// How long the provider wants to be left alone.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.next.min(self.until).saturating_duration_since(Instant::now())
    }
}

#[derive(Deserialize)]
struct Granted {
    id_token: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Denied {
    error: String,
    error_description: String,
}

impl RemoteStore {
    /// Where people log in.
    fn login(&self) -> StoreResult<SentLogin> {
        let answer = self.send("GET", "/v1/login", &[], None, ANSWER, true)?;
        match answer.status() {
            StatusCode::NOT_FOUND => {
                let cause = "it knows no identity provider; ask an admin for a token".to_owned();
                Err(StoreError::Blocked {
                    fault: Fault::Credentials,
                    doing: format!("log in at {}", self.address),
                    cause,
                })
            }
            _ => self.read(answer).map_err(only_failed),
        }
    }

    /// Begins to log in.
    pub fn begin_login(&self) -> StoreResult<DeviceLogin> {
        let at = self.login()?;
        let form = [("client_id", at.client.as_str()), ("scope", &at.scope)];
        match self.ask_provider(&at.device_endpoint, &form)? {
            Ok(device) => Ok(DeviceLogin::new(at, device)),
            Err(denied) => Err(self.denied(&at, &denied)),
        }
    }

    /// What the provider says of the person, once they have logged in. It is not asked before its pause is over.
    pub fn ask_login(&self, login: &mut DeviceLogin) -> StoreResult<Option<String>> {
        if !login.pause().is_zero() {
            return Ok(None);
        }
        let DeviceLogin { at, device, until, .. } = &*login;
        let form = [("grant_type", DEVICE), ("device_code", device.device_code.as_str()), ("client_id", &at.client)];
        match self.ask_provider::<Granted>(&at.token_endpoint, &form)? {
            Ok(granted) => return Ok(Some(granted.id_token)),
            Err(denied) if Instant::now() < *until && denied.error == "slow_down" => login.pause += SLOWER,
            // What is no answer of a provider, such as that of a proxy, may be one the next time.
            Err(denied)
                if Instant::now() < *until && ["", "authorization_pending"].contains(&denied.error.as_str()) => {}
            Err(denied) => return Err(self.denied(at, &denied)),
        }
        login.next = Instant::now() + login.pause;
        Ok(None)
    }

    /// Trades what the provider says for a token with this digest.
    pub fn trade_login(&self, id_token: String, digest: String) -> StoreResult<SentToken> {
        let body = serde_json::to_vec(&SentIdentity { id_token, digest }).unwrap_or_default();
        let answer = self.send("POST", "/v1/login", &[], Some(&body), ANSWER, false)?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let text = answer.into_body().read_to_string().unwrap_or_default();
            let said: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let cause = said["message"].as_str().unwrap_or("the proof does not count").to_owned();
            let doing = format!("log in at {}", self.address);
            return Err(StoreError::Blocked { fault: Fault::Credentials, doing, cause });
        }
        self.read(answer).map_err(only_failed)
    }

    /// Sends a form to the provider; the inner error is what it answered.
    fn ask_provider<T: DeserializeOwned>(&self, url: &str, form: &[(&str, &str)]) -> StoreResult<Result<T, Denied>> {
        let failed = |cause: String| StoreError::Failed { doing: format!("ask {url}"), cause };
        let local = url.starts_with("http://127.0.0.1:") || url.starts_with("http://localhost:");
        if !local && !url.starts_with("https://") {
            return Err(failed("an identity provider is asked by https only".to_owned()));
        }
        let mut answer =
            self.agent.post(url).send_form(form.iter().copied()).map_err(|error| failed(error.to_string()))?;
        let text = answer.body_mut().read_to_string().map_err(|error| failed(error.to_string()))?;
        match answer.status().is_success() {
            true => serde_json::from_str(&text).map(Ok).map_err(|error| failed(error.to_string())),
            false => Ok(Err(serde_json::from_str(&text).unwrap_or_default())),
        }
    }

    fn denied(&self, at: &SentLogin, denied: &Denied) -> StoreError {
        let cause = match (denied.error.as_str(), denied.error_description.as_str()) {
            ("", _) => "it refused".to_owned(),
            (error, "") => error.to_owned(),
            (_, description) => description.to_owned(),
        };
        StoreError::Blocked { fault: Fault::Credentials, doing: format!("log in at {}", at.issuer), cause }
    }
}
