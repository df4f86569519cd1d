//! Lines instead of screens, for screen readers and pipes: what needs a person is printed when it comes, and commands are read
//! from standard input.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, Write},
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::Duration,
};

use toft::{
    text::{clean, short},
    views::{NeedsYouView, Screen, ScreenView, command_line},
};

use crate::{TopRules, prompt::words, rows::TopTable};

/// How long a change is waited for.
const WAIT: Duration = Duration::from_secs(15);
/// Characters of a title or a question that are printed.
const LONGEST: usize = 500;

/// What is heard.
enum PlainEvent {
    Line(String),
    /// Standard input has ended.
    End,
    Changed,
}

/// Prints lines until standard input ends or says `quit`.
pub fn run_plain(rules: &TopRules, input: impl BufRead + Send + 'static, out: &mut impl Write) -> io::Result<()> {
    let (tell, heard) = mpsc::channel();
    let lines = tell.clone();
    thread::spawn(move || {
        for line in input.split(b'\n').map_while(Result::ok) {
            if lines.send(PlainEvent::Line(String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
        }
        // Nobody listens any more if the person has left.
        let _ = lines.send(PlainEvent::End);
    });
    writeln!(
        out,
        "{}: needs, agents, board, queue, graph, history, machines, any toft command, or quit.",
        rules.title
    )?;
    let mut known = BTreeSet::new();
    tell_needs(rules, &mut known, out)?;
    thread::scope(|scope| {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        scope.spawn(move || watch(rules, &tell, &stopped));
        let done = answer(rules, &heard, &mut known, out);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        done
    })
}

/// Notes changes of the stores.
fn watch(rules: &TopRules, tell: &mpsc::Sender<PlainEvent>, stop: &AtomicBool) {
    let mut cursor = None;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let seen = match &cursor {
            None => rules.views.cursor(),
            Some(cursor) => rules.views.wait(cursor, Duration::from_millis(200)),
        };
        let Ok(seen) = seen else {
            thread::sleep(Duration::from_secs(1));
            continue;
        };
        let changed = cursor.as_ref().is_some_and(|cursor| *cursor != seen);
        cursor = Some(seen);
        if changed && tell.send(PlainEvent::Changed).is_err() {
            return;
        }
    }
}

fn answer(
    rules: &TopRules,
    heard: &mpsc::Receiver<PlainEvent>,
    known: &mut BTreeSet<String>,
    out: &mut impl Write,
) -> io::Result<()> {
    loop {
        let line = match heard.recv_timeout(WAIT) {
            Ok(PlainEvent::Line(line)) => line,
            Ok(PlainEvent::End) => return Ok(()),
            Ok(PlainEvent::Changed) | Err(_) => {
                tell_needs(rules, known, out)?;
                continue;
            }
        };
        let Some(words) = words(&line) else {
            writeln!(out, "a quote does not end")?;
            continue;
        };
        let screen = match words.first().map(String::as_str) {
            None => continue,
            Some("quit" | "q" | "exit") => return Ok(()),
            Some("needs") => Some(Screen::NeedsYou),
            Some("agents") => Some(Screen::Agents),
            Some("board") => Some(Screen::Board),
            Some("queue") => Some(Screen::Queue),
            Some("graph") if words.len() == 1 => Some(Screen::Graph),
            Some("history") => Some(Screen::History),
            Some("machines") => Some(Screen::Machines),
            Some(_) => None,
        };
        match screen {
            Some(screen) => print(rules, screen, out)?,
            None => {
                let end = (rules.runner)(&words, &AtomicBool::new(false));
                writeln!(out, "{}", end.text.trim_end())?;
                if !end.succeeded {
                    writeln!(out, "failed: {}", clean(&command_line(&words)))?;
                }
            }
        }
        out.flush()?;
    }
}

/// Says what needs a person and was not said yet.
fn tell_needs(rules: &TopRules, known: &mut BTreeSet<String>, out: &mut impl Write) -> io::Result<()> {
    let view = match NeedsYouView::of(&rules.views.sources()) {
        Ok(view) => view,
        Err(error) => return writeln!(out, "not up to date: {}", clean(&error.to_string())),
    };
    let key = |need: &toft::views::Need| format!("{:?} {} {} {}", need.kind, need.id, need.title, need.text);
    for need in view.rows.iter().filter(|need| !known.contains(&key(need))) {
        let from = need.from.as_ref().map(|from| format!("{from}: ")).unwrap_or_default();
        let parts = [need.kind.as_str(), &need.shown, &need.title, &format!("{from}{}", need.text)];
        let parts: Vec<String> =
            parts.into_iter().filter(|part| !part.is_empty()).map(|part| short(part, LONGEST)).collect();
        writeln!(out, "needs you: {}", parts.join(", "))?;
        for action in &need.actions {
            writeln!(out, "  to {}: {}", clean(&action.label), clean(&action.line()))?;
        }
    }
    *known = view.rows.iter().map(key).collect();
    out.flush()
}

/// Prints a screen as lines.
fn print(rules: &TopRules, screen: Screen, out: &mut impl Write) -> io::Result<()> {
    let view = match ScreenView::of(&rules.views.sources(), screen) {
        Ok(view) => view,
        Err(error) => return writeln!(out, "{}", clean(&error.to_string())),
    };
    let now = toft::time::Timestamp(jiff::Timestamp::now().as_millisecond());
    let columns = match &view {
        ScreenView::Board(view) => {
            view.columns.iter().map(|column| Some((column.stage.as_str(), column.total))).collect()
        }
        _ => vec![None],
    };
    for (n, column) in columns.into_iter().enumerate() {
        let table = TopTable::of(&view, n, now);
        if let Some((name, total)) = column {
            writeln!(out, "{name}: {total}")?;
        } else if table.rows.is_empty() {
            writeln!(out, "{}", table.empty)?;
        }
        for row in &table.rows {
            let said = row.cells.iter().zip(&table.heads).filter(|((_, text), _)| !text.is_empty());
            let said: Vec<String> = said
                .map(|((_, text), (head, _))| match *head {
                    "" | "P" | "id" | "title" | "task" | "agent" | "what" => clean(text),
                    head => format!("{head} {}", clean(text)),
                })
                .collect();
            writeln!(out, "  {}", said.join(", "))?;
        }
    }
    Ok(())
}
