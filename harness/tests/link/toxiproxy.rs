//! Toxiproxy itself: the wrapper of its API against a real server, and a server that dies. Named skips where there is no
//! server and no Go to build one.
#![expect(clippy::print_stdout, reason = "a skip is said aloud")]

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use brokerfall::link::toxiproxy::api::{Api, ApiError, NewProxy};
use brokerfall::link::toxiproxy::toxics::{Kind, State, Stream, Toxic};
use brokerfall::link::toxiproxy::{Program, ProgramError, ToxiproxyError};
use brokerfall::link::{Connects, Cut, CutHeal, CutMode, Direction, Link, LinkError};
use brokerfall::process::{Child, Spawner, Spec};
use brokerfall::reader::provision::ProvisionOptions;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::lab::*;

/// The server's program from the user's own cache, built at the first call.
pub(crate) fn program() -> Option<Program> {
    let cache = ProvisionOptions::default().cache_dir().unwrap();
    match Program::find(&cache, true, &|line| println!("{line}")) {
        Ok(program) => Some(program),
        Err(cause @ ProgramError::NoGo { .. }) => {
            println!("skipped: {cause}");
            None
        }
        Err(cause) => panic!("{cause}"),
    }
}

/// A server of the test's own, and its API.
struct Toxiproxy {
    child: Child,
    api: Api,
    upstream: TcpListener,
}

const PROXY: &str = "broker-1";

