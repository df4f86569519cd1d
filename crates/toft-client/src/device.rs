//! Logging in with an identity provider: OAuth's device flow (RFC 8628). The person opens an address in any browser; meanwhile
//! the provider is asked whether they did.

use std::{
    thread,
    time::{Duration, Instant},
};

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

/// What a person has to do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceCode {
    device_code: String,
    /// What the person types, if the address does not have it.
    pub user_code: String,
    pub verification_uri: String,
    /// The same, with the code in it.
    pub verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
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
    pub fn login(&self) -> StoreResult<SentLogin> {
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
    pub fn begin_login(&self, at: &SentLogin) -> StoreResult<DeviceCode> {
        let form = [("client_id", at.client.as_str()), ("scope", &at.scope)];
        self.ask_provider(&at.device_endpoint, &form)?.map_err(|denied| self.denied(at, &denied))
    }

    /// Waits until the person has logged in; returns what the provider says of them.
    pub fn await_login(&self, at: &SentLogin, code: &DeviceCode) -> StoreResult<String> {
        let until = Instant::now() + Duration::from_secs(code.expires_in.clamp(1, 3_600));
        let seconds = code.interval.unwrap_or(PAUSE.as_secs()).clamp(1, 60);
        let mut pause = Duration::from_secs(seconds);
        let form = [("grant_type", DEVICE), ("device_code", code.device_code.as_str()), ("client_id", &at.client)];
        loop {
            thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            match self.ask_provider::<Granted>(&at.token_endpoint, &form)? {
                Ok(granted) => return Ok(granted.id_token),
                Err(denied) if Instant::now() < until && denied.error == "slow_down" => pause += SLOWER,
                // What is no answer of a provider, such as that of a proxy, may be one the next time.
                Err(denied)
                    if Instant::now() < until && ["", "authorization_pending"].contains(&denied.error.as_str()) => {}
                Err(denied) => return Err(self.denied(at, &denied)),
            }
        }
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
