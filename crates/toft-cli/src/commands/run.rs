//! run, prime, and the sandbox that run puts commands in.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    sync::mpsc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM},
    iterator::Signals,
};
use toft::{
    ContainerRules, Error, Session, Toft, UsageLimit, acp_recipe,
    agent::Role,
    land::{LandEvent, Lander},
    landing::Landing,
    provider::RestingAgent,
    runner::{
        AcpEnd, AcpPrompt, BudgetMeter, Container, ContainerKind, Fleet, LandlockRules, Network, Order, Rules,
        RunnerEvent, SLOT, SUPERVISOR, Sandbox, Slot, SlotEvent, SlotLander, SlotLanding, SocketAddress, Supervisor,
        call, confined_command, enter_landlock, forward_to_proxy, prompt_over_acp, show_life, wait_for_end,
    },
    verbs::{
        status::{self, NeedsYou},
        stop,
    },
};

use super::{App, Done, run_repositories};
use crate::{
    args::{Acp, Prime, Run, SandboxMode, Sandboxed, Stop},
    exit::Failure,
    render::{RunProgress, Stopped, view_prime},
};

pub(super) fn run(app: &App<'_>, args: &Run) -> Done {
    let slot = std::env::var(SLOT).ok();
    let all = run_repositories::open(app, args, slot.as_ref())?;
    let Some(toft) = all.first() else { return Ok(ExitCode::SUCCESS) };
    let mut rules = rules(&all, args)?;
    // Agents that were given a name can do what is asked of that name.
    rules.can.extend(app.global.agent.clone());
    if let Some(name) = slot {
        let lander = args.land.then(|| Box::new(RunLander { sandbox: confinement(&rules) }) as Box<dyn SlotLander>);
        Slot::new(all.into_iter().map(Toft::into_session).collect(), name, rules).landing_with(lander).run()?;
        return Ok(ExitCode::SUCCESS);
    }
    let outer = rules.container.as_ref().map(|container| match &container.kind {
        ContainerKind::Engine { program, .. } => std::slice::from_ref(program),
        ContainerKind::Command(words) => words.as_slice(),
    });
    // What is in a container is known there.
    if let Some(program) = outer.map_or_else(|| started(&rules.command), <[String]>::first)
        && !toft::runner::can_start(program)
    {
        let message = format!("program `{program}` was not found");
        return Err(Failure::invalid(message, "is it installed, and on PATH? Nothing was claimed"));
    }
    let args_again = || std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().map_err(listening("find", "toft"))?;
    if std::env::var_os(SUPERVISOR).is_none() {
        let supervisor = Supervisor::start(&program, args_again())?;
        let (mut signals, (heard, orders)) = (signals()?, mpsc::channel());
        std::thread::spawn(move || signals.forever().try_for_each(|signal| heard.send(signal)));
        return match supervisor.wait(&orders, args.grace)? {
            Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
            None => Err(Failure::stopped(
                "the runner was killed",
                "its tasks can be claimed again: toft run continues them",
            )),
        };
    }
    if let Some(ContainerKind::Engine { program, rules: known }) = rules.container.as_ref().map(|known| &known.kind) {
        let image = known.image.as_deref().unwrap_or_default();
        let looked =
            toft::runner::output(&[program, "image", "inspect", "--format", "{{.Id}}", image], "/".as_ref(), OBEYED);
        let problem = match looked {
            Ok((true, _)) => None,
            Ok((false, said)) => {
                Some(said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("").to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            let help =
                format!("does {program} run, and is the image there ({program} pull {image})? Nothing was claimed");
            return Err(Failure::invalid(format!("--in {program}: {problem}"), &help));
        }
    }
    let promise = match (&rules.sandbox, &rules.container) {
        (_, Some(container)) => Some(container.promise()),
        (Some(sandbox), None) => Some(sandbox.promise(sandbox.kind()?)),
        (None, None) => None,
    };
    // Before an agent is started whose work could not be verified.
    all.iter().try_for_each(|toft| toft.located().require_trusted_verification())?;
    let sessions: Vec<&Session> = all.iter().map(|toft| &**toft).collect();
    let fleet = Fleet::new(&sessions, program, args_again(), args.slots, &rules)?;
    all.iter().try_for_each(|toft| toft.work().let_go_of_ended(&toft.located().agent).map(drop))?;
    let before = failed_for_good(&all)?;
    let shorten = |text: &str| all.iter().fold(text.to_owned(), |text, toft| toft.shorten_ids(&text));
    // What cannot be counted is not shown.
    let open = |toft: &Toft| toft.plan().ok().flatten().and_then(|plan| plan.counts().ok()).map(|(_, open)| open);
    let unfinished = || all.iter().map(open).sum();
    let mut progress = RunProgress::new(app.output, &shorten, &unfinished, fleet.names(), promise.as_deref());
    show_life()?;
    let (order, orders) = orders()?;
    let known = &toft.located().run;
    let run_limit = UsageLimit { cost: args.max_cost, tokens: args.max_tokens };
    let mut meter = BudgetMeter::new(run_limit, known.day_limit);
    if let Some(said) = meter.begin() {
        return Err(Failure::budget(said));
    }
    // Issues of other clones, before the slots look for work; what does not work now does the next time.
    for toft in &all {
        if args.clone {
            run_repositories::bring_up_to_date(toft)?;
            continue;
        }
        let _ = toft.plan().and_then(|plan| plan.map_or(Ok(()), |plan| plan.sync_by_itself()));
    }
    let troubled = fleet.run(orders, |event| {
        progress.handle(&event);
        if let Some(said) = meter.hear(&event) {
            progress.announce(&said);
            // A runner that is over claims nothing either.
            let _ = order.send(Order::Drain);
        }
        if let Some((id, text)) = needs_a_person(&event) {
            call(&notification(&known.notify, &id, &text));
        }
    })?;
    all.iter().try_for_each(|toft| toft.work().let_go_of_ended(&toft.located().agent).map(drop))?;
    let failed = failed_for_good(&all)?;
    progress.also_parked(failed.into_iter().filter(|(task, _)| !before.contains_key(task)));
    for toft in &all {
        progress.not_landed(toft::views::unlanded(toft)?);
    }
    progress.close();
    match (troubled, progress.parked()) {
        (false, 0) if args.once && !progress.did_any() => Err(match RestingAgent::of(&rules.agent) {
            Some(resting) => Failure::resting(
                format!("{} rests until {}", resting.agent, resting.until),
                "toft status shows why; toft pause --off NAME ends the rest; other agents can go on: toft run --agent NAME",
            ),
            None if !progress.idle() => return Ok(ExitCode::SUCCESS),
            None => {
                let used = if known.capacity.is_empty() { "" } else { " · or all units of a [capacity] are in use" };
                let help = format!("toft ready --explain · without --once, toft run waits for work{used}");
                Failure::nothing("nothing is ready", &help)
            }
        }),
        (false, 0) if let Some(why) = meter.reached() => Err(Failure::budget(why.to_owned())),
        (false, 0) => Ok(ExitCode::SUCCESS),
        (true, _) => Err(Failure::stopped("a slot stopped", "its message is above")),
        (false, parked) => {
            let message = match parked {
                1 => "1 task failed".to_owned(),
                more => format!("{more} tasks failed"),
            };
            Err(Failure::stopped(message, "toft status lists them, with the next step"))
        }
    }
}

/// The program that does the work: over the Agent Client Protocol, the one that toft speaks with.
fn started(command: &[String]) -> Option<&String> {
    let bridged = command.get(1).is_some_and(|word| word == "acp");
    let after = command.iter().position(|word| word == "--").filter(|_| bridged);
    after.map_or(command.first(), |at| command.get(at + 1))
}

/// The tasks that failed for good, as far as they are listed, with the ids that people see.
fn failed_for_good(all: &[Toft]) -> Result<BTreeMap<String, String>, Failure> {
    const LISTED: usize = 1_000;
    let mut failed = BTreeMap::new();
    for toft in all {
        let outcome = toft.perform(status::Request { scope: toft.scope(), limit: LISTED })?;
        failed.extend(outcome.needs_you.into_iter().filter_map(|need| match need {
            NeedsYou::Failed { task, issue, .. } => Some((task.to_string(), issue.unwrap_or_else(|| task.to_string()))),
            _ => None,
        }));
    }
    Ok(failed)
}

fn rules(all: &[Toft], args: &Run) -> Result<Rules, Failure> {
    let Some(toft) = all.first() else { return Ok(Rules::default()) };
    let known = &toft.located().run;
    let known_as = |name: &str| match name.strip_prefix("acp:") {
        Some(name) => {
            let toft = std::env::current_exe().unwrap_or_else(|_| "toft".into());
            acp_recipe(name, &known.agents, &toft.display().to_string())
        }
        None => known.agents.iter().find(|recipe| recipe.name == name).cloned(),
    };
    let recipe = match &args.recipe {
        Some(name) => Some(known_as(name).ok_or_else(|| {
            let names: Vec<_> = known.agents.iter().map(|recipe| recipe.name.as_str()).collect();
            Failure::invalid(
                format!("--agent: `{name}` is not known"),
                &format!("use {}, acp:gemini, acp:opencode, acp:copilot, or -- COMMAND", names.join(", ")),
            )
        })?),
        None => None,
    };
    let mut command = recipe.as_ref().map_or_else(|| args.command.clone(), |recipe| recipe.command.clone());
    let mut resume = recipe.as_ref().map(|recipe| recipe.resume.clone()).unwrap_or_default();
    for program in [command.first_mut(), resume.first_mut()].into_iter().flatten() {
        if program.contains('/')
            && let Ok(whole) = std::fs::canonicalize(&*program)
        {
            // It is started elsewhere, and means what it means here.
            *program = whole.display().to_string();
        }
    }
    if command.is_empty() {
        return Err(Failure::invalid("no command to run", "toft run --agent claude, or toft run -- COMMAND"));
    }
    if args.sandbox.is_some() || args.container.is_some() {
        for words in [&mut command, &mut resume] {
            *words = toft::unconfined(words);
        }
    }
    let own = recipe.iter().flat_map(|recipe| &recipe.writes).map(|dir| toft::home().join(dir));
    let writable: Vec<PathBuf> = found("--allow", &args.allow)?.into_iter().chain(own).collect();
    if let Some(host) = args.allow_host.iter().find(|host| !toft::runner::is_host(host)) {
        return Err(Failure::invalid(
            format!("--allow-host: `{host}` is not a host"),
            "use a name such as api.example.org, an address, or *.example.org, without scheme and port",
        ));
    }
    if args.sandbox == Some(SandboxMode::Landlock) && (!args.allow_host.is_empty() || !args.allow_read.is_empty()) {
        return Err(Failure::invalid(
            "--sandbox=landlock knows no hosts, and hides nothing",
            "leave --allow-host and --allow-read out, or use --sandbox, which needs bubblewrap",
        ));
    }
    let offline = args.offline || args.sandbox == Some(SandboxMode::Offline);
    let network = match (args.allow_host.is_empty(), offline) {
        (false, _) => Network::Hosts(args.allow_host.clone()),
        (true, true) => Network::Closed,
        (true, false) => Network::Open,
    };
    let container = match &args.container {
        Some(kind) => {
            let kind = container(kind, args, &known.container)?;
            Some(Container { kind, network: network.clone(), writable: writable.clone() })
        }
        None => None,
    };
    let allowed_reads = found("--allow-read", &args.allow_read)?;
    let sandbox = args.sandbox.map(|kind| {
        let (strict, guard) = (kind == SandboxMode::Strict, kind == SandboxMode::Landlock);
        let readable = allowed_reads.into_iter().chain(needed_by(&command)).collect();
        Sandbox { writable, readable, strict, network, guard, ..Sandbox::default() }
    });
    Ok(Rules {
        // A plain command is nobody's account.
        agent: args.recipe.clone().unwrap_or_default(),
        resume,
        command,
        labels: args.labels.clone(),
        can: args.can.clone(),
        once: args.once,
        until_idle: args.until_idle,
        ttl: args.ttl,
        idle: args.idle,
        total: args.total,
        grace: args.grace,
        budget: args.budget,
        sandbox,
        container,
        capacity: known.capacity.clone(),
        task_limit: known.task_limit,
        base: args.base.clone(),
    })
}

/// What a command needs to start, wherever it is: programs on the path, where its own is installed (it is often a link),
/// files that it names, and what version control knows of its user.
fn needed_by(command: &[String]) -> Vec<PathBuf> {
    const KNOWN: [&str; 6] = [".gitconfig", ".config/git", ".config/jj", ".jjconfig.toml", ".hgrc", ".config/hg"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut needed: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|dir| dir.is_absolute() && dir.is_dir()).collect();
    let program = command.first().and_then(|program| toft::runner::program(program));
    needed.extend(program.and_then(|program| program.parent().map(PathBuf::from)));
    needed.extend(command.iter().map(PathBuf::from).filter(|path| path.is_absolute() && path.is_file()));
    needed.extend(KNOWN.map(|file| toft::home().join(file)));
    needed
}

/// Paths that were allowed, as they are wherever an agent is started.
fn found(option: &str, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let whole = |path: &PathBuf| {
        std::fs::canonicalize(path).map_err(|error| {
            Failure::invalid(format!("{option} {}: {error}", path.display()), "name a path that exists")
        })
    };
    paths.iter().map(whole).collect()
}

/// What makes the containers of agents.
fn container(kind: &str, args: &Run, known: &ContainerRules) -> Result<ContainerKind, Failure> {
    if !["podman", "docker"].contains(&kind) {
        let words: Vec<String> = kind.split_whitespace().map(str::to_owned).collect();
        let limited = args.image.is_some() || args.offline || !args.allow_host.is_empty() || !args.allow.is_empty();
        return match words.is_empty() || limited {
            true => Err(Failure::invalid(
                format!("--in: `{kind}` is neither podman nor docker"),
                "--image, --offline, --allow-host and --allow are for those; a command of your own limits what it runs itself",
            )),
            false => Ok(ContainerKind::Command(words)),
        };
    }
    let rules = ContainerRules { image: args.image.clone().or(known.image.clone()), ..known.clone() };
    if rules.image.is_none() {
        return Err(Failure::invalid(
            format!("--in {kind}: no image"),
            &format!(
                "toft run --in {kind} --image IMAGE, or image under [run.container] in ~/.config/toft/config.toml"
            ),
        ));
    }
    Ok(ContainerKind::Engine { program: kind.to_owned(), rules })
}

/// The issue or task that waits for a person because of an event, and why.
fn needs_a_person(event: &RunnerEvent) -> Option<(String, String)> {
    let RunnerEvent::Slot(_, SlotEvent::Ended { task, issue, how, message, parked, .. }) = event else { return None };
    let why = match how.as_str() {
        "waiting" => "asks",
        _ if *parked => "failed",
        _ => return None,
    };
    Some((issue.as_ref().unwrap_or(task).clone(), format!("{why}: {message}")))
}

/// The command that calls a person. What an agent wrote is an argument of its own, and never part of another word, which a
/// program might carry out.
fn notification(command: &[String], id: &str, text: &str) -> Vec<String> {
    let filled = |word: &String| if word == "{text}" { text.to_owned() } else { word.replace("{id}", id) };
    command.iter().map(filled).collect()
}

/// The first Ctrl-C lets what runs end, the second ends it, as does being told to end by anybody else, or losing the
/// supervisor. Orders can be sent besides.
fn orders() -> Result<(mpsc::Sender<Order>, mpsc::Receiver<Order>), Failure> {
    let (send, orders) = mpsc::channel();
    let (mut signals, alone, besides) = (signals()?, send.clone(), send.clone());
    std::thread::spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            let order = if signal == SIGINT && !asked { Order::Drain } else { Order::Stop };
            asked = true;
            if send.send(order).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        // Nothing ever comes this way; that it ends says that the supervisor is gone.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // The runner may be over by then.
        let _ = alone.send(Order::Stop);
    });
    Ok((besides, orders))
}

