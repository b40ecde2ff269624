//! What TCP shows at both ends of a link between raw sockets.

use std::io::ErrorKind;

use brokerfall::link::{CutHeal, CutMode, Direction, Link, LinkError};
use brokerfall_report::history::{ConnectionChange, Event};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::lab::*;

#[tokio::test]
async fn bytes_pass_both_ways_and_fin_as_fin() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let answer = response(1, 300_000);
    broker.write_all(&answer).await.unwrap();
    assert_eq!(read(&mut reader, answer.len()).await, answer);

    reader.shutdown().await.unwrap();
    assert_eq!(next(&mut broker).await, Ok(0));
    let late = response(2, 19);
    broker.write_all(&late).await.unwrap();
    assert_eq!(read(&mut reader, late.len()).await, late);
    drop(broker);
    assert_eq!(next(&mut reader).await, Ok(0));
    lab.recorded(ConnectionChange::ClosedByClient, 1).await;
    assert_eq!(
        (
            lab.count(ConnectionChange::Opened),
            lab.count(ConnectionChange::ClosedByBroker)
        ),
        (1, 0)
    );
}

#[tokio::test]
async fn half_a_frame_goes_on_before_the_fin() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let answer = response(1, 1_000);
    broker.write_all(&answer[..400]).await.unwrap();
    drop(broker);
    assert_eq!(read(&mut reader, 400).await, answer[..400]);
    assert_eq!(next(&mut reader).await, Ok(0));
    lab.recorded(ConnectionChange::ClosedByBroker, 1).await;
}

#[tokio::test]
async fn rst_goes_on_as_rst_both_ways() {
    let lab = Lab::new().await;
    let (reader, mut broker) = lab.pair("r1").await;
    reader.set_zero_linger().unwrap();
    drop(reader);
    assert_eq!(next(&mut broker).await, Err(ErrorKind::ConnectionReset));

    let (mut reader, broker) = lab.pair("r1").await;
    broker.set_zero_linger().unwrap();
    drop(broker);
    assert_eq!(next(&mut reader).await, Err(ErrorKind::ConnectionReset));
    lab.recorded(ConnectionChange::ClosedByClient, 1).await;
    lab.recorded(ConnectionChange::ClosedByBroker, 1).await;
}

#[tokio::test]
async fn dead_broker_refuses_and_is_back_on_the_same_port() {
    let mut lab = Lab::new().await;
    let (mut reader, broker) = lab.pair("r1").await;
    let address = lab.address();
    drop((lab.broker.take(), broker));
    assert_eq!(next(&mut reader).await, Ok(0));
    refuses_soon(address).await;
    assert!(matches!(
        lab.link.broker_back(1, WHILE).await,
        Err(LinkError::TimedOut { .. })
    ));

    lab.broker = Some(TcpListener::bind(lab.upstream).await.unwrap());
    lab.link.broker_back(1, SOON).await.unwrap();
    lab.pair("r1").await;
    assert_eq!(lab.address(), address);
}

#[tokio::test]
async fn death_of_a_broker_is_noticed_without_a_client_that_connects() {
    let mut lab = Lab::new().await;
    let (mut reader, broker) = lab.pair("r1").await;
    assert!(listens(lab.address()));
    drop((lab.broker.take(), broker));
    assert_eq!(next(&mut reader).await, Ok(0));
    // The listening socket is seen without connecting to it.
    until(|| !listens(lab.address())).await;
    assert!(refused(lab.address()).await);
    assert_eq!(lab.count(ConnectionChange::TurnedAway), 0);
}

#[tokio::test]
async fn client_of_a_broker_that_died_unnoticed_is_turned_away() {
    let mut lab = Lab::new().await;
    lab.broker = None;
    let mut reader = lab.connect().await;
    assert_eq!(next(&mut reader).await, Err(ErrorKind::ConnectionReset));
    lab.recorded(ConnectionChange::TurnedAway, 1).await;
    refuses_soon(lab.address()).await;
}

#[tokio::test]
async fn client_of_a_held_connection_is_named_though_nothing_was_read_from_it() {
    let lab = Lab::new().await;
    let (_reader, _broker) = lab.pair("r1").await;
    lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    let mut second = lab.connect().await;
    second.write_all(&request(1, "r2", 0)).await.unwrap();
    until(|| {
        lab.events().into_iter().any(|event| {
            matches!(event, Event::WireConnection { client, change: ConnectionChange::Held, .. } if client == "r2")
        })
    })
    .await;
}

