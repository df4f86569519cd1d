//! Puts what is to be seen on a screen. Every text from outside is made harmless here.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState},
};
use toft::{
    text::clean,
    time::span,
    views::{Screen, ScreenView},
};

use crate::{
    issue_page::{IssuePage, Pane},
    prompt::{Prompt, Purpose},
    rows::{StyledText, Tone, TopRow, TopTable},
    state::{Popup, TopState},
};

/// From this width on, what is chosen is told beside the rows.
const WIDE: u16 = 160;
/// From this height on, it is told below them instead, in so many lines.
const TALL: u16 = 20;
const BELOW: u16 = 8;
/// From this width on, all columns of the board stand side by side.
const COLUMNS: u16 = 120;
/// A look that takes as long is told.
const SLOW: Duration = Duration::from_secs(2);
/// Lines of a card.
const CARD: u16 = 3;

/// How a text looks.
fn style(tone: Tone, color: bool) -> Style {
    let plain = Style::new();
    match tone {
        Tone::Plain => plain,
        Tone::Head => plain.add_modifier(Modifier::BOLD),
        Tone::Faint if color => plain.fg(Color::DarkGray),
        Tone::Faint => plain.add_modifier(Modifier::DIM),
        _ if !color => plain,
        Tone::Id => plain.fg(Color::Cyan),
        Tone::Good => plain.fg(Color::Green),
        Tone::Busy => plain.fg(Color::Yellow),
        Tone::Bad => plain.fg(Color::Red),
    }
}

fn styled((tone, text): &StyledText, color: bool) -> Line<'static> {
    Line::styled(clean(text), style(*tone, color))
}

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut TopState) {
    let heights = [1, 1].map(Constraint::Length).into_iter().chain([Constraint::Fill(1)]);
    let parts = Layout::vertical(heights.chain([1, 1].map(Constraint::Length))).split(frame.area());
    let [head, tabs, body, command, keys] = *parts else { return };
    frame.render_widget(header(state), head);
    frame.render_widget(screens(state), tabs);
    state.height = usize::from(body.height.saturating_sub(2)).max(1);
    match state.issue.take() {
        Some(page) => {
            issue(frame, body, state, &page);
            state.issue = Some(page);
        }
        None => screen(frame, body, state),
    }
    if let Some(popup) = &state.popup {
        draw_popup(frame, body, popup, &state.shortened(&popup.title));
    }
    footer(frame, command, keys, state);
}

fn header(state: &TopState) -> Line<'static> {
    let mut spans = vec![Span::styled(" toft ", Style::new().add_modifier(Modifier::REVERSED))];
    spans.push(Span::raw(format!(" {}", clean(&state.title))));
    if let Some(view) = state.needs_you() {
        let tone = if view.rows.is_empty() { Tone::Good } else { Tone::Bad };
        spans.push(Span::styled(
            format!("  {} {} you", view.rows.len(), if view.rows.len() == 1 { "needs" } else { "need" }),
            style(tone, state.color),
        ));
        spans.push(Span::styled(format!("  {} at work", view.working), style(Tone::Busy, state.color)));
        spans.push(Span::raw(format!("  {} to land", view.unlanded)));
    }
    let slow = state.refreshing.map(|since| since.elapsed()).filter(|slow| *slow >= SLOW);
    if let Some(slow) = slow.filter(|_| state.trouble.is_none()) {
        let slow = format!("  not up to date: no answer for {}", span(slow));
        spans.push(Span::styled(slow, style(Tone::Bad, state.color)));
    }
    if let Some(why) = &state.trouble {
        spans.push(Span::styled(format!("  not up to date: {}", clean(why)), style(Tone::Bad, state.color)));
    }
    Line::from(spans)
}

fn screens(state: &TopState) -> Line<'static> {
    let mut spans = Vec::new();
    for (n, screen) in Screen::ALL.into_iter().enumerate() {
        let here = if screen == state.screen { Modifier::REVERSED } else { Modifier::empty() };
        spans.push(Span::styled(format!(" {} {} ", n + 1, screen.title()), Style::new().add_modifier(here)));
    }
    if !state.filter.is_empty() {
        let filter = format!("  only rows with {:?}, Esc ends that", clean(&state.filter));
        spans.push(Span::styled(filter, style(Tone::Bad, state.color)));
    }
    Line::from(spans)
}