impl Toxiproxy {
    async fn start() -> Option<Self> {
        let program = program()?;
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = free.local_addr().unwrap();
        drop(free);
        let spawner = Spawner::shared_with(Path::new(env!("CARGO_BIN_EXE_brokerfall"))).unwrap();
        let command = vec![
            program.path().to_string_lossy().into_owned(),
            format!("-host={}", control.ip()),
            format!("-port={}", control.port()),
        ];
        let child = spawner
            .spawn(Spec {
                command,
                ..Spec::default()
            })
            .await
            .unwrap();
        let connects = || std::net::TcpStream::connect(control).is_ok();
        until(connects).await;
        let toxiproxy = Toxiproxy {
            child,
            api: Api::new(control).unwrap(),
            upstream: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        toxiproxy.api.populate(&[toxiproxy.proxy(PROXY)]).await.unwrap();
        Some(toxiproxy)
    }

    /// A proxy on a port that is free.
    fn proxy(&self, name: &str) -> NewProxy {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        NewProxy {
            name: name.to_owned(),
            listen: free.local_addr().unwrap(),
            upstream: self.upstream.local_addr().unwrap(),
        }
    }

    async fn state(&self) -> State {
        self.api.state(PROXY).await.unwrap()
    }
}

impl Drop for Toxiproxy {
    fn drop(&mut self) {
        self.child.group.kill_all();
    }
}

fn bandwidth(rate: u32) -> Toxic {
    Toxic::new(Kind::Bandwidth, Stream::Upstream, &[("rate", rate)])
}

fn all_kinds() -> Vec<Toxic> {
    let mut all = Vec::new();
    for stream in [Stream::Upstream, Stream::Downstream] {
        all.push(Toxic::new(Kind::Bandwidth, stream, &[("rate", 7)]));
        all.push(Toxic::new(Kind::Latency, stream, &[("latency", 20), ("jitter", 5)]));
        all.push(Toxic::new(Kind::ResetPeer, stream, &[("timeout", 0)]));
        all.push(Toxic::new(Kind::Timeout, stream, &[("timeout", 0)]));
    }
    all
}

#[tokio::test]
async fn every_toxic_is_put_on_read_back_changed_and_taken_off() {
    let Some(toxiproxy) = Toxiproxy::start().await else {
        return;
    };
    let api = &toxiproxy.api;
    assert_eq!(api.version().await.unwrap(), "2.12.0");
    for toxic in all_kinds() {
        api.add(PROXY, &toxic).await.unwrap();
    }
    assert_eq!(
        toxiproxy.state().await,
        State {
            enabled: true,
            toxics: all_kinds()
        }
    );
    api.update(PROXY, &bandwidth(0)).await.unwrap();
    assert_eq!(toxiproxy.state().await.toxics[0], bandwidth(0));
    for toxic in all_kinds() {
        api.remove(PROXY, &toxic).await.unwrap();
    }
    assert_eq!(toxiproxy.state().await.toxics, []);
    api.enable(PROXY, false).await.unwrap();
    assert!(!toxiproxy.state().await.enabled);
    api.enable(PROXY, true).await.unwrap();
    // Twice is no change, and no error.
    api.enable(PROXY, true).await.unwrap();
}

#[tokio::test]
async fn second_toxic_of_a_name_is_an_error_although_the_crate_sees_none() {
    let Some(toxiproxy) = Toxiproxy::start().await else {
        return;
    };
    let api = &toxiproxy.api;
    api.add(PROXY, &bandwidth(7)).await.unwrap();
    let error = api.add(PROXY, &bandwidth(8)).await.unwrap_err();
    assert!(
        matches!(&error, ApiError::NotInForce { found, wanted, .. }
            if found.contains("bandwidth_upstream (rate 7)") && wanted == "bandwidth_upstream (rate 8)"),
        "{error}"
    );
    // Where the wrapper speaks HTTP itself, it sees the status.
    let reset = Toxic::new(Kind::ResetPeer, Stream::Upstream, &[("timeout", 0)]);
    api.add(PROXY, &reset).await.unwrap();
    let error = api.add(PROXY, &reset).await.unwrap_err();
    assert!(
        matches!(&error, ApiError::Refused { status: 409, answer, .. } if answer == "toxic already exists"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_not_there_is_named_with_its_status() {
    let Some(toxiproxy) = Toxiproxy::start().await else {
        return;
    };
    let api = &toxiproxy.api;
    let absent = |error: ApiError, answer: &str| {
        let told = error.to_string();
        assert!(
            matches!(error, ApiError::Refused { status: 404, .. }) && told.contains(answer),
            "{told}"
        );
    };
    absent(api.state("broker-9").await.unwrap_err(), "proxy not found");
    absent(api.enable("broker-9", false).await.unwrap_err(), "proxy not found");
    absent(api.add("broker-9", &bandwidth(1)).await.unwrap_err(), "proxy not found");
    absent(api.update(PROXY, &bandwidth(1)).await.unwrap_err(), "toxic not found");
    absent(api.remove(PROXY, &bandwidth(1)).await.unwrap_err(), "toxic not found");
}

#[tokio::test]
async fn settings_that_toxiproxy_does_not_take_are_errors() {
    let Some(toxiproxy) = Toxiproxy::start().await else {
        return;
    };
    // An attribute that a toxic does not know is dropped by the server without a word.
    let strange = Toxic {
        attributes: [("rat".to_owned(), 3)].into(),
        ..bandwidth(0)
    };
    let error = toxiproxy.api.add(PROXY, &strange).await.unwrap_err();
    assert!(matches!(error, ApiError::NotInForce { .. }), "{error}");
    // A body that is none: too great for its 64 bits would be, but ours are 32.
    let error = toxiproxy.api.state("").await.unwrap_err();
    assert!(
        matches!(
            error,
            ApiError::Refused { status: 301 | 404, .. } | ApiError::Unreadable { .. }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn proxy_whose_port_is_taken_is_not_made() {
    let Some(toxiproxy) = Toxiproxy::start().await else {
        return;
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = NewProxy {
        listen: taken.local_addr().unwrap(),
        ..toxiproxy.proxy("broker-2")
    };
    let error = toxiproxy.api.populate(&[proxy]).await.unwrap_err();
    assert!(matches!(error, ApiError::Refused { status: 404, .. }), "{error}");
    // Nor does one listen again whose port somebody took meanwhile.
    let proxy = toxiproxy.proxy("broker-3");
    toxiproxy.api.populate(std::slice::from_ref(&proxy)).await.unwrap();
    toxiproxy.api.enable("broker-3", false).await.unwrap();
    let _taken = TcpListener::bind(proxy.listen).unwrap();
    let error = toxiproxy.api.enable("broker-3", true).await.unwrap_err();
    assert!(matches!(error, ApiError::NotInForce { .. }), "{error}");
}

#[tokio::test]
async fn dead_server_is_an_error_for_each_call_and_no_panic() {
    let Some(mut toxiproxy) = Toxiproxy::start().await else {
        return;
    };
    toxiproxy.child.group.kill_all();
    toxiproxy.child.wait().await.unwrap();
    let api = &toxiproxy.api;
    let reset = Toxic::new(Kind::ResetPeer, Stream::Upstream, &[("timeout", 0)]);
    let errors = [
        api.version().await.unwrap_err(),
        api.state(PROXY).await.unwrap_err(),
        api.enable(PROXY, false).await.unwrap_err(),
        api.add(PROXY, &bandwidth(1)).await.unwrap_err(),
        api.add(PROXY, &reset).await.unwrap_err(),
        api.update(PROXY, &bandwidth(1)).await.unwrap_err(),
        api.remove(PROXY, &bandwidth(1)).await.unwrap_err(),
        api.populate(&[toxiproxy.proxy(PROXY)]).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, ApiError::Away { .. }), "{error}");
    }
}

#[tokio::test]
async fn what_answers_and_is_no_toxiproxy_is_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = Api::new(listener.local_addr().unwrap()).unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            read(&mut stream, 20).await;
            drop(stream.write_all(b"SSH-2.0-OpenSSH\r\n").await);
            let mut rest = [0; 4096];
            // OK to ignore: what is left unread would reset the answer.
            let _ = stream.try_read(&mut rest);
        }
    });
    let error = api.version().await.unwrap_err();
    assert!(
        matches!(&error, ApiError::Unreadable { answer, .. } if answer == "SSH-2.0-OpenSSH"),
        "{error}"
    );
    let error = api.state(PROXY).await.unwrap_err();
    assert!(
        matches!(error, ApiError::Away { .. } | ApiError::Unreadable { .. }),
        "{error}"
    );
    serving.abort();
}

fn of_toxiproxy(error: &LinkError) -> &ToxiproxyError {
    match error {
        LinkError::Toxiproxy(cause) => cause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn server_that_dies_is_told_and_nothing_of_it_is_left() {
    let Some(lab) = Lab::toxiproxy().await else { return };
    let (mut reader, _broker) = lab.pair("r1").await;
    let cut = lab.cut(CutMode::Hold, Direction::Both, CutHeal::Keep).await;
    let pid = lab.link.pid();
    let kill = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
    let last_words = timeout(SOON, lab.link.died()).await.unwrap();
    assert!(last_words.contains("signal: 9"), "{last_words}");
    assert!(matches!(next(&mut reader).await, Ok(0) | Err(_)));
    assert!(refused(lab.address()).await);
    let error = lab.link.heal(cut).await.unwrap_err();
    assert!(
        matches!(of_toxiproxy(&error), ToxiproxyError::Api(ApiError::Away { .. })),
        "{error:?}"
    );
    timeout(SOON, lab.link.shutdown()).await.unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn link_that_is_dropped_leaves_no_server() {
    let Some(lab) = Lab::toxiproxy().await else { return };
    let pid = lab.link.pid();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    drop(lab);
    until(|| !Path::new(&format!("/proc/{pid}")).exists()).await;
}

#[tokio::test]
async fn cut_is_proven_by_what_toxiproxy_tells() {
    let Some(lab) = Lab::toxiproxy().await else { return };
    let cut = lab.cut(CutMode::Hold, Direction::ToReader, CutHeal::Keep).await;
    assert_eq!(
        lab.link.told_of(cut).unwrap(),
        "Toxiproxy 2.12.0 tells that broker-1 is enabled, with bandwidth_downstream (rate 0)"
    );
    let refusing = lab.cut(CutMode::Refuse, Direction::Both, CutHeal::Keep).await;
    assert!(lab.link.told_of(refusing).unwrap().contains("broker-1 is disabled"));
    lab.link.heal(cut).await.unwrap();
    assert_eq!(lab.link.told_of(cut), None);
}

#[tokio::test]
async fn cuts_that_toxiproxy_cannot_do_are_refused_by_name() {
    let Some(lab) = Lab::toxiproxy().await else { return };
    let cut_response = CutMode::MidResponse {
        after_bytes: 10,
        api: None,
        times: None,
    };
    let fine = CutMode::Delay {
        by: Duration::from_micros(1_500),
        jitter: Duration::ZERO,
    };
    let cuts = [
        (CutMode::Hold, Connects::Unanswered, "leave connects unanswered"),
        (cut_response, Connects::Accepted, "in the middle"),
        (CutMode::Throttle { bytes_per_s: 1_500 }, Connects::Accepted, "kilobyte"),
        (fine, Connects::Accepted, "millisecond"),
    ];
    for (mode, connects, why) in cuts {
        let cut = Cut {
            nodes: vec![1],
            mode,
            direction: Direction::Both,
            heals: CutHeal::Keep,
            connects,
        };
        let error = lab.link.cut(cut).await.unwrap_err();
        let cause = of_toxiproxy(&error);
        assert!(
            matches!(cause, ToxiproxyError::Cannot { .. }) && cause.to_string().contains(why),
            "{cause}"
        );
    }
}

#[tokio::test]
async fn three_brokers_are_cut_one_by_one() {
    let Some(program) = program() else { return };
    let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let upstreams = (1..)
        .zip(listeners.iter().map(|listener| listener.local_addr().unwrap()))
        .collect();
    let recorder = brokerfall::history::recorder::Recorder::new(None).unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_brokerfall"));
    let options = brokerfall::link::builtin::LinkOptions::default();
    let link = brokerfall::link::toxiproxy::ToxiproxyLink::start(&program, own, upstreams, recorder, options)
        .await
        .unwrap();
    let cut = Cut {
        nodes: vec![1, 3],
        mode: CutMode::Refuse,
        direction: Direction::Both,
        heals: CutHeal::Keep,
        connects: Connects::Accepted,
    };
    let id = link.cut(cut).await.unwrap();
    let mut refuses = HashMap::new();
    for node in 1..=3 {
        refuses.insert(node, refused(link.address(node).unwrap()).await);
    }
    assert_eq!(refuses, HashMap::from([(1, true), (2, false), (3, true)]));
    link.heal(id).await.unwrap();
    assert!(!refused(link.address(1).unwrap()).await);
    assert_eq!(link.bootstrap().split(',').count(), 3);
    link.shutdown().await;
}
