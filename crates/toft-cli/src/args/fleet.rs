//! Flags of a server and of those who ask it.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use toft::{login::RoleRule, time::parse_duration};

/// Serve the store to other machines over HTTP. Each caller needs a token: toft token create.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toft serve                                  # this machine only, http://127.0.0.1:7878\n  toft serve --store postgres://db/toft --listen 0.0.0.0:443 --cert chain.pem --key key.pem"
)]
pub(crate) struct Serve {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    pub(crate) listen: SocketAddr,
    /// Certificate chain, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Connections to the store
    #[arg(hide_short_help = true, long, value_name = "COUNT", default_value_t = 8)]
    pub(crate) connections: usize,
    /// Place of commits, logs and ledgers of other machines: a directory, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE")]
    pub(crate) objects: Option<String>,
    /// Serve figures for Prometheus at this address, without a token
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Send traces to this OpenTelemetry collector, such as http://127.0.0.1:4318
    #[arg(hide_short_help = true, long, value_name = "URL")]
    pub(crate) traces: Option<String>,
    /// Serve the board at this address of the server: https://fleet.example
    #[arg(long, value_name = "URL", help_heading = "People")]
    pub(crate) board: Option<String>,
    /// Requests a second that each token may send; 0 for no limit
    #[arg(hide_short_help = true, long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) limit: u32,
    /// Log every request, not only failed and slow ones; a line of JSON each, on standard error
    #[arg(hide_short_help = true, long)]
    pub(crate) log_requests: bool,
    /// Writes a second from which a space on PostgreSQL is held in memory
    #[arg(hide_short_help = true, long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) hold_from: u32,
    /// Identity provider (OpenID Connect) with which people log in
    #[arg(long, value_name = "ISSUER", requires = "oidc_client", help_heading = "People")]
    pub(crate) oidc: Option<String>,
    /// Client id of this server at the provider: a public client with the device flow
    #[arg(hide_short_help = true, long, value_name = "ID", requires = "oidc", help_heading = "People")]
    pub(crate) oidc_client: Option<String>,
    /// Who gets which role: those of whom the provider says VALUE; repeatable
    #[arg(hide_short_help = true, long, value_name = "[SPACE/]ROLE=VALUE", requires = "oidc", help_heading = "People")]
    pub(crate) oidc_role: Vec<RoleRule>,
    /// Claim that has the values
    #[arg(hide_short_help = true, long, value_name = "CLAIM", default_value = "groups", help_heading = "People")]
    pub(crate) oidc_claim: String,
    /// Claim that names a person
    #[arg(hide_short_help = true, long, value_name = "CLAIM", default_value = "email", help_heading = "People")]
    pub(crate) oidc_name: String,
    /// How long a person's token counts
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "12h", value_parser = parse_duration, help_heading = "People")]
    pub(crate) oidc_expires: Duration,
}

/// Log in to a server: keep a token, which is read from standard input, or get one with your identity provider.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toft login https://fleet.example/team        # asks for the token\n  toft login https://fleet.example < token     # reads it from a file\n  toft login https://fleet.example --web       # opens nothing: it prints an address\n  toft login https://fleet.example --code CODE # then: toft run --clone --store https://fleet.example --agent claude"
)]
pub(crate) struct Login {
    /// Address of the server
    pub(crate) url: String,
    /// Log in with the identity provider of the server: open the address that is printed, in any browser
    #[arg(long)]
    pub(crate) web: bool,
    /// Let this machine work for the server: trade this code, from `toft token create NAME --join`, for a token of its own. It can be used
    /// once, within ten minutes
    #[arg(long, conflicts_with = "web")]
    pub(crate) code: Option<String>,
}

/// Internal: trades a code for a token, as `toft login --code` does.
#[derive(Args, Debug)]
pub(crate) struct Join {
    /// Address of the server
    pub(crate) url: String,
    /// Code, which can be used once, within ten minutes
    pub(crate) code: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for an agent, a machine or a person, and print it once
    Create(CreateToken),
    /// List the tokens that count
    #[command(alias = "ls")]
    List,
    /// Revoke every token of a name
    #[command(alias = "rm")]
    Revoke {
        /// Owner of the tokens
        name: String,
    },
}

/// Make a token for an agent, a machine or a person, and print it once. Agents of the owner are called NAME or NAME-….
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toft token create ana --role admin           # for the one who runs the server\n  toft token create build-7 --expires 30d      # for a machine that works"
)]
pub(crate) struct CreateToken {
    /// Owner: an agent, a machine or a person
    pub(crate) name: String,
    /// viewer, worker, coordinator or admin
    #[arg(long, default_value = "worker")]
    pub(crate) role: String,
    /// Print a code instead, for `toft login --code` on a machine that works
    #[arg(long, conflicts_with_all = ["role", "expires"])]
    pub(crate) join: bool,
    /// How long it counts [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
}
