//! The bundled readers on rdkafka: four correct references and three teaching readers.
//!
//! ```text
//! stdin/stdout <- sdk <- by_hand (table, assign) | group <- core (state, supervision) <- client (rdkafka)
//!                              ^ policy: the one decision that makes a teaching reader, or a stored table
//!                              ^ store:  what a stored table keeps on disk
//!                              ^ hooks:  where the mutants of the tests take hold
//! ```
//!
//! All seven are the same code; one differs from the plain reference of its kind in one decision of its [`policy::Policy`].

mod by_hand;
mod client;
mod core;
mod group;
pub mod hooks;
pub mod policy;
mod store;
mod table;

use std::process::ExitCode;
use std::sync::Arc;

use brokerfall_report::exception::Exception;
use brokerfall_report::protocol::{Hello, Kind, PROTOCOL, RECORDS_IDS, RECORDS_OFFSETS, STATE, STATIC_MEMBER, Start};

use super::sdk::{self, Reader, Sdk, exceptions};
use hooks::{Honest, Hooks};
use policy::{Keeps, Policy};

/// A bundled reader.
#[derive(Debug, Clone, Copy)]
pub struct Bundled {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// The kind that it builds.
    pub kind: Kind,
    /// What tells it from the reference of its kind.
    pub policy: Policy,
}

/// The seven bundled readers, references first.
pub const BUNDLED: [Bundled; 7] = [
    Bundled {
        name: "reference-table",
        kind: Kind::Table,
        policy: Policy::REFERENCE,
    },
    Bundled {
        name: "reference-table-stored",
        kind: Kind::Table,
        policy: Policy::STORED,
    },
    Bundled {
        name: "reference-group",
        kind: Kind::Group,
        policy: Policy::REFERENCE,
    },
    Bundled {
        name: "reference-assign",
        kind: Kind::Assign,
        policy: Policy::REFERENCE,
    },
    Bundled {
        name: "teaching-callback-fatal",
        kind: Kind::Table,
        policy: Policy::CALLBACK_FATAL,
    },
    Bundled {
        name: "teaching-reset-latest",
        kind: Kind::Table,
        policy: Policy::RESET_LATEST,
    },
    Bundled {
        name: "teaching-consume-once",
        kind: Kind::Group,
        policy: Policy::CONSUME_ONCE,
    },
];

/// Runs the bundled reader of this name as an adapter on stdin and stdout. Status 2 when there is none.
pub fn main(name: &str) -> ExitCode {
    let Some(bundled) = BUNDLED.iter().find(|bundled| bundled.name == name) else {
        return ExitCode::from(2);
    };
    speak(bundled.name, bundled.kind, bundled.policy, Arc::new(Honest))
}

/// Speaks the adapter protocol as a reader of this kind and policy, with hooks that may make it a mutant.
pub fn speak(name: &str, kind: Kind, policy: Policy, hooks: Arc<dyn Hooks>) -> ExitCode {
    sdk::run(hello(name, kind, policy), move |start, sdk| {
        build(start, sdk, kind, policy, hooks.clone())
    })
}

fn build(
    start: &Start,
    sdk: Sdk,
    kind: Kind,
    policy: Policy,
    hooks: Arc<dyn Hooks>,
) -> Result<Arc<dyn Reader>, Box<Exception>> {
    if start.kind != kind {
        let text = format!("this reader is a {}, not a {}", kind.name(), start.kind.name());
        return Err(exceptions::plain("brokerfall::reader::bundled::WrongKind", &text));
    }
    hooks.built(&sdk, start);
    match kind {
        Kind::Table | Kind::Assign => Ok(by_hand::ByHand::start(start, policy, hooks, sdk)?),
        Kind::Group => Ok(group::Group::start(start, policy, hooks, sdk)?),
    }
}

fn hello(name: &str, kind: Kind, policy: Policy) -> Hello {
    let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
    let mut capabilities = vec![
        RECORDS_OFFSETS,
        RECORDS_IDS,
        "heartbeat.positions",
        "status",
        "arm_callback",
        "restart",
        "reset",
    ];
    match kind {
        Kind::Table => capabilities.extend(["snapshot", "barrier", "wait_caught_up", "caught_up"]),
        Kind::Assign => capabilities.extend(["wait_caught_up", "caught_up"]),
        Kind::Group => capabilities.extend(["rebalanced", "committed", "commit", "returned", STATIC_MEMBER]),
    }
    if policy.keeps == Keeps::OnDisk {
        capabilities.push(STATE);
    }
    Hello {
        protocol: PROTOCOL,
        library: format!("{name} {}", env!("CARGO_PKG_VERSION")),
        client: format!("librdkafka {librdkafka}"),
        runtime: format!("rust >={}", env!("CARGO_PKG_RUST_VERSION")),
        kinds: vec![kind],
        capabilities: capabilities.into_iter().map(str::to_owned).collect(),
    }
}
