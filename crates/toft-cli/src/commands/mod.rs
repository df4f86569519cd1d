//! Commands: arguments become requests, requests are performed, outcomes become views.

mod agent;
mod board;
mod confined;
mod demo;
mod fleet;
mod flow;
mod hook;
mod land;
mod list;
mod logs;
mod place;
mod plan;
mod review;
mod run;
mod run_repositories;
mod runner;
mod setup;
mod share;
mod top;
mod upkeep;
mod welcome;
mod work;
mod ws;

pub(crate) use self::welcome::welcome;

use std::{
    cell::{OnceCell, RefCell},
    io::Read as _,
    path::PathBuf,
    process::ExitCode,
};

use serde::de::DeserializeOwned;
use serde_json::Value;
use toft::{
    Config, StoreLocation, Toft,
    repository::Scope,
    verbs::{Operation, Verb, op},
    views::RepositorySource,
};

use crate::{
    args::{Cli, Command, Global, Reach},
    exit::Failure,
    render::{CommandView, Output},
};

/// A confined agent sends less than this.
const MOST_INPUT: u64 = 16 << 20;

/// What a command gives back: it printed, or says why not.
type Done = Result<ExitCode, Failure>;

pub(crate) fn run(cli: &Cli, output: &Output) -> Done {
    confined::check(cli)?;
    let app = App::new(cli, output);
    let done = answer_once(&app, &cli.command).map_err(|failure| match output.is_json() {
        true => failure,
        false => failure.shortened(|text| app.shorten(text)),
    });
    app.tell_server();
    if done.is_ok() && cli.command.may_sync() {
        // Nobody asked for it: what does not work now does the next time.
        let _ = app
            .toft
            .get()
            .filter(|toft| toft.located().sync.auto.is_some())
            .map(|toft| toft.plan().and_then(|plan| plan.map_or(Ok(()), |plan| plan.sync_by_itself())));
    }
    if matches!(cli.command, Command::Sync(_) | Command::Run(_)) {
        // The same: what is not forgotten today is forgotten tomorrow.
        let _ = app.toft.get().map(|toft| toft.forget_daily());
    }
    // The process is short: the system closes files faster than we could.
    std::mem::forget(app);
    done
}

/// The same for a process that goes on: everything is closed again.
pub(crate) fn run_and_close(cli: &Cli, output: &Output) -> Done {
    confined::check(cli)?;
    let app = App { served: true, ..App::new(cli, output) };
    let done = answer_once(&app, &cli.command);
    app.tell_server();
    done
}

/// Answers a command; one that was named as an operation and ran before answers as it did then. Verbs of the store remember
/// their answer in their own transaction, other commands here.
fn answer_once(app: &App<'_>, command: &Command) -> Done {
    let Some(op) = app.op().filter(|_| command.writes_beside_the_store()) else { return answer(app, command) };
    let toft = app.open()?;
    let me = &toft.located().agent;
    if let Some(answer) = toft.perform_as(me, None, op::Recall { op: op.clone() })? {
        return app.show(&CommandView::repeated(&answer));
    }
    app.output.remember();
    let done = answer(app, command)?;
    if let Some(answer) = app.output.remembered() {
        let said = toft.perform_as(me, None, op::Remember { op, answer });
        if let Err(error) = said {
            return Err(Failure::stopped(
                format!("the command succeeded, but its operation id was not stored: {error}"),
                "",
            ));
        }
    }
    Ok(done)
}

fn answer(app: &App<'_>, command: &Command) -> Done {
    match command {
        Command::Init(args) => place::init(app, args),
        Command::Where(_) => place::locate(app),
        Command::Doctor(args) => place::doctor(app, args),
        Command::Serve(args) => fleet::serve(app, args),
        Command::Login(args) => fleet::login(app, args),
        Command::Join(args) => fleet::join(app, &args.url, &args.code),
        Command::Token(args) => fleet::token(app, &args.command),
        Command::Backup(args) => upkeep::backup(app, args),
        Command::Reference(args) => upkeep::write(app, args, crate::reference::write_pages),
        Command::Man(args) => upkeep::write(app, args, crate::reference::write_man),
        Command::Gc(args) => place::gc(app, args),
        Command::Ready(args) => work::ready(app, args),
        Command::Claim(args) => work::claim(app, args),
        Command::Save(args) => work::save(app, args),
        Command::Reopen(args) => plan::reopen(app, args),
        Command::Close(args) => plan::close(app, args),
        Command::Finish(args) => work::finish(app, args),
        Command::Show(args) => work::show(app, args),
        Command::List(args) => list::list(app, args),
        Command::Status(args) => work::status(app, args),
        Command::Top(args) => top::top(app, args),
        Command::Board(args) => board::board(app, args),
        Command::Logs(args) => logs::logs(app, args),
        Command::Log(args) => work::log(app, args),
        Command::Retry(args) => flow::retry(app, args),
        Command::Flow(args) => flow::run(app, &args.command),
        Command::Add(args) => plan::add(app, args),
        Command::Edit(args) => plan::change(app, args),
        Command::Ledger(args) => plan::ledger(app, &args.command),
        Command::Delete(args) => plan::delete(app, args),
        Command::Undo(args) => plan::undo(app, args),
        Command::Import(args) => plan::import(app, args),
        Command::Export(args) => plan::export(app, args),
        Command::Ws(args) => ws::run(app, &args.command),
        Command::Trust(args) => place::trust(app, args),
        Command::Land(args) => land::cmd_land(app, args),
        Command::Review(args) => review::cmd_review(app, args),
        Command::Checked(_) => land::cmd_checked(app),
        Command::Run(args) => run::run(app, args),
        Command::Stop(args) => run::stop(app, args),
        Command::Prime(args) => run::prime(app, args),
        Command::Acp(args) => run::acp(app, args),
        Command::Sandboxed(args) => run::sandboxed(args),
        Command::Try(args) => demo::demo(app, args),
        Command::Sync(args) => share::sync(app, args),
        Command::Propose(args) => share::propose(app, args),
        Command::Accept(args) => share::accept(app, args),
        Command::Move(args) => share::move_issues(app, args),
        Command::Setup(args) => setup::setup(app, args),
        Command::Hook(args) => hook::hook(app, args),
        Command::Mcp(_) => crate::mcp::serve(),
        Command::Agent(args) => agent::run(app, &args.command),
        Command::Answer(args) => agent::answer(app, args),
        Command::Tell(args) => agent::tell_holder(app, args),
        Command::Pause(args) => agent::pause(app, args),
    }
}