/// The rows of a screen, and what is said of the one that is chosen.
fn screen(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let Some(table) = state.table() else {
        frame.render_widget(Paragraph::new("looking…"), area);
        return;
    };
    let columns = state.screen == Screen::Board && area.width >= COLUMNS;
    let detail = state.row().map(|row| row.detail).unwrap_or_default();
    let parts = match area {
        _ if detail.is_empty() => Layout::vertical([Constraint::Fill(1), Constraint::Length(0)]),
        Rect { width, .. } if width >= WIDE && !columns => {
            Layout::horizontal([Constraint::Fill(2), Constraint::Fill(1)])
        }
        Rect { height, .. } if height >= TALL => Layout::vertical([Constraint::Fill(1), Constraint::Length(BELOW)]),
        _ => Layout::vertical([Constraint::Fill(1), Constraint::Length(0)]),
    };
    let split = parts.split(area);
    let (main, side) = (split[0], split[1]);
    match state.screens.get(&state.screen) {
        Some(ScreenView::Board(_)) if columns => board(frame, main, state),
        Some(ScreenView::Board(board)) => {
            let rows = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).split(main);
            let names = board.columns.iter().enumerate().map(|(n, column)| {
                let here = if n == state.column { Modifier::REVERSED } else { Modifier::empty() };
                Span::styled(format!(" {} {} ", column.stage.as_str(), column.total), Style::new().add_modifier(here))
            });
            frame.render_widget(Line::from(names.collect::<Vec<_>>()), rows[0]);
            draw_table(frame, rows[1], &table, state);
        }
        _ => draw_table(frame, main, &table, state),
    }
    if side.area() > 0 {
        let lines = wrapped(&detail, usize::from(side.width.saturating_sub(3)), state.color);
        frame.render_widget(Paragraph::new(lines).block(Block::bordered()), side);
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, table: &TopTable, state: &TopState) {
    if table.rows.is_empty() {
        let empty = if state.filter.is_empty() { table.empty } else { "No row has this text." };
        frame.render_widget(Paragraph::new(format!("\n  {empty}")), area);
        return;
    }
    let chosen = state.chosen();
    // Only what can be seen is laid out: there may be thousands.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = chosen.saturating_sub(height.saturating_sub(1)).min(chosen);
    let first = first.max(chosen.saturating_sub(height / 2).min(table.rows.len().saturating_sub(height)));
    let widths: Vec<Constraint> = table.heads.iter().map(|(_, width)| *width).collect();
    let places = Layout::horizontal(&widths).spacing(1).split(area);
    let cell =
        |((tone, text), place): (&StyledText, &Rect)| Cell::from(styled(&(*tone, cut(text, place.width)), state.color));
    let row = |row: &TopRow| Row::new(row.cells.iter().zip(places.iter()).map(cell).collect::<Vec<_>>());
    let rows = table.rows.iter().skip(first).take(height).map(row);
    let heads = table.heads.iter().map(|(name, _)| Cell::from(Line::styled(*name, style(Tone::Faint, state.color))));
    let shown = Table::new(rows, widths)
        .header(Row::new(heads))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut place = TableState::new().with_selected(Some(chosen - first));
    frame.render_stateful_widget(shown, area, &mut place);
}

/// A text in one line, with a sign where it goes on.
fn cut(text: &str, width: u16) -> String {
    let (line, width) = (clean(text.lines().next().unwrap_or_default()), usize::from(width));
    if Line::raw(&line).width() <= width {
        return line;
    }
    let mut short: String = line.chars().take(width).collect();
    while !short.is_empty() && Line::raw(&short).width() >= width {
        short.pop();
    }
    short + "…"
}

