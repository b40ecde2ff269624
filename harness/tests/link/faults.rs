//! Delays that jitter, responses cut in the middle, connects that get no answer, idle connections, one-way holds.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brokerfall::link::builtin::LinkOptions;
use brokerfall::link::{Connects, Cut, CutHeal, CutId, CutMode, Direction, Link};
use brokerfall_report::history::ConnectionChange;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::lab::*;

const FETCH: i16 = 1;
const HEARTBEAT: i16 = 12;

/// When each of 20 answers, sent one after the other was read, came: the delays that a reader sees.
async fn delays(seed: u64) -> Vec<Duration> {
    let lab = Lab::with(LinkOptions {
        seed,
        ..LinkOptions::default()
    })
    .await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let mode = CutMode::Delay {
        by: Duration::from_millis(20),
        jitter: Duration::from_millis(15),
    };
    lab.cut(mode, Direction::ToReader, CutHeal::Keep).await;
    let mut took = Vec::new();
    for id in 0..20 {
        let since = Instant::now();
        let answer = response(id, 30);
        broker.write_all(&answer).await.unwrap();
        assert_eq!(read(&mut reader, answer.len()).await, answer);
        took.push(since.elapsed());
    }
    took
}

#[tokio::test]
async fn jittered_delays_differ_from_each_other_and_none_is_shorter_than_allowed() {
    let took = delays(7).await;
    assert!(took.iter().all(|took| *took >= Duration::from_millis(5)), "{took:?}");
    // 20 even draws from 30 ms all within 5 ms of each other: once in 10^14 runs.
    let (least, most) = (took.iter().min().unwrap(), took.iter().max().unwrap());
    assert!(*most - *least > Duration::from_millis(5), "{took:?}");
}

#[tokio::test]
async fn delay_that_jitters_keeps_the_order_of_bytes_and_leaves_the_other_direction_alone() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let by = Duration::from_millis(200);
    let mode = CutMode::Delay { by, jitter: by };
    lab.cut(mode, Direction::ToBroker, CutHeal::Keep).await;
    let asked: Vec<Vec<u8>> = (2..40).map(|id| request(id, "r1", 300)).collect();
    for one in &asked {
        reader.write_all(one).await.unwrap();
        tokio::task::yield_now().await;
    }
    let since = Instant::now();
    broker.write_all(&response(1, 20)).await.unwrap();
    assert_eq!(read(&mut reader, 28).await, response(1, 20));
    assert!(since.elapsed() < by, "{:?}", since.elapsed());
    let asked = asked.concat();
    assert_eq!(read(&mut broker, asked.len()).await, asked);
    lab.recorded(ConnectionChange::Slowed, 1).await;
}

async fn ask(reader: &mut TcpStream, broker: &mut TcpStream, api: i16, correlation: i32) {
    let asked = request_of(api, correlation, "r1", 20);
    reader.write_all(&asked).await.unwrap();
    assert_eq!(read(broker, asked.len()).await, asked);
}

#[tokio::test]
async fn response_is_cut_after_so_many_bytes_and_the_connection_reset_at_both_ends() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    // The first request is left unanswered: its api is not the one that is cut.
    let mode = CutMode::MidResponse {
        after_bytes: 10,
        api: Some(HEARTBEAT),
        times: Some(1),
    };
    let cut = lab.cut(mode, Direction::Both, CutHeal::Keep).await;
    ask(&mut reader, &mut broker, FETCH, 2).await;
    let other = response(2, 500);
    broker.write_all(&other).await.unwrap();
    assert_eq!(read(&mut reader, other.len()).await, other);
    // One that is no longer than what passes cannot be cut in the middle.
    ask(&mut reader, &mut broker, HEARTBEAT, 3).await;
    let short = response(3, 10);
    broker.write_all(&short).await.unwrap();
    assert_eq!(read(&mut reader, short.len()).await, short);
    assert_eq!(lab.count(ConnectionChange::CutInResponse), 0);

    ask(&mut reader, &mut broker, HEARTBEAT, 4).await;
    let answer = response(4, 500);
    broker
        .write_all(&[answer.clone(), response(5, 5)].concat())
        .await
        .unwrap();
    assert_eq!(read(&mut reader, 18).await, answer[..18]);
    assert_eq!(next(&mut reader).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(next(&mut broker).await, Err(ErrorKind::ConnectionReset));
    lab.recorded(ConnectionChange::CutInResponse, 1).await;
    assert_eq!(lab.count(ConnectionChange::ResetByLink), 0);

    // Once was asked for.
    let (mut reader, mut broker) = lab.pair("r1").await;
    ask(&mut reader, &mut broker, HEARTBEAT, 2).await;
    broker.write_all(&answer).await.unwrap();
    assert_eq!(read(&mut reader, answer.len()).await, answer);
    lab.link.heal(cut).await.unwrap();
}

