//! Text within a token budget: fixed parts are complete, the others are cut by importance.
//!
//! The same parts and the same budget always produce the same text.

use crate::text::tokens;

/// A text that is assembled from parts, in reading order.
#[derive(Clone, Debug, Default)]
pub struct TokenBudgetText {
    parts: Vec<SheetPart>,
}

#[derive(Clone, Debug)]
struct SheetPart {
    title: String,
    body: PartBody,
    /// Its share of the budget, in hundredths, before unused shares are distributed.
    share: usize,
}

#[derive(Clone, Debug)]
enum PartBody {
    /// Never cut.
    Fixed(String),
    /// Pieces of text; the first is the most important. A piece that does not fit is cut in its middle.
    Pieces(Vec<String>, String),
    /// Lines; the first are the most important. Lines that do not fit are counted.
    Rows(Vec<String>, String),
}

impl TokenBudgetText {
    /// Text that is never cut.
    pub fn fixed(&mut self, text: impl Into<String>) {
        self.part("", PartBody::Fixed(text.into()), 0);
    }

    /// Pieces of text under a title, the most important first. `rest` says where to read the omitted text.
    pub fn pieces(&mut self, title: &str, pieces: Vec<String>, share: usize, rest: impl Into<String>) {
        if !pieces.is_empty() {
            self.part(title, PartBody::Pieces(pieces, rest.into()), share);
        }
    }

    /// Lines under a title, the most important first. `rest` says where to read the omitted lines.
    pub fn rows(&mut self, title: &str, rows: Vec<String>, share: usize, rest: impl Into<String>) {
        if !rows.is_empty() {
            self.part(title, PartBody::Rows(rows, rest.into()), share);
        }
    }

    fn part(&mut self, title: &str, body: PartBody, share: usize) {
        self.parts.push(SheetPart { title: title.to_owned(), body, share });
    }

    /// The text, within `budget` tokens unless the fixed parts alone exceed it.
    pub fn text(&self, budget: usize) -> String {
        let wanted: Vec<usize> = self.parts.iter().map(SheetPart::wanted).collect();
        let fixed: usize =
            self.parts.iter().zip(&wanted).filter(|(part, _)| part.share == 0).map(|(_, wanted)| wanted).sum();
        let free = budget.saturating_sub(fixed);
        let mut given: Vec<usize> =
            self.parts.iter().zip(&wanted).map(|(part, wanted)| (free * part.share / 100).min(*wanted)).collect();
        // What some do not need goes to the others, in the order they are read.
        let mut left = free.saturating_sub(given.iter().sum());
        for (part, (given, wanted)) in self.parts.iter().zip(given.iter_mut().zip(&wanted)) {
            if part.share > 0 {
                let more = (*wanted - *given).min(left);
                *given += more;
                left -= more;
            }
        }
        let mut text = String::new();
        for (part, room) in self.parts.iter().zip(given) {
            let written = part.write(room);
            if !written.is_empty() {
                text.push_str(&written);
                text.push('\n');
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

impl SheetPart {
    fn heading(&self) -> String {
        if self.title.is_empty() { String::new() } else { format!("## {}\n\n", self.title) }
    }

    fn wanted(&self) -> usize {
        let body: usize = match &self.body {
            PartBody::Fixed(text) => tokens(text),
            PartBody::Pieces(pieces, _) => pieces.iter().map(|piece| tokens(piece) + 2).sum(),
            PartBody::Rows(rows, _) => rows.iter().map(|row| tokens(row) + 1).sum(),
        };
        body + tokens(&self.heading()) + 1
    }

    fn write(&self, room: usize) -> String {
        let heading = self.heading();
        let mut left = room.saturating_sub(tokens(&heading) + 1);
        let (lines, rest, blank) = match &self.body {
            PartBody::Fixed(text) => return format!("{text}\n"),
            PartBody::Pieces(pieces, rest) => (pieces, rest, "\n\n"),
            PartBody::Rows(rows, rest) => (rows, rest, "\n"),
        };
        let whole = self.wanted() <= room;
        let mut text = String::new();
        let more = |count: usize| format!("… {count} more: {rest}\n");
        for (n, line) in lines.iter().enumerate() {
            let reserve = if whole { 0 } else { tokens(&more(lines.len())) };
            let cost = tokens(line) + blank.len();
            if cost + reserve <= left {
                text.push_str(line);
                text.push_str(blank);
                left -= cost;
                continue;
            }
            let cut = match (&self.body, n) {
                // The most important one is shown in part rather than not at all.
                (PartBody::Pieces(..), 0) => middle_out(line, left.saturating_sub(reserve + 2), rest),
                _ => None,
            };
            let shown = n + usize::from(cut.is_some());
            if let Some(cut) = cut {
                text.push_str(&cut);
                text.push_str(blank);
            }
            if shown < lines.len() && (shown > 0 || tokens(&more(lines.len())) <= left) {
                text.push_str(&more(lines.len() - shown));
            }
            break;
        }
        if text.is_empty() { text } else { format!("{heading}{}\n", text.trim_end()) }
    }
}

/// A text without its middle, so that it fits; nothing if too little would remain.
fn middle_out(text: &str, room: usize, rest: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let (first, last) = (lines.first()?, lines.last()?);
    let framed = first.starts_with("<data ") && *last == "</data>";
    let (open, inner, close) = match framed {
        true => (format!("{first}\n"), text[first.len()..text.len() - last.len()].trim_matches('\n'), "\n</data>"),
        false => (String::new(), text, ""),
    };
    let total = inner.chars().count();
    let (mut low, mut high) = (0, total);
    let cut = |keep: usize| {
        let head = keep * 2 / 3;
        let start: String = inner.chars().take(head).collect();
        let end: String = inner.chars().skip(total - (keep - head)).collect();
        format!("{open}{start}\n[… {} characters left out: {rest} …]\n{end}{close}", total - keep)
    };
    while low < high {
        let keep = (low + high).div_ceil(2);
        if tokens(&cut(keep)) <= room { low = keep } else { high = keep - 1 }
    }
    (low >= 40).then(|| cut(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> TokenBudgetText {
        let mut sheet = TokenBudgetText::default();
        sheet.fixed("# Head");
        let long: String = (0..400).map(|n| format!("word{n} and more of it. ")).collect();
        sheet.pieces("Notes", vec![crate::text::quoted("ana", &long), "old note".into()], 50, "toft show x");
        sheet.rows("Rows", (0..300).map(|n| format!("- row {n} is here")).collect(), 50, "toft list");
        sheet.fixed("Rules");
        sheet
    }

    #[test]
    fn a_sheet_fits_its_budget_and_keeps_what_is_fixed() {
        for budget in [120, 200, 500, 1_000, 4_000] {
            let text = sheet().text(budget);
            assert!(tokens(&text) <= budget, "{budget}: {} tokens\n{text}", tokens(&text));
            assert!(text.starts_with("# Head\n") && text.trim_end().ends_with("Rules"), "{text}");
        }
        assert_eq!(sheet().text(500), sheet().text(500));
    }

    #[test]
    fn what_fits_is_whole_and_what_is_left_out_is_counted() {
        let whole = sheet().text(100_000);
        assert!(whole.contains("row 299") && whole.contains("old note") && !whole.contains('…'), "{whole}");
        let cut = sheet().text(700);
        assert!(cut.contains("characters left out: toft show x") && cut.contains("</data>"), "{cut}");
        let shown = cut.lines().filter(|line| line.starts_with("- row")).count();
        assert!(cut.contains(&format!("… {} more: toft list", 300 - shown)), "{cut}");
    }
}
