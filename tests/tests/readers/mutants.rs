//! The mutant readers do what their names say. That their invariants catch them is the end-to-end suite's to show.

use std::time::Duration;

use crate::driver::{Cluster, Reader, TOPIC, beats, delivered, offsets, raising, start};
use brokerfall_report::protocol::{Callback, Command, How, Kind, Line, On, ReaderEvent};
use brokerfall_tests::mutants::MUTANTS;

/// A mutant that read what stood in the log at its start.
fn reading(name: &str, cluster: &mut Cluster, records: usize) -> Reader {
    let (_, kind, _) = MUTANTS
        .iter()
        .find(|(mutant, _, _)| *mutant == name)
        .expect("it is a mutant");
    cluster.fill(0, records);
    Reader::started(name, *kind, cluster)
}

/// Takes the only broker away until the reader says so, and gives it back.
fn blip(cluster: &Cluster, reader: &Reader) {
    cluster.broker_down(1);
    reader.wait("an error", |event| {
        matches!(event, ReaderEvent::Error { .. }).then_some(())
    });
    cluster.broker_up(1);
}

fn stopped(lines: &[Line]) -> Option<bool> {
    lines.iter().find_map(|line| match &line.event {
        ReaderEvent::Stopped { exception, .. } => Some(exception.is_some()),
        _ => None,
    })
}

#[test]
fn record_stream_mutants_skip_invent_swap_and_hold_back() {
    let mut cluster = Cluster::new(1, 1);
    let reader = reading("invents-a-record", &mut cluster, 5);
    reader.wait_delivered(6);
    assert_eq!(delivered(&reader.lines())[..2], [(0, 0, 0), (0, 0, 1)]);

    let mut cluster = Cluster::new(1, 1);
    let reader = reading("swaps-two-records", &mut cluster, 12);
    reader.wait_delivered(12);
    assert_eq!(offsets(&reader.lines(), 0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9, 11]);

    let mut cluster = Cluster::new(1, 1);
    let reader = reading("skips-a-record", &mut cluster, 5);
    reader.wait_delivered(5);
    blip(&cluster, &reader);
    cluster.fill(0, 5);
    reader.wait_delivered(9);
    assert_eq!(offsets(&reader.lines(), 0), [0, 1, 2, 3, 4, 6, 7, 8, 9]);

    let mut cluster = Cluster::new(1, 1);
    let reader = reading("holds-back-the-last-record", &mut cluster, 5);
    reader.wait_all("the last record held back for two seconds", |lines| {
        let at = lines
            .iter()
            .position(|line| matches!(line.event, ReaderEvent::Records { .. }))?;
        (beats(&lines[at..]).count() > 8).then_some(())
    });
    assert_eq!(offsets(&reader.lines(), 0), [0, 1, 2, 3]);
    cluster.fill(0, 1);
    reader.wait_delivered(6);
}

#[test]
fn silent_seek_hands_fifty_records_out_again() {
    let mut cluster = Cluster::new(1, 1);
    let reader = reading("seeks-back-silently", &mut cluster, 150);
    reader.wait_delivered(200);
    let offsets = offsets(&reader.lines(), 0);
    let back = offsets.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!((back, offsets.len(), offsets[199]), (1, 200, 149));
    assert!(
        !reader
            .lines()
            .iter()
            .any(|line| matches!(line.event, ReaderEvent::Reset { .. }))
    );
}

