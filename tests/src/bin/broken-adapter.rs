//! An adapter that breaks one rule, named by its first argument. `good` breaks none.

use std::io::{BufRead, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, raise};

const HELLO: &str = r#""type":"hello","protocol":1,"library":"broken 1","client":"none 1","runtime":"Rust 1","kinds":["group"],"capabilities":["commit"]"#;
const BEAT: &str = r#""type":"heartbeat","state":"fine","loop_age_ms":null"#;
const MIB: usize = 1 << 20;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let out = Out::default();
    match mode.as_str() {
        "good" => {
            out.say(HELLO);
            out.beat();
            return serve(&out, |out, id, _| out.done(id));
        }
        "exits-before-hello" => {
            for n in 1..=30 {
                complain(&format!("line {n}"));
            }
            return ExitCode::from(3);
        }
        "babbles" => {
            out.say(HELLO);
            out.raw(b"DEBUG \xff connecting to broker 1\n");
            out.say(BEAT);
            return serve(&out, |out, id, _| out.done(id));
        }
        "gap" => {
            out.say(HELLO);
            out.skip();
            out.say(BEAT);
        }
        "unknown-type" => {
            out.say(HELLO);
            out.say(r#""type":"gossip""#);
        }
        "late" => {
            // Each command is answered only when the next one is in hand, after it.
            out.say(HELLO);
            out.beat();
            let mut owed = None;
            return serve(&out, move |out, id, _| {
                if let Some(earlier) = owed.replace(id) {
                    out.done(id);
                    out.done(earlier);
                    owed = None;
                }
            });
        }
        "answers-twice" => {
            out.say(HELLO);
            return serve(&out, |out, id, _| {
                out.done(id);
                out.done(id);
            });
        }
        "never-answers" => {
            out.say(HELLO);
            out.beat();
            return serve(&out, |_, _, _| {});
        }
        "ignores-sigterm" => {
            block(Signal::SIGTERM);
            out.say(HELLO);
            out.beat();
        }
        "prints-100-mb" => {
            out.say(HELLO);
            let chunk = vec![b'x'; MIB];
            for _ in 0..100 {
                out.raw(&chunk);
                if std::io::stderr().write_all(&chunk).is_err() {
                    return ExitCode::FAILURE;
                }
            }
            complain("\nall printed");
            return ExitCode::SUCCESS;
        }
        "leaves-grandchild" | "leaves-daemon" => {
            let then = if mode == "leaves-daemon" { "daemon" } else { "sleeper" };
            let Some(grandchild) = again(then) else {
                return ExitCode::FAILURE;
            };
            out.say(HELLO);
            complain(&format!("grandchild {grandchild}"));
            out.beat();
            return serve(&out, |out, id, _| out.done(id));
        }
        "daemon" => {
            if nix::unistd::setsid().is_err() {
                return ExitCode::FAILURE;
            }
            // Whoever waits for this line knows that the group has been left.
            out.raw(b"left\n");
        }
        "sleeper" => out.raw(b"here\n"),
        "floods" => {
            out.say(HELLO);
            out.burst(20_000);
        }
        "huge-line" => {
            out.say(HELLO);
            let padding = "x".repeat(2 * MIB);
            out.say(&format!(r#""type":"status","state":"{padding}""#));
        }
        "hangs" => out.say(HELLO),
        "closes-stdout" => {
            out.say(HELLO);
            if nix::unistd::close(1).is_err() {
                return ExitCode::FAILURE;
            }
        }
        "stops-itself" => {
            out.say(HELLO);
            if raise(Signal::SIGSTOP).is_err() {
                return ExitCode::FAILURE;
            }
            out.beat();
            return serve(&out, |out, id, _| out.done(id));
        }
        "loop-stands" => {
            out.say(HELLO);
            out.say(r#""type":"started""#);
            // Its ages are true: it really has not turned since it started.
            let (_open, tick) = std::sync::mpsc::channel::<()>();
            for turn in 1..=25 {
                let _ = tick.recv_timeout(Duration::from_millis(100));
                let age = turn * 100;
                out.say(&format!(r#""type":"heartbeat","state":"fine","loop_age_ms":{age}"#));
            }
            out.beat();
            return serve(&out, |out, id, _| out.done(id));
        }
        "silent" => {}
        "hostile" => {
            out.say(&hostile_hello());
            return serve(&out, |out, id, name| {
                if name == "start" {
                    hostile_end(out);
                }
                out.done(id);
            });
        }
        "tells-environment" => {
            let mut names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
            names.sort();
            for name in names {
                complain(&name.to_string_lossy());
            }
            return ExitCode::SUCCESS;
        }
        _ => return ExitCode::from(2),
    }
    loop {
        std::thread::park();
    }
}

/// What must not act in any output: a terminal escape, a bell, a line that turns round, markup of every format, a cell, a
/// comment's end, a character that XML forbids, and a word that tests look for.
const HOSTILE: &str = "\u{1b}[31mred\u{7}\u{202e}turned\u{2066} <script>alert(1)</script> | `x` ]]> & \"q\"\n\rfake: passed\n# h\u{0}\u{ffff}\u{9b}2J evil";

fn hostile_hello() -> String {
    let text = serde_json::Value::from(HOSTILE);
    format!(
        r#""type":"hello","protocol":1,"library":{text},"client":{text},"runtime":{text},"kinds":["group"],"capabilities":["status"]"#
    )
}

/// Every free text of the protocol at once, and then the end.
fn hostile_end(out: &Out) {
    let text = serde_json::Value::from(HOSTILE);
    let long = serde_json::Value::from(format!("{HOSTILE}{}", "long ".repeat(20_000)));
    let exception = format!(
        r#"{{"type":{text},"code":{{"value":7,"name":{text}}},"attributes":{{{text}:{text}}},"message":{long},"children":[{{"type":{text},"message":{text},"relation":"cause"}}],"frames":[{{"file":{text},"function":{text},"line":1,"of":"library"}}]}}"#
    );
    out.say(r#""type":"started""#);
    out.say(&format!(
        r#""type":"error","origin":"background","fatal":true,"exception":{exception}"#
    ));
    out.say(&format!(r#""type":"status","state":{text},"detail":{text}"#));
    out.say(&format!(r#""type":"heartbeat","state":{text},"loop_age_ms":null"#));
    out.say(&format!(r#""type":"stopped","reason":{text},"exception":{exception}"#));
    complain(HOSTILE);
}

/// Reads commands until stdin ends or `stop` comes; `stop` is answered in order.
fn serve(out: &Out, mut answer: impl FnMut(&Out, u64, &str)) -> ExitCode {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(command) = serde_json::from_str::<serde_json::Value>(&line) else {
            return ExitCode::FAILURE;
        };
        let id = command["id"].as_u64().unwrap_or(0);
        let name = command["command"].as_str().unwrap_or("");
        if name == "stop" {
            out.done(id);
            out.say(r#""type":"stopped","reason":"asked""#);
            break;
        }
        answer(out, id, name);
    }
    ExitCode::SUCCESS
}

/// Starts this program again in another mode and waits for its first line.
fn again(mode: &str) -> Option<u32> {
    let mut child = Command::new(std::env::current_exe().ok()?)
        .arg(mode)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take()?)
        .read_line(&mut line)
        .ok()?;
    Some(child.id())
}

fn block(signal: Signal) {
    let mut set = SigSet::empty();
    set.add(signal);
    if set.thread_block().is_err() {
        std::process::exit(1);
    }
}

fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Stdout, shared with the thread that beats.
#[derive(Clone, Default)]
struct Out(Arc<Mutex<u64>>);

impl Out {
    fn say(&self, rest: &str) {
        let mut seq = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seq += 1;
        let line = format!("{{\"v\":1,\"seq\":{seq},\"inc\":0,\"mono_ms\":{seq},{rest}}}\n");
        self.raw(line.as_bytes());
    }

    fn raw(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(bytes);
        let _ = stdout.flush();
    }

    /// Many heartbeats at once: line by line, a busy machine would slow them down to what is allowed.
    fn burst(&self, count: u64) {
        let mut seq = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = String::new();
        for _ in 0..count {
            *seq += 1;
            lines.push_str(&format!(
                "{{\"v\":1,\"seq\":{seq},\"inc\":0,\"mono_ms\":{seq},{BEAT}}}\n"
            ));
        }
        self.raw(lines.as_bytes());
    }

    fn skip(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn done(&self, id: u64) {
        self.say(&format!(r#""type":"done","id":{id},"ok":true"#));
    }

    /// Heartbeats from a thread of their own, for as long as the process lives.
    fn beat(&self) {
        let out = self.clone();
        let (_never, tick) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let _never = _never;
            loop {
                out.say(BEAT);
                let _ = tick.recv_timeout(Duration::from_millis(100));
            }
        });
    }
}
