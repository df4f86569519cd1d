//! Columns that line up: the one printer of lists.
//!
//! [`Page::row`](super::Page::row) writes the cells of a row with a separator between them, and [`lay_out`] makes
//! columns of them at the end, when ids have the length that people see. Rows of one indentation are a table until
//! another line stands there or left of it; lines further right are details of the row above. A column that is empty in
//! every row is left out.

use std::collections::BTreeMap;

use console::{Alignment, measure_text_width, pad_str, truncate_str};

/// Stands between the cells of a row. Text from outside cannot hold it: `clean` makes it visible.
pub(super) const CELL_SEPARATOR: char = '\u{1f}';
/// Begins a cell of words, the last of its row: it is as long as it is, and never cut.
pub(super) const WORDS_MARK: char = '\u{1e}';
/// A line that ends the tables above it, and is not printed.
pub(super) const TABLE_END: &str = "\u{1f}";
/// Stands between columns.
const COLUMN_GAP: &str = "  ";
/// Width that a column keeps when a table is wider than the terminal.
const MIN_CUT_COLUMNS: usize = 12;

/// Lays out the tables in a text, each no wider than `max_width` if its columns can be cut so far.
pub(super) fn lay_out(text: &str, max_width: Option<usize>) -> String {
    if !text.contains(CELL_SEPARATOR) {
        return text.to_owned();
    }
    let mut tables: Vec<ColumnWidths> = Vec::new();
    // By the indentation of their rows.
    let mut open_tables: BTreeMap<usize, usize> = BTreeMap::new();
    let mut lines: Vec<(&str, Option<usize>)> = Vec::new();
    for line in text.lines() {
        if line == TABLE_END {
            open_tables.clear();
            continue;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        let is_row = line.contains(CELL_SEPARATOR);
        open_tables.retain(|column, _| *column < indent || is_row && *column == indent);
        let table = is_row.then(|| {
            let table = *open_tables.entry(indent).or_insert(tables.len());
            if table == tables.len() {
                tables.push(ColumnWidths::default());
            }
            tables[table].widen(line);
            table
        });
        lines.push((line, table));
    }
    if let Some(max_width) = max_width {
        tables.iter_mut().for_each(|table| table.fit(max_width));
    }
    let laid_out = lines.into_iter().map(|(line, table)| match table {
        Some(table) => tables[table].row(line) + "\n",
        None => format!("{line}\n"),
    });
    laid_out.collect()
}

/// How wide the columns of a table are.
#[derive(Default)]
struct ColumnWidths(Vec<usize>);

impl ColumnWidths {
    fn widen(&mut self, line: &str) {
        for (column, cell) in line.split(CELL_SEPARATOR).enumerate() {
            let width = if cell.starts_with(WORDS_MARK) { 1 } else { measure_text_width(cell) };
            match self.0.get_mut(column) {
                Some(known) => *known = width.max(*known),
                None => self.0.push(width),
            }
        }
    }

    /// Cuts the widest columns.
    fn fit(&mut self, max_width: usize) {
        loop {
            let shown = self.0.iter().filter(|width| **width > 0).count();
            let excess =
                (self.0.iter().sum::<usize>() + COLUMN_GAP.len() * shown.saturating_sub(1)).saturating_sub(max_width);
            match self.0.iter_mut().max() {
                Some(widest) if excess > 0 && *widest > MIN_CUT_COLUMNS => {
                    *widest = widest.saturating_sub(excess).max(MIN_CUT_COLUMNS);
                }
                _ => return,
            }
        }
    }

    fn row(&self, line: &str) -> String {
        let cells = line.split(CELL_SEPARATOR).zip(&self.0).filter(|(_, width)| **width > 0);
        let cells = cells.map(|(cell, width)| match cell.strip_prefix(WORDS_MARK) {
            Some(words) => words.to_owned(),
            None => pad_str(&truncate_str(cell, *width, "…"), *width, Alignment::Left, None).into_owned(),
        });
        cells.collect::<Vec<_>>().join(COLUMN_GAP).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(text: &str, max_width: Option<usize>) -> String {
        lay_out(&text.replace('|', "\u{1f}"), max_width)
    }

    #[test]
    fn columns_line_up_and_empty_ones_are_left_out() {
        assert_eq!(laid_out("a|P1||one\nlonger|P2||two|x\n", None), "a       P1  one\nlonger  P2  two  x\n");
    }

    #[test]
    fn details_are_no_end_of_a_table_and_have_their_own() {
        let text = "ab|1\n  x|2\n  long|3\nabcd|4\nTotal\na|5\n";
        assert_eq!(laid_out(text, None), "ab    1\n  x     2\n  long  3\nabcd  4\nTotal\na  5\n");
    }

    #[test]
    fn colours_take_no_width() {
        assert_eq!(laid_out("\u{1b}[36ma\u{1b}[0m|1\nbcd|2\n", None), "\u{1b}[36ma\u{1b}[0m    1\nbcd  2\n");
    }

    #[test]
    fn widest_column_is_cut_to_the_terminal() {
        let text = "tf-1|a title that is far too long|ready\n";
        assert_eq!(laid_out(text, Some(30)), "tf-1  a title that is …  ready\n");
        assert_eq!(laid_out(text, Some(5)), "tf-1  a title tha…  ready\n");
        let text = "tf-1|\u{1e}words are what nobody wants to be cut\n";
        assert_eq!(laid_out(text, Some(5)), "tf-1  words are what nobody wants to be cut\n");
    }
}
