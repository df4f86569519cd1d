//! The page that `toft COMMAND --help` prints: what most people need, on one screen.

use clap::{Arg, ArgAction, Command};

/// What every command takes. Its options are no part of the page.
const GLOBAL_OPTIONS: &str = "Everywhere: -C DIR, --as NAME, --store STORE, --json, -q, --color, -h";
const PAGE_TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}{after-help}";
#[cfg(test)]
const MAX_LINES: usize = 30;

/// Lays out a command and those below it. Options with `hide_short_help` are named in one line: `toft help COMMAND` explains
/// them.
pub(crate) fn on_one_page(command: Command) -> Command {
    let path = command.get_name().to_owned();
    laid_out(command, &path)
}

fn laid_out(command: Command, path: &str) -> Command {
    let is_rare = |arg: &&Arg| arg.is_hide_short_help_set() && !arg.is_hide_set() && !arg.is_global_set();
    let rare: Vec<String> = command.get_arguments().filter(is_rare).filter_map(spelled).collect();
    let also = (!rare.is_empty()).then(|| format!("Also (toft help {path}): {}", rare.join(", ")));
    let notes = command.get_after_help().map(ToString::to_string);
    let footer: Vec<String> = also.into_iter().chain(notes).chain([GLOBAL_OPTIONS.to_owned()]).collect();
    let below: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let help = Arg::new("help").short('h').long("help").help("Print this page").action(ArgAction::HelpShort);
    let command = command
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .arg(help.hide_short_help(true))
        .help_template(PAGE_TEMPLATE)
        .after_help(footer.join("\n\n"));
    below.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |below| laid_out(below, &path))
    })
}

/// How an option is typed; nothing for an argument without a name.
fn spelled(arg: &Arg) -> Option<String> {
    let name = arg.get_long()?;
    Some(match arg.get_value_names() {
        Some([value, ..]) if arg.get_action().takes_values() => format!("--{name} {value}"),
        _ => format!("--{name}"),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    fn assert_pages_fit(command: &mut Command, path: &str) {
        let page = command.render_help().to_string();
        let lines = page.trim_end().lines().count();
        assert!(lines <= MAX_LINES, "toft {path} --help has {lines} lines:\n{page}");
        for below in command.get_subcommands_mut().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            assert_pages_fit(below, path.trim());
        }
    }

    #[test]
    fn every_page_of_help_fits_on_a_screen() {
        let mut cli = Cli::command();
        cli.build();
        assert_pages_fit(&mut cli, "");
    }
}
