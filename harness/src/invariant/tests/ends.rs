//! How a life ended: honestly, silently, by a crash, or not at all.

use super::*;

fn how(entries: &[brokerfall_report::history::Entry]) -> Option<crate::history::facts::HowEnded> {
    facts(entries).ended("r1").map(|ended| ended.how)
}

#[test]
fn status_failed_and_its_fatal_exception_make_an_honest_end_in_either_order() {
    use crate::history::facts::HowEnded::{Honest, Silent};
    let after = history! { plan(Kind::Table);
        0 => spawned("r1"), 10 => status("failed"), 900 => error(Origin::Background, true, "builtins.ValueError"),
    };
    let before = history! { plan(Kind::Table);
        0 => spawned("r1"), 10 => error(Origin::Callback, true, "builtins.ValueError"), 900 => status("failed"),
    };
    let never = history! { plan(Kind::Table); 0 => spawned("r1"), 10 => status("failed") };
    let waited_out = history! { plan(Kind::Table);
        0 => spawned("r1"), 10 => error(Origin::Poll, false, "a.B"), 20 => status("failed"), 30 => stopped(None),
    };
    let too_late = history! { plan(Kind::Table);
        0 => spawned("r1"), 10 => status("failed"), 5100 => error(Origin::Reader, true, "a.B"),
    };
    assert_eq!([how(&after), how(&before)], [Some(Honest); 2]);
    assert_eq!([how(&never), how(&waited_out), how(&too_late)], [Some(Silent); 3]);
}

#[test]
fn start_that_raised_is_an_honest_end() {
    let entries = history! { plan(Kind::Table);
        0 => spawned("r1"), 1 => asked(1, "start"), 10 => start_raised(1, "builtins.RuntimeError"),
    };
    let facts = facts(&entries);
    let ended = facts.ended("r1").unwrap();
    assert_eq!(ended.how, crate::history::facts::HowEnded::Honest);
    assert!(ended.fatal && ended.exception.is_some_and(|e| e.type_name == "builtins.RuntimeError"));
}

#[test]
fn error_that_stands_in_a_log_alone_is_silent() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => error(Origin::Log, true, "a.B"), 20 => stopped(None),
    };
    assert_eq!(how(&entries), Some(crate::history::facts::HowEnded::Silent));
    assert!(facts(&entries).ended("r1").unwrap().text.contains("in the log alone"));
}

#[test]
fn crash_is_neither_silent_nor_honest() {
    let entries = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => exited_by("r1", None, Some(6), false),
    };
    assert_eq!(how(&entries), Some(crate::history::facts::HowEnded::Process));
}

#[test]
fn reader_that_was_asked_to_stop_has_not_ended() {
    assert_eq!(
        how(&history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => asked(1, "stop"), 20 => stopped(None), 30 => exited_by("r1", Some(0), None, true),
        }),
        None
    );
}

#[test]
fn fatal_error_of_a_reader_that_reads_on_was_no_end() {
    assert_eq!(
        how(&history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => error(Origin::Background, true, "KafkaJSNonRetriableError"), 700 => delivered(1, 3),
        }),
        None
    );
}

#[test]
fn call_that_came_back_is_an_end_only_when_nothing_follows_for_the_window() {
    let early =
        history! { plan(Kind::Group); 0 => spawned("r1"), 10 => returned(None), 4000 => stage(Stage::Recovering) };
    let late =
        history! { plan(Kind::Group); 0 => spawned("r1"), 10 => returned(None), 5010 => stage(Stage::Recovering) };
    let looped = history! { plan(Kind::Group);
        0 => spawned("r1"), 10 => returned(None), 900 => says(ReaderEvent::Started), 5100 => stage(Stage::Recovering),
    };
    assert_eq!(
        [how(&early), how(&late), how(&looped)],
        [None, Some(crate::history::facts::HowEnded::Silent), None]
    );
}

#[test]
fn health_claimed_after_the_end_makes_it_dishonest() {
    assert_eq!(
        how(&history! { plan(Kind::Group);
            0 => spawned("r1"), 10 => error(Origin::Reader, true, "a.B"), 5100 => heartbeat("running", healthy()),
        }),
        Some(crate::history::facts::HowEnded::Silent)
    );
}
