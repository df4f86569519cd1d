//! What an agent may do that reaches toft through the socket of its attempt: everything about its one task, and what it
//! has to know of the others.

use toft::runner::CONFINED;

use crate::{
    args::{AgentCommand, Cli, Command, FlowCommand, List, Reach, Show},
    exit::Failure,
};

/// Whether this command was called through such a socket.
pub(super) fn is() -> bool {
    std::env::var_os(CONFINED).is_some()
}

/// Refuses a command that such an agent may not run.
pub(super) fn check(cli: &Cli) -> Result<(), Failure> {
    if !is() {
        return Ok(());
    }
    toft::runner::end_with_parent();
    let own = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (task, issue, agent) = (own("TOFT_TASK"), own("TOFT_ISSUE"), own("TOFT_AGENT"));
    let is_own = |id: &str| {
        // A part of an id may be the whole of another one.
        let whole = toft::Toft::with(toft::Config::default()).and_then(|toft| toft.work().whole_id(id));
        id == "@" || whole.is_ok_and(|whole| [&task, &issue].into_iter().flatten().any(|known| *known == whole))
    };
    let is_own_hold = |fence: Option<&toft::lease::Fence>| {
        fence.is_none_or(|fence| own("TOFT_FENCE").is_some_and(|known| known == fence.to_string()))
    };
    let as_itself = cli.global.agent.as_ref().is_none_or(|name| agent.as_ref() == Some(name));
    let here = |reach: &Reach| !reach.all_repos;
    let allowed = match &cli.command {
        Command::Where(_) | Command::Prime(_) | Command::Mcp(_) | Command::Hook(_) => true,
        Command::Add(_) => true,
        Command::Edit(args) => !args.editor && args.ids.iter().all(|id| is_own(id)),
        Command::Ready(args) => here(&args.reach),
        Command::Status(args) => here(&args.reach),
        Command::Log(args) => here(&args.reach),
        Command::List(List { reach, .. }) => here(reach),
        Command::Show(Show { diff: true, .. }) => false,
        Command::Show(Show { id, log, .. }) => log.is_none() || is_own(id),
        Command::Save(args) => is_own_hold(args.hold.fence.as_ref()),
        Command::Finish(args) => is_own_hold(args.hold.fence.as_ref()),
        // Only as the holder of the review.
        Command::Review(_) => true,
        Command::Flow(args) => matches!(args.command, FlowCommand::List { .. } | FlowCommand::Show { .. }),
        Command::Agent(args) => {
            matches!(args.command, AgentCommand::List { .. } | AgentCommand::Send(_) | AgentCommand::Inbox(_))
        }
        _ => false,
    };
    match allowed && as_itself && cli.global.store.is_none() {
        true => Ok(()),
        false => Err(Failure::confined(cli.command.name())),
    }
}