#[tokio::test]
async fn responses_are_cut_until_the_heal_where_no_number_is_given() {
    let lab = Lab::new().await;
    let mode = CutMode::MidResponse {
        after_bytes: 0,
        api: None,
        times: None,
    };
    let cut = lab.cut(mode, Direction::Both, CutHeal::Keep).await;
    for nth in 1..=3 {
        let (mut reader, mut broker) = lab.pair("r1").await;
        broker.write_all(&response(1, 500)).await.unwrap();
        assert_eq!(read(&mut reader, 8).await, response(1, 500)[..8]);
        assert_eq!(next(&mut reader).await, Err(ErrorKind::ConnectionReset));
        lab.recorded(ConnectionChange::CutInResponse, nth).await;
    }
    lab.link.heal(cut).await.unwrap();
    let (mut reader, mut broker) = lab.pair("r1").await;
    broker.write_all(&response(1, 500)).await.unwrap();
    assert_eq!(read(&mut reader, 508).await, response(1, 500));
}

async fn leave_unanswered(lab: &Lab) -> CutId {
    let cut = Cut {
        nodes: vec![1],
        mode: CutMode::Hold,
        direction: Direction::Both,
        heals: CutHeal::Keep,
        connects: Connects::Unanswered,
    };
    lab.link.cut(cut).await.unwrap()
}

/// A connect from another process, which ends once it is answered.
fn connect_elsewhere(lab: &Lab) -> Child {
    let (host, port) = (lab.address().ip(), lab.address().port());
    let connect = format!("echo; exec 3<>/dev/tcp/{host}/{port}");
    let mut command = Command::new("bash");
    command
        .args(["-c", &connect])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let _no_broker_goes_down = crate::STARTING.read().unwrap();
    let mut child = command.spawn().unwrap();
    // What it writes shows that it runs its program, and has no descriptor of this process any more.
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    child
}

#[tokio::test]
async fn unanswered_connects_hang_and_are_seen_and_succeed_after_the_heal() {
    let lab = Lab::new().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = leave_unanswered(&lab).await;
    assert!(!lab.link.is_open(1));
    assert!(
        timeout(Duration::from_millis(300), TcpStream::connect(lab.address()))
            .await
            .is_err()
    );
    // Nobody else waits: the connect above is gone.
    let before = lab.count(ConnectionChange::Unanswered);
    let mut elsewhere = connect_elsewhere(&lab);
    until(|| lab.count(ConnectionChange::Unanswered) > before).await;
    assert!(elsewhere.try_wait().unwrap().is_none(), "it was answered");
    // The connection that there was is held.
    broker.write_all(&response(1, 20)).await.unwrap();
    assert_silent(&mut reader).await;

    lab.link.heal(cut).await.unwrap();
    assert!(lab.link.is_open(1));
    assert_eq!(read(&mut reader, 28).await, response(1, 20));
    // Its next SYN comes a second after the first, or two after the second.
    until(|| elsewhere.try_wait().unwrap().is_some_and(|status| status.success())).await;
    lab.pair("r2").await;
    // What the link did to its own port is nobody's connection.
    assert_eq!(lab.count(ConnectionChange::TurnedAway), 0);
    until(|| lab.link.open_connections("") == 1).await;
    assert_eq!(lab.count(ConnectionChange::Opened), 3);
}

#[tokio::test]
async fn port_that_answers_nobody_refuses_while_a_refusal_overlaps_and_answers_nobody_again() {
    let lab = Lab::new().await;
    let unanswered = leave_unanswered(&lab).await;
    let refusing = lab.cut(CutMode::Refuse, Direction::Both, CutHeal::Keep).await;
    assert!(refused(lab.address()).await);
    lab.link.heal(refusing).await.unwrap();
    assert!(
        timeout(Duration::from_millis(300), TcpStream::connect(lab.address()))
            .await
            .is_err()
    );
    let second = leave_unanswered(&lab).await;
    lab.link.heal(unanswered).await.unwrap();
    assert!(
        timeout(Duration::from_millis(300), TcpStream::connect(lab.address()))
            .await
            .is_err()
    );
    lab.link.heal(second).await.unwrap();
    lab.pair("r1").await;
}

