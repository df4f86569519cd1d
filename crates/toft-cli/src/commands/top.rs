//! top: screens in the terminal.

use std::{io::BufReader, process::ExitCode};

use toft_top::TopRules;

use super::{
    App, Done,
    runner::{runner, views},
};
use crate::{args::Top, exit::Failure, render::Output};

pub(super) fn top(app: &App<'_>, args: &Top) -> Done {
    if app.output.is_json() {
        return Err(Failure::invalid("toft top prints no JSON", "toft status --json"));
    }
    if !args.plain && !Output::shown_at_terminal() {
        return Err(Failure::invalid("toft top needs a terminal", "toft top --plain prints lines; toft status once"));
    }
    let (views, title) = views(app, args.all_repos)?;
    let rules = TopRules { views, runner: runner(app)?, title, color: app.output.in_color() };
    let shown = match args.plain {
        true => toft_top::run_plain(&rules, BufReader::new(std::io::stdin()), &mut Output::stream()),
        false => toft_top::run(rules),
    };
    match shown {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Who reads lines may stop.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::stopped(format!("the terminal: {error}"), "toft top --plain prints lines")),
    }
}