fn signals() -> Result<Signals, Failure> {
    // Whoever started it with nohup wants it to outlive the terminal.
    let hang_up = (!toft::runner::ignores_hang_up()).then_some(SIGHUP);
    Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up)).map_err(listening("listen for", "signals"))
}

fn listening(doing: &'static str, what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |cause| Error::Io { doing, path: what.into(), cause }.into()
}

/// A runner looks for orders every second, or every five on a server, and then has a grace to end its agent.
const OBEYED: Duration = Duration::from_secs(20);

pub(super) fn stop(app: &App<'_>, args: &Stop) -> Done {
    let toft = app.open()?;
    let request = stop::Request { id: args.id.clone(), park: args.park, reason: args.message.clone() };
    let told = toft.work().stop(&toft.located().agent, request)?;
    let ended = match told.told {
        true => toft.work().wait_until_stopped(&told, OBEYED)?,
        false => None,
    };
    let parked = args.park;
    app.show(&Stopped { told, ended, parked }.view())
}

/// Gives the brief on standard input to an agent, and prints what it does.
pub(super) fn acp(app: &App<'_>, args: &Acp) -> Done {
    let brief = std::io::read_to_string(std::io::stdin()).map_err(listening("read", "the brief"))?;
    let dir = std::env::current_dir().map_err(listening("find", "."))?;
    let toft = std::env::current_exe().map_err(listening("find", "toft"))?.display().to_string();
    let asked = AcpPrompt {
        command: &args.command,
        dir: &dir,
        text: &|goes_on| match (goes_on, std::env::var("TOFT_TASK")) {
            // What was given is only what came since; a new session has to know everything.
            (false, Ok(task)) if args.resume.is_some() => {
                match toft::runner::output(&[&toft, "show", &task, "--context"], &dir, OBEYED)? {
                    (true, context) => Ok(context),
                    (false, said) => Err(std::io::Error::other(format!("the brief cannot be made: {said}"))),
                }
            }
            _ => Ok(brief.clone()),
        },
        session: args.resume.as_deref(),
        mcp: (toft.clone(), vec!["mcp".to_owned()]),
    };
    let stopped = Arc::new(AtomicBool::new(false));
    let (mut signals, told) = (signals()?, Arc::clone(&stopped));
    std::thread::spawn(move || signals.forever().for_each(|_| told.store(true, Ordering::Relaxed)));
    let program = args.command.first().cloned().unwrap_or_default();
    let ended =
        prompt_over_acp(&asked, &mut |line| app.output.lines(&[line.to_owned()]), &|| stopped.load(Ordering::Relaxed))
            .map_err(|cause| Failure::from(Error::Start { command: program, cause }))?;
    match ended {
        AcpEnd::Done => Ok(ExitCode::SUCCESS),
        AcpEnd::Asks(question) => {
            let message = format!("--message={question}");
            match toft::runner::output(&[&toft, "finish", "waiting", &message], &dir, OBEYED) {
                Ok((true, _)) => Ok(ExitCode::SUCCESS),
                Ok((false, said)) => {
                    Err(Failure::stopped(format!("it asks: {question}; that could not be recorded: {said}"), ""))
                }
                Err(error) => {
                    Err(Failure::stopped(format!("it asks: {question}; that could not be recorded: {error}"), ""))
                }
            }
        }
        AcpEnd::Failed(message) => Err(Failure::stopped(message, "")),
    }
}