/// All columns of the board side by side.
fn board(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let Some(ScreenView::Board(view)) = state.screens.get(&Screen::Board) else { return };
    let areas = Layout::horizontal(vec![Constraint::Fill(1); view.columns.len()]).spacing(1).split(area);
    for ((n, column), area) in view.columns.iter().enumerate().zip(areas.iter()) {
        let here = n == state.column;
        let title = format!(" {} {} ", column.stage.as_str(), column.total);
        let weight = if here { Modifier::REVERSED } else { Modifier::BOLD };
        let block = Block::new().title(Span::styled(title, Style::new().add_modifier(weight)));
        let inner = block.inner(*area);
        frame.render_widget(block, *area);
        let fits = usize::from(inner.height / CARD).max(1);
        let chosen = state.chosen_in(n);
        let first = if chosen >= fits { chosen + 1 - fits } else { 0 };
        let wanted = state.filter.to_lowercase();
        let cards = column.cards.iter().filter(|card| wanted.is_empty() || card.title.to_lowercase().contains(&wanted));
        for (at, (k, card)) in cards.enumerate().skip(first).take(fits).enumerate() {
            let y = inner.y + u16::try_from(at).unwrap_or(u16::MAX).saturating_mul(CARD);
            let place = Rect { y, height: CARD.min(inner.bottom().saturating_sub(y)), ..inner };
            let says = match &card.agent {
                _ if card.needs_you => (Tone::Bad, "waits for you".to_owned()),
                Some(agent) => (Tone::Busy, agent.clone()),
                None => (Tone::Faint, card.note.clone().unwrap_or_default()),
            };
            let blocks = if card.unblocks > 0 { format!(" →{}", card.unblocks) } else { String::new() };
            let head = (Tone::Id, format!("{} P{}{blocks}", card.shown, card.priority));
            let lines = [&head, &(Tone::Plain, card.title.clone()), &says]
                .map(|(tone, text)| styled(&(*tone, cut(text, place.width)), state.color));
            let mark = if here && k == chosen { Modifier::REVERSED } else { Modifier::empty() };
            frame.render_widget(Paragraph::new(lines.to_vec()).style(Style::new().add_modifier(mark)), place);
        }
    }
}

/// An issue that is open.
fn issue(frame: &mut Frame<'_>, area: Rect, state: &TopState, page: &IssuePage) {
    let parts = Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)]).split(area);
    let (id, title) = match &page.issue {
        Some(open) => (open.view.shown.clone(), open.view.title.clone()),
        None => (page.about.1.clone(), String::new()),
    };
    let trouble = page.trouble.as_ref().map(|why| format!("  not up to date: {why}")).unwrap_or_default();
    frame.render_widget(
        Line::from(vec![
            Span::styled(format!(" {}  ", clean(&id)), style(Tone::Id, state.color)),
            Span::styled(clean(&title), style(Tone::Head, state.color)),
            Span::styled(clean(&trouble), style(Tone::Bad, state.color)),
        ]),
        parts[0],
    );
    let panes = Pane::ALL.into_iter().map(|pane| {
        let here = if pane == page.pane { Modifier::REVERSED } else { Modifier::empty() };
        Span::styled(format!(" {} ", pane.title()), Style::new().add_modifier(here))
    });
    frame.render_widget(Line::from(panes.collect::<Vec<_>>()), parts[1]);
    let lines = page.lines((state.clock)());
    let (height, width) = (usize::from(parts[2].height).max(1), usize::from(parts[2].width));
    let line = page.line.min(lines.len().saturating_sub(1));
    if page.pane == Pane::Diff {
        let first = line.saturating_sub(height / 2).min(lines.len().saturating_sub(height));
        let shown = lines.iter().enumerate().skip(first).take(height).map(|(n, one)| {
            let mark = if n == line { Modifier::REVERSED } else { Modifier::empty() };
            let line = (one.0, format!("{}{}", one.1, page.comments(n)));
            styled(&line, state.color).patch_style(Style::new().add_modifier(mark))
        });
        frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), parts[2]);
        return;
    }
    // Of a log the end is seen, of a text the beginning.
    let shown = match page.pane == Pane::Log && page.line == usize::MAX {
        true => {
            let last = &lines[lines.len().saturating_sub(height)..];
            let wrapped = wrapped(last, width, state.color);
            wrapped[wrapped.len().saturating_sub(height)..].to_vec()
        }
        false => wrapped(&lines[line.min(lines.len())..lines.len().min(line + height)], width, state.color),
    };
    frame.render_widget(Paragraph::new(shown), parts[2]);
}

/// Lines that go on below where they are too long.
fn wrapped(lines: &[StyledText], width: usize, color: bool) -> Vec<Line<'static>> {
    let mut all = Vec::new();
    for (tone, text) in lines {
        let (text, style) = (clean(text), style(*tone, color));
        let mut line = String::new();
        for word in text.split_inclusive(' ') {
            if !line.is_empty() && Line::raw(&line).width() + Line::raw(word.trim_end()).width() > width {
                all.push(Line::styled(std::mem::take(&mut line), style));
            }
            line.push_str(word);
            // A word that is longer than a line.
            while Line::raw(&line).width() > width.max(1) && line.chars().count() > width.max(1) {
                let cut = line.char_indices().nth(width.max(1)).map_or(line.len(), |(byte, _)| byte);
                let rest = line.split_off(cut);
                all.push(Line::styled(std::mem::replace(&mut line, rest), style));
            }
        }
        all.push(Line::styled(line, style));
    }
    all
}

