//! Cuts in any order and overlap: once all are healed, bytes flow unchanged.

use std::time::Duration;

use brokerfall::link::{Connects, Cut, CutHeal, CutMode, Direction, Link};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::lab::*;

/// Longest that a client tries to connect.
const TRY: Duration = Duration::from_millis(20);

/// A step of a random sequence.
#[derive(Debug, Clone)]
enum Step {
    Cut(Cut),
    HealOldest,
    HealNewest,
    /// The broker is said to be going, and does not.
    Going,
    Back,
}

fn step() -> impl Strategy<Value = Step> {
    let by = Duration::from_millis(3);
    let mode = prop_oneof![
        3 => Just(CutMode::Hold),
        1 => Just(CutMode::Reset),
        1 => Just(CutMode::Refuse),
        3 => Just(CutMode::Throttle { bytes_per_s: 50_000 }),
        3 => Just(CutMode::Delay { by, jitter: by }),
        1 => (0u64..40, prop::option::of(1u64..3)).prop_map(|(after_bytes, times)| CutMode::MidResponse {
            after_bytes,
            api: None,
            times,
        }),
    ];
    let direction = prop_oneof![
        Just(Direction::Both),
        Just(Direction::ToBroker),
        Just(Direction::ToReader)
    ];
    let heals = prop_oneof![3 => Just(CutHeal::Keep), 1 => Just(CutHeal::Reset)];
    let connects = prop_oneof![3 => Just(Connects::Accepted), 1 => Just(Connects::Unanswered)];
    let cut = (mode, direction, heals, connects).prop_map(|(mode, direction, heals, connects)| Cut {
        nodes: vec![1],
        mode,
        direction,
        heals,
        connects,
    });
    prop_oneof![
        4 => cut.prop_map(Step::Cut),
        1 => Just(Step::HealOldest),
        1 => Just(Step::HealNewest),
        1 => Just(Step::Going),
        1 => Just(Step::Back),
    ]
}

/// Whether a connection lives through it.
fn spares_connections(cut: &Cut) -> bool {
    match cut.mode {
        CutMode::Hold => cut.heals == CutHeal::Keep,
        CutMode::Throttle { .. } | CutMode::Delay { .. } => true,
        CutMode::Reset | CutMode::Refuse | CutMode::MidResponse { .. } => false,
    }
}

/// `going_closes`: the link closes the connections to a broker that is said to be going.
async fn cut_and_heal(lab: Lab<impl Link>, steps: Vec<Step>, going_closes: bool) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let is_spared = steps.iter().all(|step| match step {
        Step::Cut(cut) => spares_connections(cut),
        Step::Going => !going_closes,
        Step::HealOldest | Step::HealNewest | Step::Back => true,
    });
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    let mut cuts = Vec::new();
    for (id, step) in (2..).zip(steps) {
        match step {
            Step::Cut(cut) => cuts.push(lab.link.cut(cut).await.unwrap()),
            Step::HealOldest if !cuts.is_empty() => lab.link.heal(cuts.remove(0)).await.unwrap(),
            Step::HealNewest if !cuts.is_empty() => lab.link.heal(cuts.remove(cuts.len() - 1)).await.unwrap(),
            Step::HealOldest | Step::HealNewest => {}
            Step::Going => lab.link.broker_going(1).await.unwrap(),
            Step::Back => lab.link.broker_back(1, SOON).await.unwrap(),
        }
        // Whatever is in force, a client may try, and both sides may send.
        drop(timeout(TRY, TcpStream::connect(lab.address())).await);
        if is_spared {
            asked.extend(request(id, "r1", 900));
            answered.extend(response(id, 900));
            reader.write_all(&request(id, "r1", 900)).await.unwrap();
            broker.write_all(&response(id, 900)).await.unwrap();
        }
    }
    for cut in cuts {
        lab.link.heal(cut).await.unwrap();
    }
    lab.link.broker_back(1, SOON).await.unwrap();
    if is_spared {
        assert_eq!(read(&mut broker, asked.len()).await, asked);
        assert_eq!(read(&mut reader, answered.len()).await, answered);
    }
    let (mut reader, mut broker) = lab.pair("r1").await;
    let answer = response(1, 100_000);
    broker.write_all(&answer).await.unwrap();
    assert_eq!(read(&mut reader, answer.len()).await, answer);
    lab.link.shutdown().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bytes_flow_unchanged_once_cuts_are_healed_in_any_order(steps in prop::collection::vec(step(), 1..10)) {
        on_runtime(async { cut_and_heal(Lab::new().await, steps, false).await });
    }
}

fn on_runtime(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work);
}

/// Without what Toxiproxy cannot do: those steps are left out.
#[cfg(feature = "toxiproxy")]
fn for_toxiproxy(steps: Vec<Step>) -> Vec<Step> {
    let can = |step: &Step| {
        !matches!(step, Step::Cut(cut)
            if cut.connects == Connects::Unanswered || matches!(cut.mode, CutMode::MidResponse { .. }))
    };
    steps.into_iter().filter(can).collect()
}

#[cfg(feature = "toxiproxy")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn bytes_flow_unchanged_through_toxiproxy_too(steps in prop::collection::vec(step(), 1..8)) {
        on_runtime(async {
            if let Some(lab) = Lab::toxiproxy().await {
                cut_and_heal(lab, for_toxiproxy(steps), true).await;
            }
        });
    }
}