/// Lands finished work in the slots of a runner.
struct RunLander {
    /// What agents may do, checks may do too: they run what agents wrote.
    sandbox: Option<Sandbox>,
}

/// The sandbox of checks: that of the agents, or one instead of their container.
fn confinement(rules: &Rules) -> Option<Sandbox> {
    let instead = |container: &Container| Sandbox { network: container.network.clone(), ..Sandbox::default() };
    rules.sandbox.clone().or_else(|| rules.container.as_ref().map(instead))
}

impl SlotLander for RunLander {
    fn land(
        &self,
        work: toft::Work<'_>,
        stop: &AtomicBool,
        say: &mut dyn FnMut(SlotEvent),
    ) -> Result<SlotLanding, Error> {
        // The runner lands, whichever slot does it.
        let slot = work.session().located();
        let agent = slot.agent.rsplit_once('-').map_or(slot.agent.as_str(), |(runner, _)| runner).to_owned();
        let mut located = slot.clone();
        (located.agent, located.role) = (agent, Some(Role::Coordinator));
        let session = Session::at(located)?;
        let lander =
            Lander::open(toft::Work::of(&session))?.with_stop_flag(stop).with_check_sandbox(self.sandbox.clone());
        if lander.is_another_at_work()? {
            return Ok(SlotLanding::Busy);
        }
        let name = |landing: &Landing| landing.issue.clone().unwrap_or_else(|| landing.id.to_string());
        let summary = lander.land(&[], &mut |event| match event {
            LandEvent::Landed { landing } => say(SlotEvent::Landed {
                id: name(landing),
                title: landing.title.clone(),
                target: landing.offer.target.clone(),
            }),
            LandEvent::Bounced { landing, reason, .. } => say(SlotEvent::Bounced {
                id: name(landing),
                title: landing.title.clone(),
                reason: reason.as_str().to_owned(),
            }),
            LandEvent::Proposed { landing } => say(SlotEvent::Proposed {
                id: name(landing),
                title: landing.title.clone(),
                url: landing.pull_request.as_ref().map(|request| request.url.clone()).unwrap_or_default(),
            }),
            LandEvent::Note { text } => say(SlotEvent::Problem { text: text.clone() }),
            LandEvent::Waiting { .. } | LandEvent::Checking { .. } | LandEvent::Checked { .. } => {}
        })?;
        if let Some(why) = summary.red.filter(|_| summary.checks > 0) {
            let why = why.lines().next().unwrap_or_default().to_owned();
            let text = format!("nothing lands before the target itself is mended: {why}");
            say(SlotEvent::Problem { text });
        }
        Ok(SlotLanding::Tried)
    }
}