/// Global flags, and where to print.
struct App<'a> {
    /// What was asked, for the digest of an operation.
    command: &'a Command,
    global: &'a Global,
    output: &'a Output,
    /// A program asks on behalf of an agent.
    served: bool,
    /// The store, once it was needed.
    toft: OnceCell<Toft>,
    /// Standard input, once it was needed: both the digest of an operation and its command read it.
    input: OnceCell<Vec<u8>>,
    /// What is said beside the outcome.
    notes: RefCell<Vec<String>>,
}

impl<'a> App<'a> {
    fn new(cli: &'a Cli, output: &'a Output) -> Self {
        Self {
            command: &cli.command,
            global: &cli.global,
            output,
            served: false,
            toft: OnceCell::new(),
            input: OnceCell::new(),
            notes: RefCell::default(),
        }
    }

    fn config(&self) -> Result<Config, Failure> {
        let store = match self.global.store.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => Some(StoreLocation::parse(text)?),
            None => None,
        };
        let Global { dir, agent, .. } = self.global;
        let served = self.served;
        // Through a socket there is one workspace, whatever the one who asks says.
        let dir = if confined::is() { &None } else { dir };
        Ok(Config { store, dir: dir.clone(), agent: agent.clone(), brief: true, served, ..Config::default() })
    }

    fn open(&self) -> Result<&Toft, Failure> {
        if let Some(toft) = self.toft.get() {
            return Ok(toft);
        }
        let located = toft::locate(&self.config()?)?;
        let waiting =
            located.store.file().is_none().then(|| self.output.soon(format!("waiting for {}", located.store)));
        let opened = match self.command {
            Command::Doctor(_) | Command::Backup(_) | Command::Token(_) => Toft::looked_after(located),
            _ => Toft::at(located),
        };
        drop(waiting);
        let opened = opened?;
        Ok(self.toft.get_or_init(|| opened))
    }

    /// The store, if there is one here at all.
    fn open_if_any(&self) -> Result<Option<&Toft>, Failure> {
        match toft::locate(&self.config()?) {
            Ok(located) if located.store.missing() => Ok(None),
            Ok(_) => self.open().map(Some),
            Err(toft::Error::NoRepository { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The stores and scopes a reading command looks into.
    fn reach(&self, reach: &Reach) -> Result<Vec<RepositorySource<'_>>, Failure> {
        // Issues belong to no worktree.
        let ledgers = reach.worktree.is_none();
        if !reach.all_repos {
            let toft = self.open()?;
            let scope = scope_of(toft, reach.worktree.as_deref());
            return Ok(vec![RepositorySource { toft, scope, name: None, ledgers, is_clone: true, role: None }]);
        }
        let worktree = match reach.worktree.as_deref() {
            Some(".") => self.open()?.here().worktree,
            other => other.map(str::to_owned),
        };
        let (found, bad) = toft::every_repository(&self.config()?)?;
        self.notes.borrow_mut().extend(bad);
        let reached = |one: toft::Reached| {
            let scope = Scope { worktree: worktree.clone(), ..one.scope };
            // As many as there are repositories, for the rest of a short process.
            let toft: &Toft = Box::leak(Box::new(one.toft));
            RepositorySource {
                toft,
                scope,
                name: one.name.or_else(|| Some(String::new())),
                ledgers: ledgers && one.ledgers,
                is_clone: true,
                role: None,
            }
        };
        Ok(found.into_iter().map(reached).collect())
    }

    /// Says beside the outcome what one of several repositories had to say.
    fn heard(&self, toft: &Toft, name: Option<&String>) {
        if let Some(name) = name {
            self.notes.borrow_mut().extend(toft.take_notes().into_iter().map(|note| format!("{name}: {note}")));
        }
    }

    /// The operation that was named, with a digest of what was typed: how it is printed does not matter.
    fn op(&self) -> Option<Operation> {
        // What a file says is part of the request; one that cannot be read fails later.
        let content = |file: PathBuf| match file.as_os_str() == "-" {
            true => self.input().map(<[u8]>::to_vec).unwrap_or_default(),
            false => std::fs::read(file).unwrap_or_default(),
        };
        let files = || self.command.files().into_iter().map(content).collect::<Vec<_>>();
        let typed = || format!("{:?} {:?} {:?}", self.command, self.global.agent, files());
        self.global.op.as_deref().map(|id| toft::operation(id, &typed()))
    }

    /// Standard input, to its end.
    fn input(&self) -> Result<&[u8], Failure> {
        if let Some(bytes) = self.input.get() {
            return Ok(bytes);
        }
        let mut bytes = Vec::new();
        // Outside of a container, what an agent in it sends would count as the runner's.
        let most = if confined::is() { MOST_INPUT } else { u64::MAX };
        std::io::stdin()
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::invalid(format!("standard input: {error}"), "give it UTF-8 text"))?;
        if bytes.len() as u64 == most {
            return Err(Failure::invalid("standard input is longer than 16 MiB", "give it less at once"));
        }
        Ok(self.input.get_or_init(|| bytes))
    }

    /// Standard input as text.
    fn input_text(&self) -> Result<&str, Failure> {
        std::str::from_utf8(self.input()?)
            .map_err(|error| Failure::invalid(format!("standard input: {error}"), "give it UTF-8 text"))
    }

    /// Performs a verb as the agent that asks, once for each operation id.
    fn perform<V: Verb>(&self, toft: &Toft, verb: V) -> Result<V::Outcome, Failure> {
        Ok(toft.work().act(&toft.located().agent, self.op(), verb)?)
    }

    /// Shows what was seen, and that it is not as it should be: in JSON both in one.
    fn show_failed(&self, view: &CommandView<'_>, mut failure: Failure) -> Done {
        match self.output.is_json() {
            true => failure.seen = Some(Box::new((view.kind.to_owned(), view.json()))),
            false => self.output.show(view, &[], &|text| self.shorten(text))?,
        }
        Err(failure)
    }

    /// Sends issues that were written to the server, if the store is one.
    fn tell_server(&self) {
        if let Some(toft) = self.toft.get() {
            toft.tell_server();
        }
    }

    /// Shows an outcome, and beside it what did not work after it was committed.
    fn show(&self, view: &CommandView<'_>) -> Done {
        self.tell_server();
        let mut notes = self.toft.get().map(|toft| toft.take_notes()).unwrap_or_default();
        notes.append(&mut self.notes.borrow_mut());
        self.output.show(view, &notes, &|text| self.shorten(text))?;
        Ok(ExitCode::SUCCESS)
    }

    /// A text with its ids as short as the store and the ledgers allow.
    fn shorten(&self, text: &str) -> String {
        match self.toft.get() {
            Some(toft) => toft.shorten_ids(text),
            None => text.to_owned(),
        }
    }
}

/// Returns the scope of a command: the repository, or one worktree of it. `.` is the worktree of the directory.
fn scope_of(toft: &Toft, worktree: Option<&str>) -> Scope {
    match worktree {
        Some(".") => toft.here(),
        Some(name) => Scope { worktree: Some(name.to_owned()), ..toft.scope() },
        None => toft.scope(),
    }
}

/// Whether a person sits at a terminal.
fn at_terminal() -> bool {
    use std::io::IsTerminal as _;
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks the person at the terminal for a line; nothing without one.
fn asked(question: &str) -> Result<Option<String>, Failure> {
    use std::io::Write as _;
    if !at_terminal() {
        return Ok(None);
    }
    let mut err = std::io::stderr();
    let mut answer = String::new();
    write!(err, "{question}")
        .and_then(|()| err.flush())
        .and_then(|()| std::io::stdin().read_line(&mut answer))
        .map_err(|error| Failure::stopped(error.to_string(), ""))?;
    Ok(Some(answer.trim().to_owned()))
}

/// Shows something and asks whether to go on; without a person, nobody agreed.
fn said_yes(shown: &str, question: &str) -> Result<bool, Failure> {
    let answer = asked(&format!("{shown}{question} [y/N] "))?.unwrap_or_default();
    Ok(["y", "yes"].contains(&answer.to_ascii_lowercase().as_str()))
}

/// Reads a word as one of an enum's, naming the field when it is none of them.
fn word<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| {
        let known = error.to_string();
        let known = known.split_once("expected ").map_or(known.as_str(), |(_, words)| words).to_owned();
        Failure::invalid(format!("{field}: `{text}` is not known"), &format!("use {known}"))
    })
}
