//! The stored table comes back from its folder: whole, where it was, and only as far as the log still bears it out.

use std::collections::BTreeMap;

use brokerfall_report::protocol::{
    ArmCallback, Callback, Command, How, Kind, On, Raise, ReaderEvent, Reset, ResetCause, Times,
};

use crate::driver::{Cluster, Reader, beats, delivered, offsets, start};

const STORED: &str = "reference-table-stored";

fn started(cluster: &Cluster) -> Reader {
    Reader::started(STORED, Kind::Table, cluster)
}

fn barrier(table: &mut Reader) {
    let done = table.ask(Command::Barrier { timeout_ms: 20_000 });
    assert_eq!(done.reached, Some(true));
}

/// The offsets at which the table on disk goes on, added up; `None` before anything was stored.
fn stored_next(cluster: &Cluster) -> Option<u64> {
    let text = std::fs::read_to_string(cluster.state.path().join("table.json")).ok()?;
    let table: serde_json::Value = serde_json::from_str(&text).expect("a file in its place is whole");
    let partitions = table["partitions"].as_array().expect("they are a list");
    partitions.iter().map(|partition| partition["next"].as_u64()).sum()
}

/// Heartbeats are the pace of these looks.
fn wait_stored(table: &Reader, cluster: &Cluster, next: u64) {
    table.wait_all("the table on disk", |_| {
        (stored_next(cluster) == Some(next)).then_some(())
    });
}

fn told(table: &Reader, type_name: &str) {
    table.wait(type_name, |event| match event {
        ReaderEvent::Error {
            fatal: false,
            exception,
            ..
        } => (exception.type_name == type_name).then_some(()),
        _ => None,
    });
}

fn reset(table: &Reader) -> (Option<u64>, Option<u64>, ResetCause) {
    table.wait("reset", |event| match event {
        ReaderEvent::Reset { from, to, cause, .. } => Some((*from, *to, *cause)),
        _ => None,
    })
}

#[test]
fn killed_table_goes_on_at_its_stored_offset_with_its_content() {
    let mut cluster = Cluster::new(1, 2);
    cluster.write(0, &[("a", true), ("b", true), ("a", true), ("b", false)]);
    cluster.write(1, &[("c", true)]);
    let mut first = started(&cluster);
    first.wait_delivered(5);
    wait_stored(&first, &cluster, 5);
    first.kill();
    cluster.write(0, &[("d", true)]);

    let mut second = started(&cluster);
    second.wait("caught_up", |event| {
        matches!(event, ReaderEvent::CaughtUp).then_some(())
    });
    let content = [("a", 3), ("c", 5), ("d", 6)].map(|(key, id)| (key.to_owned(), Some(id)));
    assert_eq!(second.snapshot(), content);
    assert_eq!(
        delivered(&second.lines()),
        [(0, 4, 6)],
        "what was stored is not read again"
    );
}

/// Kills at eight moments between two writes of the file, and during them: what it stored was delivered, and it comes back
/// with the content that belongs to its offset.
#[test]
fn table_that_is_killed_at_any_moment_comes_back_whole() {
    let mut cluster = Cluster::new(1, 1);
    let mut fold = BTreeMap::new();
    let mut end = 0;
    for round in 0..8 {
        let mut table = started(&cluster);
        let keys: Vec<String> = (0..400).map(|n| format!("p0-k{}", (end + n * 7) % 300)).collect();
        let list: Vec<(&str, bool)> = keys.iter().map(|key| (key.as_str(), true)).collect();
        for part in list.chunks(100) {
            let last = cluster.write(0, part);
            fold.extend(
                (last - 99..=last)
                    .zip(part)
                    .map(|(id, (key, _))| ((*key).to_owned(), Some(id))),
            );
        }
        end += 400;
        table.wait_all("some of them", |lines| {
            (offsets(lines, 0).last() >= Some(&(end - 400 + round * 50))).then_some(())
        });
        table.kill();
        let stored = stored_next(&cluster).unwrap_or(0);
        table.wait_all("delivery of all that was stored", |lines| {
            (offsets(lines, 0).last().map_or(0, |last| last + 1) >= stored).then_some(())
        });
    }
    let mut table = started(&cluster);
    barrier(&mut table);
    assert_eq!(table.snapshot(), Vec::from_iter(fold));
}

