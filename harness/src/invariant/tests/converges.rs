//! `converges`: a snapshot against the fold of the log.

use super::*;

fn table(entries: &[(&str, Option<u64>)]) -> Vec<brokerfall_report::history::Entry> {
    let mut plan = plan(Kind::Table);
    plan.topics[0].generator.keys = 3;
    plan.topics[0].generator.tombstone_every = Some(5);
    history! { plan;
        // Keys: 1, 4, 7 -> k1 (7 last); 2, 5, 8 -> k2 (8 last, 5 a tombstone); 3, 6 -> k0 (6 last).
        0 => spawned("r1"), 10 => produced(1, 8), 20 => delivered(1, 8), 30 => QUIET, 40 => asked(9, "snapshot"),
        50 => snapshot_part(9, entries), 51 => done(9, None), 60 => stage(Stage::Diagnosing),
        // A sentinel of the diagnosis comes after the snapshot and is not asked of it.
        70 => produced(9, 10), 90 => scanned(1, 10),
    }
}

#[test]
fn snapshot_equal_to_the_fold_holds() {
    assert_held(
        "converges",
        &table(&[("p0-k0", Some(6)), ("p0-k1", Some(7)), ("p0-k2", Some(8))]),
    );
}

#[test]
fn missing_stale_and_phantom_are_told_apart() {
    assert_violated(
        "converges",
        "1 keys missing (such as p0-k1: id 7)",
        &table(&[("p0-k0", Some(6)), ("p0-k2", Some(8))]),
    );
    assert_violated(
        "converges",
        "1 keys stale (such as p0-k1 shows id 4 instead of 7)",
        &table(&[("p0-k0", Some(6)), ("p0-k1", Some(4)), ("p0-k2", Some(8))]),
    );
    assert_violated(
        "converges",
        "1 keys phantom (such as x: id 1)",
        &table(&[
            ("p0-k0", Some(6)),
            ("p0-k1", Some(7)),
            ("p0-k2", Some(8)),
            ("x", Some(1)),
        ]),
    );
    assert_violated(
        "converges",
        "1 keys phantom",
        &table(&[("p0-k0", Some(6)), ("p0-k1", Some(7)), ("p0-k2", Some(7))]),
    );
}

#[test]
fn deleted_key_that_is_still_shown_is_stale() {
    let mut plan = plan(Kind::Table);
    plan.topics[0].generator.tombstone_every = Some(11);
    assert_violated(
        "converges",
        "p0-k1 shows id 1 in spite of its tombstone 11",
        &history! { plan;
            0 => spawned("r1"), 10 => produced(1, 1), 10 => produced(11, 11), 20 => delivered(1, 1), 30 => QUIET, 40 => asked(9, "snapshot"),
            50 => snapshot_part(9, &[("p0-k1", Some(1))]), 51 => done(9, None), 60 => FIXED,
        },
    );
}

#[test]
fn expired_keys_are_allowed_unless_the_reader_clears_them() {
    let of = |clears| {
        let mut plan = plan(Kind::Table);
        plan.reader.declares.clears_expired = clears;
        history! { plan;
            0 => spawned("r1"), 10 => produced(1, 10), 20 => delivered(1, 10), 25 => watermarks(9, 10), 30 => QUIET,
            40 => asked(9, "snapshot"), 50 => snapshot_part(9, &[("p0-k0", Some(10)), ("p0-k1", Some(1))]), 51 => done(9, None),
            60 => FIXED, 70 => scanned(10, 10),
        }
    };
    assert_held("converges", &of(false));
    assert_violated(
        "converges",
        "1 keys expired and still shown (such as p0-k1: id 1)",
        &of(true),
    );
}
