//! An identity provider of a story: a real one, on this machine.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{ChildStdout, Stdio},
};

use serde_json::Value;

use crate::{ChildGuard, FleetServer, Home, fleet::free_port, tool_dir};

/// A provider, which ends with the story.
pub struct Provider {
    _child: ChildGuard,
    // It goes on to say things, and would end if nobody could hear them.
    _said: BufReader<ChildStdout>,
    dir: PathBuf,
    url: String,
}

impl Provider {
    /// Starts it, if `.ci/run` has installed it.
    pub fn start(home: &Home) -> Option<Self> {
        let here = crate::stories_dir();
        let dir = tool_dir("oidc");
        if !dir.join("node_modules").is_dir() {
            assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "the provider is not installed; .ci/run does it");
            return None;
        }
        let own = home.path().join("oidc");
        fs::create_dir(&own).unwrap();
        for file in ["package.json", "provider.mjs", "person.mjs"] {
            fs::copy(here.join("oidc").join(file), own.join(file)).unwrap();
        }
        std::os::unix::fs::symlink(dir.canonicalize().unwrap().join("node_modules"), own.join("node_modules")).unwrap();
        let port = free_port();
        let mut command = home.command(&own, "node", &["provider.mjs", &port.to_string()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        assert!(said.by_ref().lines().any(|line| line.unwrap() == "ready"));
        Some(Self { _child: ChildGuard(child), _said: said, dir: own, url: format!("http://127.0.0.1:{port}") })
    }

    /// A server whose people it knows.
    pub fn serve(&self, home: &Home, more: &[&str]) -> FleetServer {
        self.serve_at(home, "127.0.0.1:0", more)
    }

    /// The same, at an address.
    pub fn serve_at(&self, home: &Home, address: &str, more: &[&str]) -> FleetServer {
        let mut args = vec!["--oidc", &self.url, "--oidc-client", "toft"];
        args.extend(["--oidc-role", "coordinator=leads", "--oidc-role", "viewer=staff"]);
        args.extend(more);
        FleetServer::listen(home, &home.path().join("fleet.db").display().to_string(), address, &args)
    }

    /// A person opens an address and logs in.
    pub fn browse(&self, home: &Home, address: &str, person: &str) {
        home.run(&self.dir, "node", &["person.mjs", address, person]);
    }

    /// What the provider says of a person to a program.
    pub fn proof(&self, home: &Home, client: &str, person: &str) -> String {
        let post = |path: &str, form: &str| -> Value {
            let said = home.run(home.path(), "curl", &["-sS", "-d", form, &format!("{}{path}", self.url)]);
            serde_json::from_str(&said).unwrap()
        };
        let begun = post("/device/auth", &format!("client_id={client}&scope=openid email groups"));
        self.browse(home, begun["verification_uri_complete"].as_str().unwrap(), person);
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let code = begun["device_code"].as_str().unwrap();
        let said = post("/token", &format!("client_id={client}&grant_type={grant}&device_code={code}"));
        said["id_token"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    }
}