#[test]
fn table_whose_stored_offset_was_deleted_is_cleared_and_read_anew() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 20);
    let mut first = started(&cluster);
    first.wait_delivered(20);
    assert!(first.ask(Command::Stop { grace_ms: 3_000 }).ok);
    assert!(first.exit().success());
    assert_eq!(stored_next(&cluster), Some(20), "a table that closes stores all it has");
    cluster.write_until_deleted(0);
    let (low, high) = cluster.watermarks(0);
    assert!(low > 20);

    let mut second = started(&cluster);
    told(&second, "brokerfall::reader::bundled::StoredOffsetGone");
    assert_eq!(reset(&second), (Some(20), Some(low as u64), ResetCause::OutOfRange));
    second.wait_delivered((high - low) as u64);
    assert_eq!(second.snapshot(), [], "what was deleted is gone from the table");
    wait_stored(&second, &cluster, high as u64);
}

#[test]
fn table_whose_topic_is_new_and_shorter_is_cleared_and_read_anew() {
    let mut old = Cluster::new(1, 1);
    old.fill(0, 20);
    let mut first = started(&old);
    first.wait_delivered(20);
    assert!(first.ask(Command::Stop { grace_ms: 3_000 }).ok);

    let mut new = Cluster::new(1, 1);
    new.state = old.state;
    new.write(0, &[("a", true)]);
    let mut second = started(&new);
    assert_eq!(reset(&second), (Some(20), Some(0), ResetCause::OutOfRange));
    barrier(&mut second);
    assert_eq!(second.snapshot(), [("a".to_owned(), Some(1))]);
}

#[test]
fn without_a_reset_a_table_whose_stored_offset_is_gone_ends_and_says_why() {
    let mut old = Cluster::new(1, 1);
    old.fill(0, 20);
    let mut first = started(&old);
    first.wait_delivered(20);
    assert!(first.ask(Command::Stop { grace_ms: 3_000 }).ok);

    let mut new = Cluster::new(1, 1);
    new.state = old.state;
    let mut second = Reader::spawn(STORED);
    let mut start = start(Kind::Table, &new);
    start.reset = Reset::None;
    assert!(second.ask(Command::Start(start)).ok);
    let cause = second.wait("stopped", |event| match event {
        ReaderEvent::Stopped { exception, .. } => exception.as_ref().map(|cause| cause.label()),
        _ => None,
    });
    assert_eq!(cause, "brokerfall::reader::bundled::StoredOffsetGone");
    assert_eq!(stored_next(&new), Some(20), "what it had is not thrown away");
}

#[test]
fn file_that_is_none_of_its_own_is_told_and_the_topic_read_anew() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 20);
    std::fs::write(cluster.state.path().join("table.json"), "{\"format\":1,\"parti").unwrap();
    let table = started(&cluster);
    told(&table, "brokerfall::reader::bundled::StateUnreadable");
    table.wait_delivered(20);
    assert_eq!(offsets(&table.lines(), 0), (0..20).collect::<Vec<_>>());
    wait_stored(&table, &cluster, 20);
}

#[test]
fn without_a_folder_it_does_not_start_and_names_what_is_missing() {
    let cluster = Cluster::new(1, 1);
    let mut table = Reader::spawn(STORED);
    let mut start = start(Kind::Table, &cluster);
    start.state_dir = None;
    let error = table.ask(Command::Start(start)).error.expect("start raises");
    assert_eq!(error.type_name, "brokerfall::reader::bundled::NoStateFolder");
    assert!(error.message.contains("`state_dir`"), "{}", error.message);
}

/// The first object hangs in a callback while it is replaced. When it comes back, the file is no longer its own.
#[test]
fn object_that_was_replaced_writes_no_more() {
    let mut cluster = Cluster::new(1, 1);
    cluster.fill(0, 20);
    let mut table = started(&cluster);
    table.wait_delivered(20);
    wait_stored(&table, &cluster, 20);
    let late = ArmCallback {
        callback: Callback::OnSet,
        on: On::Nth(1),
        raise: Raise {
            how: How::Delay,
            type_name: None,
            ms: Some(5_000),
        },
        times: Times::Count(1),
    };
    assert!(table.ask(Command::ArmCallback(late)).ok);
    cluster.fill(0, 20);
    table.wait("callback_entered", |event| {
        matches!(event, ReaderEvent::CallbackEntered(_)).then_some(())
    });
    assert!(table.ask(Command::Restart).ok);
    wait_stored(&table, &cluster, 40);
    // Five seconds after it was entered the callback has returned, and its object would store offset 21.
    let mark = table.lines().len();
    table.wait_all("heartbeats of 6 s", |lines| beats(&lines[mark..]).nth(24).map(drop));
    assert_eq!(stored_next(&cluster), Some(40));
}
