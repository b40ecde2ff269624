//! What a reader and a broker see of cuts, whichever link does them: one body, run on the builtin link and on Toxiproxy.

use std::io::ErrorKind;
use std::time::Duration;

use brokerfall::link::{CutHeal, CutMode, Direction, Link, LinkError};
use brokerfall_report::history::ConnectionChange;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::lab::*;

/// Makes a test of each body for each link.
macro_rules! on_both {
    ($($body:ident),+ $(,)?) => {
        mod builtin {
            $(#[tokio::test]
            async fn $body() {
                super::$body(crate::lab::Lab::new().await).await;
            })+
        }

        #[cfg(feature = "toxiproxy")]
        mod toxiproxy {
            $(#[tokio::test]
            async fn $body() {
                if let Some(lab) = crate::lab::Lab::toxiproxy().await {
                    super::$body(lab).await;
                }
            })+
        }
    };
}

on_both! {
    bytes_pass_unchanged_both_ways_and_the_end_passes_too,
    held_connection_loses_no_byte_when_it_is_kept,
    held_connection_ends_at_a_heal_that_resets,
    hold_of_one_direction_lets_the_other_pass,
    overlapping_cuts_end_one_by_one,
    throttled_bytes_take_as_long_as_the_rate_says,
    delayed_bytes_come_later_and_in_order,
    delays_add_up_and_come_off_again,
    refusing_cut_refuses_and_ends_live_connections,
    resetting_cut_ends_live_connections_and_new_ones_once_they_speak,
    going_broker_refuses_at_once_though_it_still_accepts,
    reader_that_closes_behind_a_hold_has_no_connection_left,
    cut_of_no_broker_of_the_link_is_refused_and_leaves_nothing,
    shutdown_ends_every_connection_and_frees_the_port,
}

/// Toxiproxy can only close what was open before a cut; the builtin link resets.
fn is_end(next: Result<usize, ErrorKind>) -> bool {
    matches!(next, Ok(0) | Err(ErrorKind::ConnectionReset))
}

async fn bytes_pass_unchanged_both_ways_and_the_end_passes_too(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let answer = response(1, 3_000_000);
    let sent = async { broker.write_all(&answer).await.unwrap() };
    let ((), read_bytes) = tokio::join!(sent, read(&mut reader, answer.len()));
    assert_eq!(read_bytes, answer);
    drop(reader);
    assert_eq!(next(&mut broker).await, Ok(0));
    lab.recorded(ConnectionChange::ClosedByClient, 1).await;
    assert_eq!(lab.count(ConnectionChange::ResetByLink), 0);
}

async fn held_connection_loses_no_byte_when_it_is_kept(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    let asked: Vec<u8> = (2..60).flat_map(|id| request(id, "r1", 5_000)).collect();
    let answered: Vec<u8> = (2..60).flat_map(|id| response(id, 5_000)).collect();
    reader.write_all(&asked).await.unwrap();
    broker.write_all(&answered).await.unwrap();
    assert_silent(&mut broker).await;
    assert_silent(&mut reader).await;
    lab.recorded(ConnectionChange::Held, 1).await;
    // A connect succeeds, and is held too once it wants something.
    let mut second = lab.connect().await;
    second.write_all(&request(1, "r2", 0)).await.unwrap();
    lab.recorded(ConnectionChange::Held, 2).await;
    assert!(lab.link.is_open(1));

    lab.link.heal(cut).await.unwrap();
    assert_eq!(read(&mut broker, asked.len()).await, asked);
    assert_eq!(read(&mut reader, answered.len()).await, answered);
    lab.accept().await;
    assert_eq!(lab.count(ConnectionChange::ResetByLink), 0);
    assert!(matches!(lab.link.heal(cut).await, Err(LinkError::NoCut { .. })));
}

async fn held_connection_ends_at_a_heal_that_resets(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Reset).await;
    reader.write_all(&request(2, "r1", 50)).await.unwrap();
    broker.write_all(&response(1, 50)).await.unwrap();
    assert_silent(&mut reader).await;
    assert_silent(&mut broker).await;
    lab.link.heal(cut).await.unwrap();
    assert!(is_end(next(&mut reader).await));
    assert!(is_end(next(&mut broker).await));
    lab.recorded(ConnectionChange::ResetByLink, 1).await;
    assert_eq!(lab.count(ConnectionChange::ClosedByClient), 0);
    lab.pair("r1").await;
}

