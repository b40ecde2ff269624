//! The tree of a TOML file with the place of every key and value, in the order of the file.
//!
//! Axes of a matrix are put in here, before anything is decoded, so that `"$partitions"` can stand for a number.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key, where it stands, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) node: Node,
}

/// A step on the way to a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum At<'a> {
    Key(&'a str),
    Index(usize),
}

impl Node {
    /// Reads a whole file.
    ///
    /// # Errors
    /// Every syntax error with its place.
    pub(super) fn parse(text: &str) -> Result<Node, Vec<(Range<usize>, String)>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok(Node {
                span: 0..0,
                value: table(root.get_ref()),
            });
        }
        Err(errors
            .into_iter()
            .map(|error| (error.span().unwrap_or(0..0), error.message().replace('\n', ", ")))
            .collect())
    }

    /// The entries of a table.
    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Table(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value of a key of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries()?.iter().find(|entry| entry.key == key)
    }

    /// Where the value at `path` stands; where it is absent, the nearest thing above it that is there.
    pub(super) fn span_at(&self, path: &[At<'_>]) -> Range<usize> {
        let mut node = self;
        for at in path {
            let next = match (at, &node.value) {
                (At::Key(key), _) => node.get(key),
                (At::Index(n), Value::Array(items)) => items.get(*n),
                (At::Index(_), _) => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.span.clone()
    }

    /// Calls `see` with every text in the tree.
    pub(super) fn each_text(&self, see: &mut impl FnMut(&str, &Range<usize>)) {
        match &self.value {
            Value::Text(text) => see(text, &self.span),
            Value::Array(items) => items.iter().for_each(|item| item.each_text(see)),
            Value::Table(entries) => entries.iter().for_each(|entry| entry.node.each_text(see)),
            _ => {}
        }
    }

    /// A copy in which every text that `value_of` knows is replaced.
    pub(super) fn replaced(&self, value_of: &impl Fn(&str) -> Option<Node>) -> Node {
        let value = match &self.value {
            Value::Text(text) => {
                if let Some(replacement) = value_of(text) {
                    return replacement;
                }
                Value::Text(text.clone())
            }
            Value::Array(items) => Value::Array(items.iter().map(|item| item.replaced(value_of)).collect()),
            Value::Table(entries) => Value::Table(
                entries
                    .iter()
                    .map(|entry| Entry {
                        node: entry.node.replaced(value_of),
                        ..entry.clone()
                    })
                    .collect(),
            ),
            scalar => scalar.clone(),
        };
        Node {
            span: self.span.clone(),
            value,
        }
    }
}

impl Value {
    /// What it is, for messages.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number with a fraction",
            Value::Boolean(_) => "true or false",
            Value::Datetime(_) => "a date or time",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }
}

fn node(value: &Spanned<DeValue<'_>>) -> Node {
    Node {
        span: value.span(),
        value: match value.get_ref() {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(number) => {
                // A number of more than 38 digits keeps its sign only; nothing here counts that far.
                let out_of_range = if number.as_str().starts_with('-') {
                    i128::MIN
                } else {
                    i128::MAX
                };
                Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(out_of_range))
            }
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(yes) => Value::Boolean(*yes),
            DeValue::Datetime(time) => Value::Datetime(time.to_string()),
            DeValue::Array(items) => Value::Array(items.iter().map(node).collect()),
            DeValue::Table(entries) => table(entries),
        },
    }
}

fn table(entries: &DeTable<'_>) -> Value {
    let mut entries: Vec<Entry> = entries
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().clone().into_owned(),
            key_span: key.span(),
            node: node(value),
        })
        .collect();
    // toml's table is sorted by key; axes and messages go by the order of the file.
    entries.sort_by_key(|entry| entry.key_span.start);
    Value::Table(entries)
}