/// Text above the screen.
fn draw_popup(frame: &mut Frame<'_>, area: Rect, popup: &Popup, title: &str) {
    let margin = area.width.min(4);
    let width = usize::from(area.width.saturating_sub(margin + 2));
    let lines: Vec<StyledText> =
        popup.text.lines().skip(popup.scroll).map(|line| (Tone::Plain, line.to_owned())).collect();
    let lines = wrapped(&lines, width, false);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let (x, y) = (area.x + margin / 2, area.bottom() - height);
    let inside = Rect { x, y, width: area.width - margin, height };
    frame.render_widget(Clear, inside);
    let block = Block::bordered().title(format!(" {} ", clean(title))).title_bottom(" Esc closes ");
    frame.render_widget(Paragraph::new(lines).block(block), inside);
}

/// The command behind the first key, what was said, and the keys.
fn footer(frame: &mut Frame<'_>, command: Rect, keys: Rect, state: &TopState) {
    if let Some(prompt) = &state.prompt {
        draw_prompt(frame, command, keys, prompt, state);
        return;
    }
    let actions = state.actions();
    let line = match (state.running.first(), &state.said) {
        (Some(running), None) => (Tone::Busy, format!(" runs: {}", state.shortened(running))),
        (_, Some(said)) => (Tone::Good, format!(" {said}")),
        (None, None) => (
            Tone::Faint,
            actions.first().map(|action| format!(" {}", state.shortened(&action.line()))).unwrap_or_default(),
        ),
    };
    frame.render_widget(styled(&line, state.color), command);
    let mut spans = Vec::new();
    let hints = actions.iter().map(|action| (action.key.to_string(), clean(&action.label)));
    let usual: &[(&str, &str)] = match (&state.popup, &state.issue) {
        (Some(_), _) => &[("Esc", "close")],
        (None, Some(_)) => {
            &[("Tab", "next"), ("d", "changes"), ("o", "log"), ("u", "undo"), ("Esc", "back"), ("?", "keys")]
        }
        (None, None) if state.screen == Screen::Board => {
            &[("←→", "column"), ("Enter", "open"), ("?", "keys"), ("q", "quit"), ("/", "filter"), (":", "command")]
        }
        (None, None) => {
            &[("Enter", "open"), ("?", "keys"), ("q", "quit"), ("d", "changes"), ("/", "filter"), (":", "command")]
        }
    };
    for (key, label) in hints.chain(usual.iter().map(|(key, label)| ((*key).to_owned(), (*label).to_owned()))) {
        spans.push(Span::styled(format!(" {key}"), Style::new().add_modifier(Modifier::BOLD)));
        spans.push(Span::raw(format!(" {label} ")));
    }
    frame.render_widget(Line::from(spans), keys);
}

fn draw_prompt(frame: &mut Frame<'_>, line: Rect, below: Rect, prompt: &Prompt, state: &TopState) {
    let (label, color) = (clean(&state.shortened(&prompt.label())), state.color);
    let before: String = prompt.text.chars().take(prompt.at).collect();
    let used = Line::raw(format!("{label}{before}")).width();
    // The cursor stays in sight.
    let skip = used.saturating_sub(usize::from(line.width.saturating_sub(1)));
    let shown =
        Paragraph::new(Line::from(vec![Span::styled(label, style(Tone::Head, color)), Span::raw(clean(&prompt.text))]));
    frame.render_widget(shown.scroll((0, u16::try_from(skip).unwrap_or(0))), line);
    if !matches!(prompt.purpose, Purpose::Confirm(_)) {
        let x = line.x.saturating_add(u16::try_from(used - skip).unwrap_or(0));
        frame.set_cursor_position((x.min(line.right().saturating_sub(1)), line.y));
    }
    let hint = prompt
        .command()
        .map(|command| state.shortened(&command))
        .unwrap_or_else(|| "Enter does it, Esc does not".to_owned());
    frame.render_widget(styled(&(Tone::Faint, format!(" {hint}")), color), below);
}