#[test]
fn table_mutants_keep_deleted_keys_claim_early_and_lie_about_barriers() {
    let mut cluster = Cluster::new(1, 1);
    cluster.write(0, &[("a", true), ("a", false)]);
    let mut reader = Reader::started("keeps-deleted-keys", Kind::Table, &cluster);
    reader.wait_delivered(2);
    assert_eq!(reader.snapshot(), [("a".to_owned(), Some(1))]);

    cluster.broker_down(1);
    let mut reader = Reader::started("claims-caught-up-early", Kind::Table, &cluster);
    reader.wait_all("the claim", |lines| {
        let claims = beats(lines).map(|beat| beat.claims.caught_up);
        claims.last().filter(|claim| *claim == Some(true)).map(drop)
    });
    assert_eq!(reader.ask(Command::Barrier { timeout_ms: 100 }).reached, Some(false));
    let mut reader = Reader::started("lies-about-barriers", Kind::Table, &cluster);
    assert_eq!(reader.ask(Command::Barrier { timeout_ms: 100 }).reached, Some(true));
}

#[test]
fn stored_mutant_comes_back_with_half_its_keys_and_reads_none_of_them_again() {
    let mut cluster = Cluster::new(1, 1);
    let mut first = reading("comes-back-half-empty", &mut cluster, 10);
    first.wait_delivered(10);
    assert!(first.ask(Command::Stop { grace_ms: 3_000 }).ok);
    let mut second = Reader::started("comes-back-half-empty", Kind::Table, &cluster);
    second.wait("caught_up", |event| {
        matches!(event, ReaderEvent::CaughtUp).then_some(())
    });
    let content = [0, 2, 4, 6, 8].map(|n| (format!("p0-k{n}"), Some(n + 1)));
    assert_eq!(second.snapshot(), content);
    assert_eq!(delivered(&second.lines()), []);
}

#[test]
fn miscounting_mutant_counts_two_failures_for_one() {
    let mut cluster = Cluster::new(1, 1);
    let mut reader = Reader::spawn("miscounts-callback-errors");
    assert!(reader.ask(raising(Callback::OnSet, On::Nth(1), How::Exception)).ok);
    cluster.fill(0, 3);
    assert!(reader.ask(Command::Start(start(Kind::Table, &cluster))).ok);
    reader.wait_all("a count of two", |lines| {
        let counts = beats(lines).filter_map(|beat| beat.counters.get("callback_errors"));
        counts.last().filter(|count| **count == 2.0).map(drop)
    });
}

#[test]
fn dying_mutants_die_each_in_its_way() {
    let ways = [
        ("ends-at-first-error", Some(true), "failed"),
        ("dies-silently", None, "caught_up"),
        ("dies-healthy", None, "caught_up"),
    ];
    for (name, ending, state) in ways {
        let mut cluster = Cluster::new(1, 1);
        let reader = reading(name, &mut cluster, 5);
        reader.wait_delivered(5);
        blip(&cluster, &reader);
        cluster.fill(0, 5);
        let mark = reader.lines().len();
        // Longer than the 5 s after which a loop that does not turn is called unhealthy.
        let last = reader.wait_all("heartbeats long after", |lines| beats(&lines[mark..]).nth(24).cloned());
        assert_eq!(last.state, state, "{name}");
        assert_eq!(last.claims.healthy, Some(name == "dies-healthy"), "{name}");
        let lines = reader.lines();
        assert_eq!(stopped(&lines), ending, "{name}");
        assert_eq!(delivered(&lines).len(), 5, "{name}");
    }
    for (name, ending, state) in [
        ("ends-untyped", Some(false), "failed"),
        ("dies-of-a-record", None, "caught_up"),
    ] {
        let mut cluster = Cluster::new(1, 1);
        let reader = reading(name, &mut cluster, 340);
        reader.wait_delivered(340);
        cluster.fill(0, 20);
        reader.wait_delivered(350);
        let mark = reader.lines().len();
        let last = reader.wait_all("heartbeats after", |lines| beats(&lines[mark..]).nth(2).cloned());
        assert_eq!(last.state, state, "{name}");
        let lines = reader.lines();
        assert_eq!((stopped(&lines), delivered(&lines).len()), (ending, 350), "{name}");
    }
    let mut cluster = Cluster::new(1, 1);
    let mut reader = reading("exits-with-zero", &mut cluster, 5);
    reader.wait_delivered(5);
    cluster.broker_down(1);
    assert_eq!(reader.exit().code(), Some(0));
}