#[tokio::test]
async fn one_way_holds_keep_back_what_was_read_already() {
    for (direction, held_up) in [(Direction::ToBroker, true), (Direction::ToReader, false)] {
        let lab = Lab::new().await;
        let (mut reader, mut broker) = lab.pair("r1").await;
        // A slow lane, so that the link has read bytes and not written them when the hold comes.
        let slow = lab
            .cut(CutMode::Throttle { bytes_per_s: 2_000 }, direction, CutHeal::Keep)
            .await;
        let (asked, answered) = (request(2, "r1", 4_000), response(1, 4_000));
        reader.write_all(&asked).await.unwrap();
        broker.write_all(&answered).await.unwrap();
        let (from, to, bytes) = if held_up {
            (&mut broker, &mut reader, (&asked, &answered))
        } else {
            (&mut reader, &mut broker, (&answered, &asked))
        };
        // The free direction is through; of the slow one a part.
        assert_eq!(read(to, bytes.1.len()).await, *bytes.1);
        assert_eq!(read(from, 20).await, bytes.0[..20]);
        let hold = lab.cut(CutMode::Hold, direction, CutHeal::Keep).await;
        lab.link.heal(slow).await.unwrap();
        let sent = arrived(from).await;
        assert!(20 + sent.len() < bytes.0.len(), "nothing was left to hold");
        lab.recorded(ConnectionChange::Held, 1).await;
        lab.link.heal(hold).await.unwrap();
        let rest = read(from, bytes.0.len() - 20 - sent.len()).await;
        assert_eq!([&bytes.0[..20], &sent, &rest].concat(), *bytes.0);
    }
}

/// What comes until nothing more does.
async fn arrived(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while timeout(WHILE, stream.read_buf(&mut bytes)).await.is_ok() {}
    bytes
}

const IDLE: Duration = Duration::from_millis(300);

async fn idle_lab() -> Lab {
    Lab::with(LinkOptions {
        idle: Some(IDLE),
        ..LinkOptions::default()
    })
    .await
}

#[tokio::test]
async fn idle_connection_is_closed_with_fin_at_both_ends_and_a_busy_one_is_not() {
    let lab = idle_lab().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let (mut idle, mut idle_broker) = lab.pair("r2").await;
    let since = Instant::now();
    let busy = async {
        let mut every = tokio::time::interval(IDLE / 6);
        for id in 0..18 {
            every.tick().await;
            broker.write_all(&response(id, 5)).await.unwrap();
            read(&mut reader, 13).await;
        }
    };
    let closed = async {
        assert_eq!(next(&mut idle).await, Ok(0));
        let took = since.elapsed();
        assert_eq!(next(&mut idle_broker).await, Ok(0));
        took
    };
    let ((), took) = tokio::join!(busy, closed);
    assert!(took >= IDLE.mul_f64(0.9), "closed after {took:?}");
    lab.recorded(ConnectionChange::ClosedIdle, 1).await;
    assert_eq!(lab.link.open_connections("r1"), 1);
    assert_eq!(
        lab.count(ConnectionChange::ClosedByBroker) + lab.count(ConnectionChange::ClosedByClient),
        0
    );
    assert_eq!(next(&mut reader).await, Ok(0));
    lab.recorded(ConnectionChange::ClosedIdle, 2).await;
}

#[tokio::test]
async fn bytes_that_trickle_keep_a_connection_from_being_idle() {
    let lab = idle_lab().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    // At once in the link, and then a second long on their way: three times what is idle.
    let mode = CutMode::Throttle { bytes_per_s: 1_000 };
    lab.cut(mode, Direction::ToReader, CutHeal::Keep).await;
    let answer = response(1, 1_000);
    broker.write_all(&answer).await.unwrap();
    assert_eq!(read(&mut reader, answer.len()).await, answer);
    assert_eq!(lab.count(ConnectionChange::ClosedIdle), 0);
    assert_eq!(next(&mut reader).await, Ok(0));
}

