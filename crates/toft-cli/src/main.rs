//! The `toft` command: arguments become requests, outcomes become text or JSON.
//!
//! `args/` is what can be typed, `commands/` calls the library, `editor.rs` opens a text in the user's editor, `render/` is the only place that prints,
//! `exit.rs` maps every refusal to a code of `codes.rs` and a next step, `reference.rs` writes documentation.

mod args;
mod codes;
mod commands;
mod editor;
mod exit;
mod mcp;
#[cfg_attr(not(feature = "pages"), path = "no_reference.rs")]
mod reference;
mod render;
mod setup;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::{args::Cli, exit::Failure, render::Output};

fn main() -> ExitCode {
    // Answers a shell that asks for completions, and ends.
    clap_complete::CompleteEnv::with_factory(Cli::command).complete();
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.len() == 1 {
        // A confined agent does not see the store.
        if toft::runner::SocketAddress::of_runner().is_none()
            && let Some(page) = commands::welcome()
        {
            Output::plain(false).lines(&[page]);
            return ExitCode::SUCCESS;
        }
        words.push("status".into());
    }
    if let Some(page) = asked_topic(&words) {
        Output::plain(false).lines(&[page]);
        return ExitCode::SUCCESS;
    }
    let cli = match args::parse(&words) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &words),
    };
    let output = Output::new(&cli.global);
    toft::on_wait(render::tell_wait);
    if let Some(runner) = cli.command.called_outside() {
        return match toft::runner::call_outside(&runner, &words[1..]) {
            Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
            Err(error) => {
                let failure = Failure::stopped(
                    format!("the runner of this task cannot be reached: {error}"),
                    "its attempt may be over; end your work here",
                );
                output.failure(&failure);
                failure.code()
            }
        };
    }
    match commands::run(&cli, &output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            failure.code()
        }
    }
}

/// The page of `toft help TOPIC`.
fn asked_topic(words: &[std::ffi::OsString]) -> Option<String> {
    match words {
        [_, help, topic] if help == "help" => args::topic(topic.to_str()?),
        _ => None,
    }
}

/// Help and version go to stdout; a mistake is one line with its remedy.
fn usage(error: &clap::Error, words: &[std::ffi::OsString]) -> ExitCode {
    use clap::error::ErrorKind;
    let code = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Some(ExitCode::SUCCESS),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Some(ExitCode::from(2)),
        _ => None,
    };
    if let Some(code) = code {
        return if error.print().is_ok() { code } else { ExitCode::FAILURE };
    }
    let json = words.iter().any(|word| word.to_string_lossy().starts_with("--json"));
    let named = words.iter().skip(1).find_map(|word| args::known(&word.to_string_lossy()));
    let failure = Failure::usage(error, named);
    Output::plain(json).failure(&failure);
    failure.code()
}
