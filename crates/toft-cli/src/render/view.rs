//! An outcome on its way to its caller: a command makes a [`CommandView`], and `Output` prints it.

use serde::Serialize;
use serde_json::{Value, json};

use super::{page::Page, table};

/// The ids of a view that names nothing.
pub(super) const NO_IDS: [&str; 0] = [];

/// An outcome of a command, as JSON, as ids, and as text for people. JSON and text are made when they are asked for.
pub(crate) struct CommandView<'a> {
    pub(crate) kind: &'a str,
    data: Box<dyn Fn() -> Value + 'a>,
    pub(super) ids: Vec<String>,
    more: Option<bool>,
    total: Option<u64>,
    pub(super) for_pager: bool,
    text: Box<dyn Fn(&mut Page) + 'a>,
}

impl<'a> CommandView<'a> {
    /// A view of `data`: `ids` are what `-q` prints, and `text` writes what people read.
    pub(super) fn new<I: ToString>(
        kind: &'a str,
        data: impl Serialize + 'a,
        ids: impl IntoIterator<Item = I>,
        text: impl Fn(&mut Page) + 'a,
    ) -> Self {
        Self {
            kind,
            data: Box::new(move || self::data(&data)),
            ids: ids.into_iter().map(|id| id.to_string()).collect(),
            more: None,
            total: None,
            for_pager: false,
            text: Box::new(text),
        }
    }

    /// A view whose text is one line.
    pub(super) fn of_line<I: ToString>(
        kind: &'a str,
        data: impl Serialize + 'a,
        ids: impl IntoIterator<Item = I>,
        line: String,
    ) -> Self {
        Self::new(kind, data, ids, move |page| page.line(&line))
    }

    /// For lists: tells whether rows were left out.
    pub(super) fn with_more(self, more: bool) -> Self {
        Self { more: Some(more), ..self }
    }

    /// For lists: tells how many rows there are, shown or not.
    pub(super) fn with_total(self, total: u64) -> Self {
        Self { total: Some(total), ..self }
    }

    /// Lets people read it in a pager if it is longer than their terminal.
    pub(super) fn in_pager(self) -> Self {
        Self { for_pager: true, ..self }
    }

    /// A view of what an operation showed when it ran, as [`Self::remembered`] gave it.
    pub(crate) fn repeated(answer: &'a Value) -> Self {
        let ids = answer["ids"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Self::new(answer["kind"].as_str().unwrap_or_default(), &answer["data"], ids, |page| {
            answer["text"].as_str().unwrap_or_default().lines().for_each(|line| page.line(line));
        })
    }

    pub(super) fn remembered(&self) -> Value {
        let text = self.laid_out(false, None, &str::to_owned);
        json!({ "kind": self.kind, "data": self.json(), "ids": self.ids, "text": text })
    }

    pub(crate) fn json(&self) -> Value {
        (self.data)()
    }

    /// How much of a list is shown, in JSON.
    pub(super) fn page(&self) -> Option<Value> {
        let mut page = json!({ "more": self.more? });
        if let Some(total) = self.total {
            page["total"] = total.into();
        }
        Some(page)
    }

    /// Writes the text, whose tables are not laid out yet.
    pub(super) fn write(&self, page: &mut Page) {
        (self.text)(page);
    }

    /// The text with its ids abbreviated by `shorten`, and its tables in columns: no wider than `width`, if that is known.
    pub(super) fn laid_out(&self, color: bool, width: Option<usize>, shorten: &dyn Fn(&str) -> String) -> String {
        let mut page = Page::new(color);
        self.write(&mut page);
        // Columns are as wide as what stands in them, so ids are abbreviated first.
        table::lay_out(&shorten(page.text()), width)
    }
}

/// A value as JSON; every outcome can be.
pub(super) fn data(value: &(impl Serialize + ?Sized)) -> Value {
    toft::json::to_value(value).unwrap_or_default()
}