#[tokio::test]
async fn broker_closes_an_idle_connection_behind_a_hold_and_the_reader_sees_its_fin_after_the_heal() {
    let lab = idle_lab().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    // The answer was on its way when the network failed.
    let answer = response(1, 5_000);
    broker.write_all(&answer).await.unwrap();
    assert_eq!(next(&mut broker).await, Ok(0));
    lab.recorded(ConnectionChange::ClosedIdle, 1).await;
    assert_silent(&mut reader).await;
    assert_eq!(lab.link.open_connections("r1"), 1);
    lab.link.heal(cut).await.unwrap();
    assert_eq!(read(&mut reader, answer.len()).await, answer);
    assert_eq!(next(&mut reader).await, Ok(0));
    until(|| lab.link.open_connections("") == 0).await;
    assert_eq!(lab.count(ConnectionChange::ClosedIdle), 1);
}

#[tokio::test]
async fn clock_of_a_broker_behind_a_hold_starts_anew_with_what_it_writes() {
    let lab = idle_lab().await;
    let (_reader, mut broker) = lab.pair("r1").await;
    lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    let mut half = tokio::time::interval(IDLE / 2);
    half.tick().await;
    half.tick().await;
    let since = Instant::now();
    broker.write_all(&response(1, 50)).await.unwrap();
    assert_eq!(next(&mut broker).await, Ok(0));
    assert!(
        since.elapsed() >= IDLE.mul_f64(0.8),
        "closed after {:?}",
        since.elapsed()
    );
}

#[tokio::test]
async fn reader_that_spoke_to_a_broker_that_closed_behind_a_hold_is_reset_after_the_heal() {
    let lab = idle_lab().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    assert_eq!(next(&mut broker).await, Ok(0));
    reader.write_all(&request(2, "r1", 50)).await.unwrap();
    assert_silent(&mut reader).await;
    lab.link.heal(cut).await.unwrap();
    // The FIN comes first, as it was sent first; the RST that answers the bytes shows at a write.
    assert_eq!(next(&mut reader).await, Ok(0));
    until(|| is_reset(&reader)).await;
    until(|| lab.link.open_connections("") == 0).await;
}

/// Whether the other end has answered bytes with RST, seen by writing more.
fn is_reset(stream: &TcpStream) -> bool {
    let written = stream.try_write(&[0]).map_err(|cause| cause.kind());
    matches!(written, Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset))
}

#[tokio::test]
async fn fin_of_an_idle_broker_passes_a_hold_of_the_other_direction_and_waits_for_its_own() {
    let lab = idle_lab().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::ToBroker, CutHeal::Keep).await;
    assert_eq!(next(&mut broker).await, Ok(0));
    assert_eq!(next(&mut reader).await, Ok(0));
    // What it sends now does not arrive, so nothing answers that the broker is gone.
    let mut every = tokio::time::interval(WHILE / 4);
    for _ in 0..4 {
        every.tick().await;
        reader.write_all(&[0]).await.unwrap();
    }
    lab.link.heal(cut).await.unwrap();
    until(|| is_reset(&reader)).await;

    let lab = idle_lab().await;
    let (mut reader, mut broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::ToReader, CutHeal::Keep).await;
    assert_eq!(next(&mut broker).await, Ok(0));
    assert_silent(&mut reader).await;
    lab.link.heal(cut).await.unwrap();
    assert_eq!(next(&mut reader).await, Ok(0));
}

#[tokio::test]
async fn broker_that_moves_refuses_where_it_was_and_is_told_where_it_is() {
    let lab = Lab::new().await;
    let (mut reader, _broker) = lab.pair("r1").await;
    let from = lab.link.address(1).unwrap();
    let to = lab.link.move_address(1, true).await.unwrap();
    assert_eq!((to.port(), lab.link.address(1)), (from.port(), Some(to)));
    assert_ne!(to.ip(), from.ip());
    assert!(lab.link.bootstrap().contains(&to.to_string()));
    let ended = timeout(Duration::from_secs(5), reader.read(&mut [0])).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(from).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    TcpStream::connect(to).await.unwrap();
    // It may move again, and not back.
    let further = lab.link.move_address(1, false).await.unwrap();
    assert!(further != to && further != from);
    assert!(!lab.link.bootstrap().contains(&further.to_string()), "nobody is told");
    assert!(TcpStream::connect(to).await.is_err());
}
