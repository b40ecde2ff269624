//! Scenarios: TOML files, checked and expanded into plans. No I/O below [`plan`]; no clock anywhere.
//!
//! ```text
//! text -> tree (places kept) -> one tree for each combination of the matrix, `repeat` unrolled -> Plan -> checks -> run loop
//!                                                                                +-> needs, kinds, sentences
//! ```
//!
//! Deliberately not here: what a fault does (`fault`), and whether cluster and reader of this machine can serve a plan
//! (the run loop asks [`Plan::needs`]).

pub mod catalogue;
mod check;
mod decode;
mod diagnostics;
pub mod duration;
mod expand;
pub mod expected;
pub mod known_failing;
pub mod needs;
pub mod plan;
mod read;
mod record;
mod repeat;
mod section;
mod sentence;
mod tree;
pub mod words;
mod write;

use std::collections::BTreeSet;

pub use diagnostics::{Diagnostic, Diagnostics, nearest, unknown};
pub use needs::{Need, Unmet};
pub use plan::Plan;

use brokerfall_report::history::Phase;
use brokerfall_report::protocol::Kind;

use diagnostics::Sink;
use expand::Matrix;
use tree::Node;

/// A scenario file, read and not yet expanded.
///
/// ```
/// let text = r#"
/// ## Nothing happens. A reader that is left alone must stay well.
/// format = 1
/// title = "No fault"
/// matrix = { partitions = [1, 3] }
/// [[topic]]
/// name = "orders"
/// partitions = "$partitions"
/// "#;
/// let plans = brokerfall::scenario::load("mine/idle", text)?.plans()?;
/// assert_eq!(plans[1].id, "mine/idle[partitions=3]");
/// assert_eq!(plans[1].topics[0].partitions, 3);
/// # Ok::<(), brokerfall::scenario::Diagnostics>(())
/// ```
#[derive(Debug, Clone)]
pub struct Scenario {
    /// `folder/name` of a bundled scenario, the path of a user's own.
    pub id: String,
    /// How diagnostics name the file.
    pub file: String,
    /// The comment that opens the file.
    pub story: String,
    text: String,
    root: Node,
    matrix: Matrix,
}

/// Reads a scenario. A path that ends in `.toml` names a user's own file; anything else is the id of a bundled one.
///
/// # Errors
/// Everything that is wrong with the file before its matrix is expanded; [`Scenario::plans`] finds the rest.
pub fn load(path_or_id: &str, text: &str) -> Result<Scenario, Diagnostics> {
    let file = if path_or_id.ends_with(".toml") {
        path_or_id.to_owned()
    } else {
        format!("scenarios/{path_or_id}.toml")
    };
    let sink = Sink::new(&file, text);
    let root = sink.parse()?;
    let matrix = Matrix::read(&root, &sink);
    let (root, matrix) = sink.finish((root, matrix))?;
    Ok(Scenario {
        id: path_or_id.to_owned(),
        story: story(text),
        text: text.to_owned(),
        file,
        root,
        matrix,
    })
}

impl Scenario {
    /// One plan for each combination of the matrix, in the order of the file; exactly one where there is no matrix.
    ///
    /// # Errors
    /// Everything that is wrong with any of them, each said once.
    pub fn plans(&self) -> Result<Vec<Plan>, Diagnostics> {
        let sink = Sink::new(&self.file, &self.text);
        let mut plans = Vec::new();
        for choice in self.matrix.choices() {
            let root = repeat::unrolled(choice.apply(&self.root), &sink);
            let id = format!("{}{}", self.id, choice.suffix());
            if let Some(draft) = read::plan(&root, id, &self.story, &sink) {
                check::draft(&draft, &root, &sink);
                plans.extend(draft.whole.then_some(draft.plan));
            }
        }
        sink.finish(plans)
    }

    /// What `list` shows.
    ///
    /// # Errors
    /// Those of [`Scenario::plans`].
    pub fn summary(&self) -> Result<Summary, Diagnostics> {
        let plans = self.plans()?;
        let mut tags = BTreeSet::new();
        let mut phases = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        for plan in &plans {
            tags.extend(plan.tags.iter().cloned());
            phases.insert(plan.phase);
            kinds.extend(plan.kinds());
        }
        Ok(Summary {
            id: self.id.clone(),
            title: plans.first().map(|plan| plan.title.clone()).unwrap_or_default(),
            tags: tags.into_iter().collect(),
            phases: phases.into_iter().collect(),
            kinds: kinds.into_iter().collect(),
            plans: plans.into_iter().map(|plan| plan.id).collect(),
        })
    }
}

/// A scenario as `list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Id without axes.
    pub id: String,
    /// Title of its first plan.
    pub title: String,
    /// Tags of all its plans.
    pub tags: Vec<String>,
    /// Phases of all its plans.
    pub phases: Vec<Phase>,
    /// Kinds of reader that any of its plans can use.
    pub kinds: Vec<Kind>,
    /// Ids of its plans, with axes.
    pub plans: Vec<String>,
}

/// The comment that opens a file, without its marks.
fn story(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .take_while(|line| line.starts_with('#'))
        .map(|line| {
            let line = line.trim_start_matches('#');
            line.strip_prefix(' ').unwrap_or(line)
        })
        .collect::<Vec<_>>()
        .join("\n")
}