/// Starts a command inside a sandbox or a container, with what it needs from the runner outside.
pub(super) fn sandboxed(args: &Sandboxed) -> Done {
    let runner = || {
        SocketAddress::of_runner().ok_or_else(|| {
            Failure::invalid("TOFT_SOCKET is missing", "the command of --in has to pass on its environment")
        })
    };
    let (send, signals) = mpsc::channel();
    let mut variables = Vec::new();
    if args.proxy {
        variables = forward_to_proxy(runner()?.of_proxy()).map_err(listening("listen on", "loopback"))?;
    }
    if args.hold {
        let runner = runner()?;
        // toft is where this program is, whatever the image has.
        let program = std::env::current_exe().map_err(listening("find", "toft"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = program.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(dirs).unwrap_or(path);
        variables.push(("PATH".to_owned(), path.to_string_lossy().into_owned()));
        let over = send.clone();
        std::thread::spawn(move || {
            // A runner that cannot be reached is gone; then the command is, too.
            let _ = wait_for_end(&runner);
            let _ = over.send(SIGKILL);
        });
    }
    if args.landlock {
        enter_landlock(&LandlockRules { write: args.write.clone(), offline: args.offline })?;
        return Err(toft::runner::become_command(&args.command).into());
    }
    let mut heard = self::signals()?;
    std::thread::spawn(move || heard.forever().try_for_each(|signal| send.send(signal)));
    let code = confined_command(&args.command, variables, &signals)?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

pub(super) fn prime(app: &App<'_>, args: &Prime) -> Done {
    let toft = match app.open_if_any()? {
        Some(toft) => toft,
        None => return Ok(ExitCode::SUCCESS),
    };
    app.show(&view_prime(&toft.briefing().prime(&toft.located().agent, !args.peek)?))
}