async fn hold_of_one_direction_lets_the_other_pass(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let up = lab.cut(CutMode::Hold, Direction::ToBroker, CutHeal::Keep).await;
    let (second, third) = (request(2, "r1", 20), request(3, "r1", 20));
    reader.write_all(&second).await.unwrap();
    broker.write_all(&response(1, 20)).await.unwrap();
    assert_eq!(read(&mut reader, 28).await, response(1, 20));
    assert_silent(&mut broker).await;
    lab.recorded(ConnectionChange::Held, 1).await;
    lab.link.heal(up).await.unwrap();
    assert_eq!(read(&mut broker, second.len()).await, second);

    let down = lab.cut(CutMode::Hold, Direction::ToReader, CutHeal::Keep).await;
    reader.write_all(&third).await.unwrap();
    broker.write_all(&response(2, 20)).await.unwrap();
    assert_eq!(read(&mut broker, third.len()).await, third);
    assert_silent(&mut reader).await;
    lab.recorded(ConnectionChange::Held, 2).await;
    lab.link.heal(down).await.unwrap();
    assert_eq!(read(&mut reader, 28).await, response(2, 20));
}

async fn overlapping_cuts_end_one_by_one(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let slow = CutMode::Throttle { bytes_per_s: 1_000_000 };
    let throttle = lab.cut(slow, Direction::ToReader, CutHeal::Keep).await;
    let first = lab.cut(CutMode::Hold, Direction::ToReader, CutHeal::Keep).await;
    let second = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    let answer = response(1, 100);
    broker.write_all(&answer).await.unwrap();
    lab.link.heal(throttle).await.unwrap();
    assert_silent(&mut reader).await;
    lab.link.heal(first).await.unwrap();
    assert_silent(&mut reader).await;
    let refusing = lab.cut(CutMode::Refuse, Direction::Both, CutHeal::Keep).await;
    lab.link.heal(second).await.unwrap();
    assert!(refused(lab.address()).await);
    assert!(!lab.link.is_open(1));
    lab.link.heal(refusing).await.unwrap();
    assert!(lab.link.is_open(1));
    let (mut reader, mut broker) = lab.pair("r1").await;
    broker.write_all(&answer).await.unwrap();
    assert_eq!(read(&mut reader, answer.len()).await, answer);
}

async fn throttled_bytes_take_as_long_as_the_rate_says(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let mode = CutMode::Throttle { bytes_per_s: 100_000 };
    let cut = lab.cut(mode, Direction::ToReader, CutHeal::Keep).await;
    let answer = response(1, 40_000);
    let since = Instant::now();
    broker.write_all(&answer).await.unwrap();
    assert_eq!(read(&mut reader, answer.len()).await, answer);
    // A twentieth of a second may be saved up.
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(350) && took < SOON, "took {took:?}");
    lab.recorded(ConnectionChange::Slowed, 1).await;
    // The other direction is free: at this rate it would take 10 s.
    let since = Instant::now();
    let asked = request(2, "r1", 1_000_000);
    let sent = async { reader.write_all(&asked).await.unwrap() };
    tokio::join!(sent, read(&mut broker, asked.len()));
    assert!(since.elapsed() < Duration::from_secs(5), "took {:?}", since.elapsed());

    lab.link.heal(cut).await.unwrap();
    let since = Instant::now();
    let answer = response(2, 1_000_000);
    let sent = async { broker.write_all(&answer).await.unwrap() };
    tokio::join!(sent, read(&mut reader, answer.len()));
    assert!(since.elapsed() < Duration::from_secs(5), "took {:?}", since.elapsed());
}

fn delay(by: Duration) -> CutMode {
    CutMode::Delay {
        by,
        jitter: Duration::ZERO,
    }
}

async fn delayed_bytes_come_later_and_in_order(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let by = Duration::from_millis(150);
    lab.cut(delay(by), Direction::ToBroker, CutHeal::Keep).await;
    let since = Instant::now();
    let asked: Vec<u8> = (2..6).flat_map(|id| request(id, "r1", 50)).collect();
    reader.write_all(&asked).await.unwrap();
    assert_eq!(read(&mut broker, asked.len()).await, asked);
    assert!(since.elapsed() >= by, "took {:?}", since.elapsed());
    lab.recorded(ConnectionChange::Slowed, 1).await;
}

