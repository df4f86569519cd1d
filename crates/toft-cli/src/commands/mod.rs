//! Commands: arguments become requests, requests are performed, outcomes become views.

mod agent;
mod demo;
mod flow;
mod place;
mod plan;
mod run;
mod setup;
mod share;
mod work;
mod ws;

use std::{cell::OnceCell, process::ExitCode};

use serde::de::DeserializeOwned;
use serde_json::Value;
use toft::{Config, Store, Toft, id::OpId, repository::Scope, verbs::Verb};

use crate::{
    args::{Cli, Command, Global, Reach},
    exit::Failure,
    render::{Output, View},
};

/// What a command gives back: it printed, or says why not.
type Done = Result<ExitCode, Failure>;

pub(crate) fn run(cli: &Cli, output: &Output) -> Done {
    let app = App { global: &cli.global, output, toft: OnceCell::new() };
    let done = answer(&app, &cli.command);
    if done.is_ok() && cli.command.may_sync() {
        // Nobody asked for it: what does not work now does the next time.
        let _ =
            app.toft.get().map(|toft| toft.plan().and_then(|plan| plan.map_or(Ok(()), |plan| plan.sync_by_itself())));
    }
    // The process is short: the system closes files faster than we could.
    std::mem::forget(app);
    done
}

/// The same for a process that goes on: everything is closed again.
pub(crate) fn run_and_close(cli: &Cli, output: &Output) -> Done {
    answer(&App { global: &cli.global, output, toft: OnceCell::new() }, &cli.command)
}

fn answer(app: &App<'_>, command: &Command) -> Done {
    match command {
        Command::Init(args) => place::init(app, args),
        Command::Where(_) => place::locate(app),
        Command::Doctor(args) => place::doctor(app, args),
        Command::Backup(args) => place::backup(app, &args.file),
        Command::Gc(args) => place::gc(app, args),
        Command::Ready(args) => work::ready(app, args),
        Command::Claim(args) => work::claim(app, args),
        Command::Save(args) => work::save(app, args),
        Command::Finish(args) => work::finish(app, args),
        Command::Show(args) => work::show(app, args),
        Command::List(args) => work::list(app, args),
        Command::Status(args) => work::status(app, args),
        Command::Log(args) => work::log(app, args),
        Command::Flow(args) => flow::run(app, &args.command),
        Command::Add(args) => plan::add(app, args),
        Command::Edit(args) => plan::change(app, args),
        Command::Ledger(args) => plan::ledger(app, &args.command),
        Command::Delete(args) => plan::delete(app, args),
        Command::Restore(args) => plan::restore(app, args),
        Command::Undo(args) => plan::undo(app, args),
        Command::Compact(args) => plan::compact(app, args),
        Command::Import(args) => plan::import(app, args),
        Command::Export(args) => plan::export(app, args),
        Command::Graph(args) => plan::graph(app, args),
        Command::Ws(args) => ws::run(app, &args.command),
        Command::Trust(args) => place::trust(app, args),
        Command::Run(args) => run::run(app, args),
        Command::Stop(args) => run::stop(app, args),
        Command::Prime(args) => run::prime(app, args),
        Command::Sandboxed(args) => run::sandboxed(args),
        Command::Try(args) => demo::demo(app, args),
        Command::Sync(args) => share::sync(app, args),
        Command::Propose(args) => share::propose(app, args),
        Command::Withdraw(args) => share::withdraw(app, args),
        Command::Accept(args) => share::accept(app, args),
        Command::Reject(args) => share::reject(app, args),
        Command::Move(args) => share::move_issues(app, args),
        Command::Setup(args) => setup::setup(app, args),
        Command::Hook(args) => setup::hook(app, args),
        Command::Mcp(_) => crate::mcp::serve(),
        Command::Agent(args) => agent::run(app, &args.command),
    }
}

/// Global flags, and where to print.
struct App<'a> {
    global: &'a Global,
    output: &'a Output,
    /// The store, once it was needed.
    toft: OnceCell<Toft>,
}

impl App<'_> {
    fn config(&self) -> Result<Config, Failure> {
        let store = match self.global.store.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => Some(Store::parse(text)?),
            None => None,
        };
        let Global { dir, agent, .. } = self.global;
        Ok(Config { store, dir: dir.clone(), agent: agent.clone(), brief: true, ..Config::default() })
    }

    fn open(&self) -> Result<&Toft, Failure> {
        if let Some(toft) = self.toft.get() {
            return Ok(toft);
        }
        let located = toft::locate(&self.config()?)?;
        let waiting =
            located.store.file().is_none().then(|| self.output.soon(format!("waiting for {}", located.store)));
        let opened = Toft::at(located);
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
    fn reach(&self, reach: Reach) -> Result<Vec<(&Toft, Scope)>, Failure> {
        if !reach.all_repos {
            let toft = self.open()?;
            let scope = if reach.here { toft.here() } else { toft.scope() };
            return Ok(vec![(toft, scope)]);
        }
        let mut tofts = Vec::new();
        for path in toft::registered_stores()? {
            let config = Config { store: Some(Store::Path(path)), ..self.config()? };
            // As many as there are stores, for the rest of a short process.
            tofts.push((&*Box::leak(Box::new(Toft::with(config)?)), Scope::default()));
        }
        Ok(tofts)
    }

    fn op(&self) -> Option<OpId> {
        self.global.op.as_deref().map(OpId::known)
    }

    /// Performs a verb as whoever asks, once for each operation id.
    fn perform<V: Verb>(&self, toft: &Toft, verb: V) -> Result<V::Outcome, Failure> {
        Ok(toft.perform_as(&toft.located().agent, self.op(), verb)?)
    }

    /// Shows what was seen, and that it is not as it should be: in JSON both in one.
    fn show_failed(&self, view: &dyn View, mut failure: Failure) -> Done {
        match self.output.is_json() {
            true => failure.seen = Some(Box::new((view.kind(), view.json()))),
            false => self.output.show(view)?,
        }
        Err(failure)
    }

    fn show(&self, view: &dyn View) -> Done {
        self.output.show(view)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the person at the terminal for a line; nothing without one.
fn asked(question: &str) -> Result<Option<String>, Failure> {
    use std::io::{IsTerminal as _, Write as _};
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
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
