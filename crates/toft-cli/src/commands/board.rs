//! board: screens in the browser, and those that a server shows to people.

use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    thread,
};

use toft::{Config, StoreLocation, session_token, state_home, views::Views, wire::SentToken};
use toft_board::{BoardAddress, BoardInvites, BoardSource, OpenBoard};

use super::{
    App, Done,
    runner::{runner, runner_of_person, views},
};
use crate::{
    args::Board,
    exit::Failure,
    render::{Output, view_opened_board},
};

/// The port, unless it is taken: what a browser keeps for an address is found again.
const PORT: u16 = 7117;

pub(super) fn board(app: &App<'_>, args: &Board) -> Done {
    let listen = args.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, free(PORT))));
    if !listen.ip().is_loopback() && args.url.is_none() {
        let hint = "a proxy with TLS on this machine, and toft board --url https://its.name";
        return Err(Failure::invalid("without TLS, the board is reached from this machine only", hint));
    }
    let not_https =
        |url: &String| Failure::invalid(format!("{url} is not the address of a proxy with TLS"), "https://box.example");
    let url = args.url.as_ref().map(|url| https_address(url).ok_or_else(|| not_https(url))).transpose()?;
    let (views, title) = views(app, args.all_repos)?;
    let source = BoardSource { views, runner: runner(app)?, title };
    let mut refused = None;
    let served = toft_board::serve(source, BoardAddress { listen, url }, |invites| {
        invite(app, invites).map_err(|failure| {
            refused = Some(failure);
            io::ErrorKind::Other.into()
        })
    });
    match served {
        Err(_) if refused.is_some() => refused.map_or(Ok(ExitCode::SUCCESS), Err),
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            Err(Failure::stopped(format!("the board on {listen}: {error}"), "toft board --listen 127.0.0.1:0"))
        }
    }
}

/// `https://` and a host, perhaps with a port, as browsers write it.
pub(super) fn https_address(text: &str) -> Option<String> {
    let host = text.trim_end_matches('/').strip_prefix("https://")?;
    let sign = |sign: char| sign.is_ascii_alphanumeric() || ".-:[]".contains(sign);
    let host =
        Some(host.strip_suffix(":443").unwrap_or(host)).filter(|host| !host.is_empty() && host.chars().all(sign))?;
    Some(format!("https://{}", host.to_ascii_lowercase()))
}

/// This port, or any if another program has it.
fn free(port: u16) -> u16 {
    match std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => port,
        Err(_) => 0,
    }
}

/// Prints an address, and another one for each Enter.
fn invite(app: &App<'_>, invites: BoardInvites) -> Result<(), Failure> {
    let address = |invites: &BoardInvites| {
        let failed = |error: io::Error| Failure::stopped(format!("no random numbers: {error}"), "");
        invites.address().map_err(failed)
    };
    app.show(&view_opened_board(&address(&invites)?))?;
    if Output::shown_at_terminal() {
        thread::spawn(move || {
            let mut line = String::new();
            while io::stdin().read_line(&mut line).is_ok_and(|count| count > 0) {
                if let Ok(url) = address(&invites)
                    && writeln!(Output::stream(), "{url}").is_err()
                {
                    return;
                }
            }
        });
    }
    Ok(())
}

/// Opens boards of people at a server: each asks that server with the person's own token.
pub(super) fn open_board(server: &str) -> OpenBoard {
    let server = server.to_owned();
    Arc::new(move |token| {
        let SentToken { name, space, role, .. } = session_token::known_token(&server, token)?;
        let home = state_home().join("board").join(&space);
        let config = Config {
            store: Some(StoreLocation::Remote(server.clone())),
            token: Some(token.to_owned()),
            agent: Some(name.clone()),
            ..Config::default()
        };
        // Nobody sees the plans of another space.
        let views = Views::of_server(&config, &home.join("plans"))?;
        let runner = runner_of_person(&server, token, &name, &home);
        Ok(BoardSource { views, runner, title: format!("{name} ({role}), {space}") })
    })
}

#[cfg(test)]
mod tests {
    use super::https_address;

    #[test]
    fn an_address_is_written_as_browsers_do() {
        for (text, wanted) in [
            ("https://Box.Example/", Some("https://box.example")),
            ("https://box.example:443", Some("https://box.example")),
            ("https://[::1]:8443", Some("https://[::1]:8443")),
            ("http://box.example", None),
            ("https://", None),
            ("https://a b", None),
            ("https://me@box.example", None),
        ] {
            assert_eq!(https_address(text).as_deref(), wanted, "{text}");
        }
    }
}