async fn delays_add_up_and_come_off_again(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let by = Duration::from_millis(150);
    let first = lab.cut(delay(by), Direction::ToReader, CutHeal::Keep).await;
    let second = lab.cut(delay(by), Direction::Both, CutHeal::Keep).await;
    let mut took = async |id| {
        let since = Instant::now();
        let answer = response(id, 50);
        broker.write_all(&answer).await.unwrap();
        assert_eq!(read(&mut reader, answer.len()).await, answer);
        since.elapsed()
    };
    assert!(took(1).await >= by * 2);
    lab.link.heal(first).await.unwrap();
    assert!(took(2).await >= by);
    lab.link.heal(second).await.unwrap();
    // One of several, so that a moment without a processor fails nothing.
    let mut least = Duration::MAX;
    for id in 3..8 {
        least = least.min(took(id).await);
    }
    assert!(least < by, "still {least:?}");
}

async fn refusing_cut_refuses_and_ends_live_connections(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let address = lab.address();
    let cut = lab.cut(CutMode::Refuse, Direction::Both, CutHeal::Keep).await;
    assert!(refused(address).await);
    assert!(is_end(next(&mut reader).await));
    assert!(is_end(next(&mut broker).await));
    lab.link.heal(cut).await.unwrap();
    lab.pair("r1").await;
    assert_eq!((lab.address(), lab.count(ConnectionChange::ResetByLink)), (address, 1));
    assert_eq!(lab.count(ConnectionChange::ClosedByClient), 0);
}

async fn resetting_cut_ends_live_connections_and_new_ones_once_they_speak(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Reset, Direction::Both, CutHeal::Keep).await;
    assert!(is_end(next(&mut reader).await));
    assert!(is_end(next(&mut broker).await));
    for _ in 0..3 {
        let mut new = lab.connect().await;
        // The builtin link has reset it by now, perhaps.
        drop(new.write_all(&request(1, "r1", 5)).await);
        let end = next(&mut new).await;
        assert!(
            matches!(end, Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)),
            "{end:?}"
        );
    }
    lab.recorded(ConnectionChange::ResetByLink, 4).await;
    lab.link.heal(cut).await.unwrap();
    lab.pair("r1").await;
}

async fn going_broker_refuses_at_once_though_it_still_accepts(mut lab: Lab<impl Link>) {
    lab.link.broker_going(1).await.unwrap();
    assert!(refused(lab.address()).await);
    // It is looked at meanwhile, and that it accepts says nothing.
    timeout(SOON, lab.broker.as_ref().unwrap().accept())
        .await
        .unwrap()
        .unwrap();
    assert!(refused(lab.address()).await);
    assert!(matches!(
        lab.link.broker_back(9, SOON).await,
        Err(LinkError::NoBroker { node: 9 })
    ));

    lab.broker = None;
    assert!(matches!(
        lab.link.broker_back(1, WHILE).await,
        Err(LinkError::TimedOut { .. })
    ));
    assert!(refused(lab.address()).await);
    lab.broker = Some(TcpListener::bind(lab.upstream).await.unwrap());
    lab.link.broker_back(1, SOON).await.unwrap();
    lab.pair("r1").await;
}

async fn reader_that_closes_behind_a_hold_has_no_connection_left(lab: Lab<impl Link>) {
    let (mut reader, _broker) = lab.pair("r1").await;
    lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    // Bytes before its FIN, so that not even the FIN gets through.
    reader.write_all(&request(2, "r1", 50)).await.unwrap();
    assert_eq!(lab.link.open_connections("r1"), 1);
    drop(reader);
    until(|| lab.link.open_connections("r1") == 0).await;
}

async fn cut_of_no_broker_of_the_link_is_refused_and_leaves_nothing(lab: Lab<impl Link>) {
    let cut = brokerfall::link::Cut {
        nodes: vec![1, 9],
        mode: CutMode::Hold,
        direction: Direction::Both,
        heals: CutHeal::Keep,
        connects: brokerfall::link::Connects::Accepted,
    };
    assert!(matches!(lab.link.cut(cut).await, Err(LinkError::NoBroker { node: 9 })));
    let (mut reader, mut broker) = lab.pair("r1").await;
    broker.write_all(&response(1, 5)).await.unwrap();
    assert_eq!(read(&mut reader, 13).await, response(1, 5));
}

async fn shutdown_ends_every_connection_and_frees_the_port(lab: Lab<impl Link>) {
    let (mut reader, mut broker) = lab.pair("r1").await;
    lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    timeout(SOON, lab.link.shutdown()).await.unwrap();
    assert!(is_end(next(&mut reader).await));
    assert!(is_end(next(&mut broker).await));
    assert!(refused(lab.address()).await);
    timeout(SOON, lab.link.shutdown()).await.unwrap();
    let address = lab.address();
    drop(lab);
    until(|| std::net::TcpListener::bind(address).is_ok()).await;
    assert!(TcpStream::connect(address).await.is_err());
}
