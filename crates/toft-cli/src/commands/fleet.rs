//! serve, login, token.

use std::{io::IsTerminal as _, net::SocketAddr};

use toft::{
    Toft,
    refusal::Refusal,
    session_token,
    session_token::ProviderLogin,
    token::TokenRole,
    verbs::{
        token::{Create, List, Revoke},
        visit,
    },
};
use toft_board::people_router;
use toft_server::{
    IdentityRules,
    http::{Listening, ServeRules, ServerLog, serve as serve_http},
};

use super::{
    App, Done, asked,
    board::{https_address, open_board},
};
use crate::{
    args::{CreateToken, Login, Serve, TokenCommand},
    exit::Failure,
    render::{
        clean, log_line, tell_wait, view_login, view_new_token, view_repositories, view_revoked_tokens, view_serving,
        view_tokens,
    },
};

pub(super) fn serve(app: &App<'_>, args: &Serve) -> Done {
    let located = toft::locate(&app.config()?)?;
    let open = !args.listen.ip().is_loopback();
    if open && args.cert.is_none() {
        return Err(Failure::invalid(
            "a server that other machines reach needs a certificate: tokens would be readable on the way",
            "add --cert and --key, or listen on 127.0.0.1 behind a proxy that speaks TLS",
        ));
    }
    let rules = ServeRules {
        store: located.store.clone(),
        listen: args.listen,
        tls: args.cert.clone().zip(args.key.clone()),
        connections: args.connections,
        hold_from: args.hold_from,
        objects: args.objects.clone(),
        metrics: args.metrics,
        traces: args.traces.clone(),
        limit: args.limit,
        log: ServerLog { write: log_line, requests: args.log_requests },
        identity: args.oidc.clone().zip(args.oidc_client.clone()).map(|(issuer, client)| IdentityRules {
            issuer,
            client,
            name: args.oidc_name.clone(),
            claim: args.oidc_claim.clone(),
            roles: args.oidc_role.clone(),
            lives: args.oidc_expires,
        }),
        policy: located.policy.clone(),
        retention: located.retention.clone(),
    };
    let shown = std::cell::RefCell::new(Ok(std::process::ExitCode::SUCCESS));
    let scheme = if args.cert.is_some() { "https" } else { "http" };
    let board = args.board.as_deref().map(|board| board_address(board, args.listen)).transpose()?;
    let people = args.oidc.is_some();
    let served = serve_http(&rules, |Listening { address, ending }| {
        let url = format!("{scheme}://{address}");
        // A certificate is for the name by which others know the server.
        let own = if args.cert.is_some() { board.clone().unwrap_or_default() } else { url.clone() };
        *shown.borrow_mut() = app.show(&view_serving(&url, &located.store.to_string(), board.as_deref()));
        let provider = people.then(|| own.clone());
        board.as_ref().map(|url| people_router(url, open_board(&own), provider, ending))
    });
    served?.map_err(|error| Failure::stopped(format!("the server stopped: {error}"), ""))?;
    shown.into_inner()
}

/// The address of the board, if browsers may send tokens there.
fn board_address(text: &str, listen: SocketAddr) -> Result<String, Failure> {
    let url = text.trim_end_matches('/');
    let hint = format!("--board https://fleet.example, or --board http://{listen} for this machine");
    let own = listen.ip().is_loopback() && url == format!("http://{listen}");
    let address = if own { Some(url.to_owned()) } else { https_address(url) };
    address.ok_or_else(|| Failure::invalid(format!("{text} is no address of this server with TLS"), &hint))
}

pub(super) fn login(app: &App<'_>, args: &Login) -> Done {
    if let Some(code) = &args.code {
        return join(app, &args.url, code);
    }
    if args.web {
        let login = ProviderLogin::begin(&args.url)?;
        let (address, code) = login.shown();
        tell_wait(&clean(&format!("Open {address} and check that it shows {code}")));
        let (known, file) = login.wait()?;
        return app.show(&view_login(&args.url, &known, &file));
    }
    let typed = match std::io::stdin().is_terminal() {
        true => asked("Token: ")?,
        false => app.input_text()?.lines().next().map(str::to_owned),
    };
    let token = typed.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let token = token.ok_or_else(|| Failure::invalid("no token was given", "toft login URL < FILE"))?;
    let (known, file) = session_token::login(&args.url, &token)?;
    app.show(&view_login(&args.url, &known, &file))
}

pub(super) fn join(app: &App<'_>, url: &str, code: &str) -> Done {
    let (known, file) = session_token::join(url, code)?;
    app.show(&view_login(url, &known, &file))
}

pub(super) fn token(app: &App<'_>, command: &TokenCommand) -> Done {
    match command {
        TokenCommand::Create(args) => create(app, args),
        TokenCommand::List => app.show(&view_tokens(&app.perform(app.open()?, List {})?)),
        TokenCommand::Revoke { name } => {
            let count = app.perform(app.open()?, Revoke { name: name.clone() })?;
            app.show(&view_revoked_tokens(name, count))
        }
    }
}

/// Says where machines of the fleet clone this repository from.
pub(super) fn clone_from(app: &App<'_>, url: &str) -> Done {
    let toft = app.open()?;
    let nowhere = || toft::Error::NoRepository { dir: toft.located().dir.clone() };
    let repository = toft.located().repository.clone().ok_or_else(nowhere)?;
    let url = Some(url.to_owned()).filter(|url| !url.is_empty());
    app.show(&view_repositories(&[app.perform(toft, visit::CloneFrom { repository, url })?]))
}

fn create(app: &App<'_>, args: &CreateToken) -> Done {
    let named = if args.join { Some(TokenRole::Join) } else { TokenRole::parse(&args.role) };
    let role = named.filter(|role| args.join || *role >= TokenRole::Viewer).ok_or_else(|| {
        let problem = format!("`{}` is none; there are viewer, worker, coordinator and admin", args.role);
        Failure::from(toft::Error::Refused(Refusal::Invalid { field: "role".into(), problem }))
    })?;
    let toft = Toft::found(&app.config()?)?;
    let (secret, digest) = session_token::new_secret()?;
    let lives = args.expires.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let made = app.perform(&toft, Create { digest, name: args.name.clone(), role, lives })?;
    app.show(&view_new_token(&secret, &made))
}