#[tokio::test]
async fn each_hold_is_recorded_for_itself() {
    let lab = Lab::new().await;
    let (_reader, _broker) = lab.pair("r1").await;
    let first = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    lab.recorded(ConnectionChange::Held, 1).await;
    let second = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    lab.recorded(ConnectionChange::Held, 2).await;
    lab.link.heal(first).await.unwrap();
    lab.link.heal(second).await.unwrap();
    lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    lab.recorded(ConnectionChange::Held, 3).await;
}

#[tokio::test]
async fn held_connection_that_wants_nothing_is_not_recorded_and_its_close_is_noticed() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    // The answer has come, so nothing waits.
    broker.write_all(&response(1, 5)).await.unwrap();
    read(&mut reader, 13).await;
    lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    assert_silent(&mut reader).await;
    assert_eq!(lab.count(ConnectionChange::Held), 0);
    assert_eq!((lab.link.open_connections("r1"), lab.link.open_connections("")), (1, 1));
    assert_eq!(lab.link.open_connections("r2"), 0);
    drop(reader);
    until(|| lab.link.open_connections("r1") == 0).await;
    // The FIN does not pass the cut.
    assert_silent(&mut broker).await;
}

#[tokio::test]
async fn held_connections_are_reset_where_the_heal_says_so() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Reset).await;
    lab.link.heal(cut).await.unwrap();
    assert_eq!(next(&mut reader).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(next(&mut broker).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(lab.count(ConnectionChange::ResetByLink), 1);
    lab.pair("r1").await;
}

#[tokio::test]
async fn resetting_cut_resets_live_and_new_connections() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Reset, Direction::Both, CutHeal::Keep).await;
    assert_eq!(next(&mut reader).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(next(&mut broker).await, Err(ErrorKind::ConnectionReset));
    for _ in 0..3 {
        let mut new = lab.connect().await;
        assert_eq!(next(&mut new).await, Err(ErrorKind::ConnectionReset));
    }
    lab.recorded(ConnectionChange::ResetByLink, 4).await;
    lab.link.heal(cut).await.unwrap();
    lab.pair("r1").await;
}

#[tokio::test]
async fn what_is_no_kafka_passes_untouched_and_is_counted() {
    let lab = Lab::new().await;
    let samples: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0, 0, 0, 4, 1, 2, 3, 4],
        &[0, 0, 0, 0],
        // A Fetch whose body ends early.
        &[0, 0, 0, 12, 0, 1, 0, 11, 0, 0, 0, 1, 255, 255, 1, 2],
        &[255, 255, 255, 255, 1],
    ];
    for (nth, sample) in (1..).zip(samples) {
        let mut reader = lab.connect().await;
        reader.write_all(sample).await.unwrap();
        let mut broker = lab.accept().await;
        assert_eq!(read(&mut broker, sample.len()).await, sample);
        assert_eq!(lab.link.undecodable(), nth, "{sample:?}");
        let answer = response(77, 3);
        broker.write_all(&answer).await.unwrap();
        assert_eq!(read(&mut reader, answer.len()).await, answer);
    }
}

#[tokio::test]
async fn requests_and_connects_are_counted_per_client() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    for id in 2..5 {
        let asked = request(id, "r1", 3);
        reader.write_all(&asked).await.unwrap();
        read(&mut broker, asked.len()).await;
    }
    let (mut requests, mut connects) = (0, 0);
    for event in lab.events() {
        if let Event::Wire {
            client,
            requests: by_api,
            connects: opened,
            ..
        } = event
        {
            assert_eq!(client, "r1");
            requests += by_api.get("Api(9999)").copied().unwrap_or_default();
            connects += opened;
        }
    }
    assert_eq!((requests, connects), (4, 1));
}

#[tokio::test]
async fn shutdown_ends_every_connection_and_frees_the_port() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    timeout(SOON, lab.link.shutdown()).await.unwrap();
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(next(&mut reader).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(next(&mut broker).await, Err(ErrorKind::ConnectionReset));
    assert!(refused(lab.address()).await);
    assert_eq!(lab.link.open_connections(""), 0);
    timeout(SOON, lab.link.shutdown()).await.unwrap();
    let address = lab.address();
    drop(lab);
    std::net::TcpListener::bind(address).unwrap();
}

#[tokio::test]
async fn two_links_at_once_have_ports_of_their_own() {
    let (first, second) = (Lab::new().await, Lab::new().await);
    assert_ne!(first.address(), second.address());
    for lab in [&first, &second] {
        assert!(lab.address().ip().is_loopback());
        lab.pair("r1").await;
    }
}
