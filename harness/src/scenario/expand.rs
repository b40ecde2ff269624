//! The matrix: named axes, and one tree for each combination of their values.

use super::diagnostics::{Sink, nearest, quoted};
use super::tree::{At, Node, Value};

/// More plans than this from one file are a slip, not a wish.
const MOST_PLANS: usize = 500;

/// The axes of a file, in its order.
#[derive(Debug, Clone, Default)]
pub(super) struct Matrix {
    axes: Vec<Axis>,
}

#[derive(Debug, Clone)]
struct Axis {
    name: String,
    values: Vec<(String, Node)>,
}

/// One value for each axis.
pub(super) struct Choice<'a>(Vec<(&'a str, &'a str, &'a Node)>);

impl Matrix {
    /// Reads `matrix` and checks every `$name` of the file against it.
    pub(super) fn read(root: &Node, sink: &Sink<'_>) -> Self {
        let mut matrix = Matrix::default();
        if let Some(table) = root.get("matrix") {
            match table.entries() {
                Some(entries) => {
                    for entry in entries {
                        if !is_name(&entry.key) {
                            sink.push(
                                &entry.key_span,
                                format!(
                                    "axis {} is no name (wanted a small letter, then small letters, digits and `-`)",
                                    quoted(&entry.key)
                                ),
                            );
                        }
                        let values = axis_values(&entry.key, &entry.node, sink);
                        matrix.axes.push(Axis {
                            name: entry.key.clone(),
                            values,
                        });
                    }
                }
                None => sink.push(
                    &table.span,
                    format!("`matrix` is {} (wanted a table of arrays)", table.value.noun()),
                ),
            }
        }
        matrix.check_uses(root, sink);
        let plans = matrix
            .axes
            .iter()
            .map(|axis| axis.values.len())
            .fold(1, usize::saturating_mul);
        if plans > MOST_PLANS {
            sink.push(
                &root.span_at(&[At::Key("matrix")]),
                format!("the matrix makes {plans} plans (at most {MOST_PLANS})"),
            );
        }
        matrix
    }

    fn check_uses(&self, root: &Node, sink: &Sink<'_>) {
        let mut used = Vec::new();
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        let mut see = |text: &str, span: &std::ops::Range<usize>| {
            for name in names_in(text) {
                if text.len() != name.len() + 1 {
                    if names.contains(&name) {
                        sink.push(
                            span,
                            format!("`${name}` stands inside a longer string (wanted it as the whole value)"),
                        );
                    }
                } else if names.contains(&name) {
                    used.push(name.to_owned());
                } else {
                    let hint = match nearest(name, names.iter().copied()) {
                        Some(near) => format!("did you mean `${near}`?"),
                        None => "no axis of `matrix` has this name".to_owned(),
                    };
                    sink.push(span, format!("unknown name `${name}` ({hint})"));
                }
            }
        };
        for entry in root.entries().unwrap_or_default() {
            if entry.key != "matrix" {
                entry.node.each_text(&mut see);
            }
        }
        for axis in &self.axes {
            if !used.contains(&axis.name) {
                sink.push(
                    &root.span_at(&[At::Key("matrix"), At::Key(&axis.name)]),
                    format!("axis `{0}` is never used (write \"${0}\" as a value)", axis.name),
                );
            }
        }
    }

    /// Every combination; the last axis changes fastest.
    pub(super) fn choices(&self) -> Vec<Choice<'_>> {
        let mut choices = vec![Vec::new()];
        for axis in &self.axes {
            choices = choices
                .into_iter()
                .flat_map(|choice| {
                    axis.values.iter().map(move |(shown, value)| {
                        let mut longer = choice.clone();
                        longer.push((axis.name.as_str(), shown.as_str(), value));
                        longer
                    })
                })
                .collect();
        }
        choices.into_iter().map(Choice).collect()
    }
}

impl Choice<'_> {
    /// `[axis=value,…]`, empty without axes.
    pub(super) fn suffix(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(name, shown, _)| format!("{name}={shown}"))
            .collect();
        format!("[{}]", parts.join(","))
    }

    /// The tree with every `$name` replaced.
    pub(super) fn apply(&self, root: &Node) -> Node {
        root.replaced(&|text| {
            let name = text.strip_prefix('$')?;
            let (_, _, value) = self.0.iter().find(|(axis, _, _)| *axis == name)?;
            Some((*value).clone())
        })
    }
}

fn axis_values(name: &str, node: &Node, sink: &Sink<'_>) -> Vec<(String, Node)> {
    let Value::Array(items) = &node.value else {
        sink.push(
            &node.span,
            format!(
                "axis {} is {} (wanted an array of values)",
                quoted(name),
                node.value.noun()
            ),
        );
        return Vec::new();
    };
    if items.is_empty() {
        sink.push(
            &node.span,
            format!("axis {} has no value (wanted one at least)", quoted(name)),
        );
    }
    let mut values: Vec<(String, Node)> = Vec::new();
    for item in items {
        let shown = match &item.value {
            // A rate is shown by its number: `/` stands between the folders of an id.
            Value::Text(text) => match text.strip_suffix("/s").map(str::trim_end) {
                Some(rate) if rate.parse::<f64>().is_ok() => rate.to_owned(),
                _ => text.clone(),
            },
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(yes) => yes.to_string(),
            other => {
                sink.push(
                    &item.span,
                    format!(
                        "a value of axis {} is {} (wanted a string, a number, true or false)",
                        quoted(name),
                        other.noun()
                    ),
                );
                continue;
            }
        };
        // The text becomes part of the id, which is parsed again on the command line and names folders.
        if shown.is_empty() || !shown.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            sink.push(
                &item.span,
                format!(
                    "value {} of axis {} cannot be part of an id (wanted letters, digits, `.`, `_`, `-`)",
                    quoted(&shown),
                    quoted(name)
                ),
            );
        } else if values.iter().any(|(known, _)| *known == shown) {
            sink.push(
                &item.span,
                format!("axis {} has the value {} twice", quoted(name), quoted(&shown)),
            );
        }
        values.push((shown, item.clone()));
    }
    values
}

fn is_name(text: &str) -> bool {
    names_in(&format!("${text}")).next() == Some(text)
}

/// The `name` of every `$name` in a text. A `$` before anything but a small letter is only a character.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).filter_map(|rest| {
        let end = rest
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
            .unwrap_or(rest.len());
        rest.starts_with(|c: char| c.is_ascii_lowercase()).then(|| &rest[..end])
    })
}

#[cfg(test)]
mod tests {
    use crate::scenario::load;

    #[test]
    fn rate_can_be_an_axis_and_is_shown_by_its_number() {
        let text = "format = 1\ntitle = \"t\"\nphase = \"live\"\nmatrix = { rate = [\"25/s\", \"0.5 /s\"] }\n\
                    load = { rate = \"$rate\", until = \"end\" }\n[[topic]]\nname = \"t\"\n";
        let plans = load("a/b", text).and_then(|scenario| scenario.plans()).unwrap();
        let rates: Vec<_> = plans
            .iter()
            .map(|plan| (plan.id.as_str(), plan.load.as_ref().unwrap().per_second))
            .collect();
        assert_eq!(rates, [("a/b[rate=25]", 25.0), ("a/b[rate=0.5]", 0.5)]);
    }
}