#[test]
fn group_mutants_commit_ahead_and_leave() {
    let mut cluster = Cluster::new(1, 1);
    let reader = reading("commits-ahead", &mut cluster, 5);
    reader.wait("a commit beyond the log", |event| match event {
        ReaderEvent::Committed { offsets } => (offsets[0].offset == 1_005).then_some(()),
        _ => None,
    });

    let mut cluster = Cluster::new(1, 1);
    let reader = reading("leaves-its-group", &mut cluster, 310);
    reader.wait("the way out", |event| match event {
        ReaderEvent::Rebalanced { revoked, lost, .. } => (revoked.len() + lost.len() == 1).then_some(()),
        _ => None,
    });
    reader.wait_delivered(310);
}

#[test]
fn stopping_mutants_hang_or_leave_a_process_behind() {
    let cluster = Cluster::new(1, 1);
    let mut reader = Reader::started("hangs-in-stop", Kind::Assign, &cluster);
    reader.send(Command::Stop { grace_ms: 500 });
    assert_eq!(reader.wait_exit(Duration::from_secs(2)), None);

    let mut reader = Reader::started("leaves-a-grandchild", Kind::Assign, &cluster);
    let children = format!("/proc/{0}/task/{0}/children", reader.pid());
    let grandchild = std::fs::read_to_string(children).unwrap();
    let grandchild: i32 = grandchild.trim().parse().unwrap();
    assert!(reader.ask(Command::Stop { grace_ms: 3_000 }).ok);
    assert!(reader.exit().success());
    let alive = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(grandchild),
        nix::sys::signal::Signal::SIGKILL,
    );
    assert_eq!(alive, Ok(()));
}

#[test]
fn busy_mutants_spin_while_cut_off_and_storm_while_they_catch_up() {
    let mut cluster = Cluster::new(1, 1);
    let reader = reading("spins-while-cut-off", &mut cluster, 5);
    reader.wait_delivered(5);
    let before = cpu_ticks(reader.pid());
    cluster.broker_down(1);
    // A correct reader that is cut off uses less than half of this in the whole time that is waited.
    reader.wait_all("a second of CPU time", |_| {
        (cpu_ticks(reader.pid()) - before > 100).then_some(())
    });
    cluster.broker_up(1);
    cluster.fill(0, 5);
    reader.wait_delivered(10);
    let before = cpu_ticks(reader.pid());
    let mark = reader.lines().len();
    reader.wait_all("two seconds", |lines| (beats(&lines[mark..]).count() > 8).then_some(()));
    let used = cpu_ticks(reader.pid()) - before;
    assert!(used < 25, "{used} ticks of 10 ms in two seconds with the broker back");

    let mut cluster = Cluster::new(1, 1);
    // Without an answer about the topic it never finds out where it stands.
    cluster.mock.partition_leader(TOPIC, 0, None).unwrap();
    let reader = reading("storms-while-catching-up", &mut cluster, 0);
    // TIME_WAIT and live sockets of the storm.
    let port = cluster.mock.bootstrap_servers();
    let port: u16 = port.rsplit(':').next().unwrap().parse().unwrap();
    reader.wait_all("a hundred connects", |_| (sockets_at(port) > 100).then_some(()));
}

/// Clock ticks of 10 ms that the process has used.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let fields = stat.rsplit(')').next().into_iter().flat_map(str::split_whitespace);
    let times = fields.skip(11).take(2);
    times
        .map(|ticks| ticks.parse::<u64>().expect("user and system time are numbers"))
        .sum()
}

fn sockets_at(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux lists its sockets");
    let wanted = format!(":{port:04X}");
    let remote = table.lines().filter_map(|line| line.split_whitespace().nth(2));
    remote.filter(|address| address.ends_with(&wanted)).count()
}
