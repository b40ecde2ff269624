//! What the trait promises, on brokers that are processes and on those in containers: `main.rs` of either suite starts them.

use std::net::SocketAddr;
use std::time::Duration;

use brokerfall::cluster::clusters::{Clusters, Wanted};
use brokerfall::cluster::direct::{Asker, DirectError, Login};
use brokerfall::cluster::kafka::KafkaCluster;
use brokerfall::cluster::{Ability, Cleanup, Cluster, ClusterError, ClusterKind, Resource, TopicSpec, direct};
use brokerfall::history::recorder::Recorder;
use brokerfall::oracle::Oracle;
use brokerfall_report::history::{Generator, TopicInfo};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpStream;

use brokerfall_tests::machine::Turn;
use brokerfall_tests::{SOON, eventually};

use super::{KILLED, KIND, program, start, starters};

/// A cluster with the topic `orders`, and an oracle on it.
struct Lab {
    cluster: KafkaCluster,
    oracle: Oracle,
    /// After the cluster: fields are dropped in order.
    _turn: Turn,
}

impl Lab {
    /// `None` (said aloud) where this machine has nothing that could start them.
    async fn start(brokers: u32, partitions: u32) -> Option<Lab> {
        let turn = Turn::one();
        let cluster = start(brokers).await?;
        let topic = TopicSpec {
            name: "orders".to_owned(),
            partitions,
            replicas: brokers,
            ..TopicSpec::default()
        };
        cluster.create_topic(&topic).await.unwrap();
        let oracle = oracle(&cluster, partitions).await;
        Some(Lab {
            cluster,
            oracle,
            _turn: turn,
        })
    }

    fn address(&self, node: i32) -> SocketAddr {
        let upstreams = self.cluster.upstreams();
        upstreams.iter().find(|(known, _)| *known == node).unwrap().1
    }
}

async fn oracle(cluster: &KafkaCluster, partitions: u32) -> Oracle {
    let orders = TopicInfo {
        name: "orders".to_owned(),
        partitions,
        role: None,
        compacted: false,
        generator: Generator {
            keys: 10,
            value_bytes: 100,
            tombstone_every: None,
        },
    };
    let recorder = Recorder::new(None).unwrap();
    Oracle::connect(&cluster.direct_bootstrap(), cluster.login(), recorder, &[orders])
        .await
        .unwrap()
}

async fn is_refused(address: SocketAddr) -> bool {
    matches!(TcpStream::connect(address).await, Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// State letter of a process; `None` when there is none.
fn state(pid: u32) -> Option<char> {
    brokerfall::process::proc::stat(pid).map(|stat| stat.state)
}

#[tokio::test]
async fn readers_are_told_the_links_address_and_the_oracle_the_direct_one() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let told = async |address, login| {
        let asker = Asker::new("test", login);
        let metadata = direct::metadata(address, asker, &[], SOON).await.unwrap();
        let broker = &metadata.brokers[0];
        format!("{}:{}", broker.host.as_str(), broker.port)
    };
    let advertised = lab.cluster.advertised()[0].address();
    assert_eq!(told(lab.address(1), None).await, advertised.to_string());
    let direct = lab.cluster.brokers()[0].1;
    assert_eq!(told(direct, lab.cluster.login()).await, lab.cluster.direct_bootstrap());
    // The link listens there, once there is one; until then nobody does.
    assert!(is_refused(advertised).await);
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn direct_listener_lets_nobody_in_without_its_login() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let address = lab.cluster.brokers()[0].1;
    let stranger = Asker::new(
        "test",
        Some(Login {
            user: "brokerfall",
            password: "wrong",
        }),
    );
    let refused = direct::metadata(address, stranger, &[], SOON).await.unwrap_err();
    assert!(matches!(refused, DirectError::Login { .. }), "{refused:?}");
    assert!(
        refused.never_sent() && refused.to_string().contains("`brokerfall`"),
        "{refused}"
    );
    let nobody = direct::metadata(address, "test", &[], SOON).await.unwrap_err();
    assert!(matches!(nobody, DirectError::Lost { .. }), "{nobody:?}");
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn denied_topic_is_the_readers_alone_and_is_given_back_whole() {
    let Some(lab) = Lab::start(3, 3).await else { return };
    assert!(lab.cluster.can(Ability::DenyRead));
    let orders = Resource::Topic("orders".to_owned());
    let early = lab.cluster.allow_read(&orders).await.unwrap_err();
    assert!(early.to_string().contains("0 ACL(s)"), "{early}");
    let topics = ["orders".to_owned()];
    let leaders = async || {
        let metadata = direct::metadata(lab.address(1), "test", &topics, SOON).await;
        metadata.unwrap().topics[0].partitions.len()
    };
    for _ in 0..3 {
        let proof = lab.cluster.deny_read(&orders).await.unwrap();
        assert!(
            proof.contains("1, 2 and 3") && proof.contains("TOPIC_AUTHORIZATION_FAILED"),
            "{proof}"
        );
        // READ is denied and nothing else: a reader still learns who leads.
        assert_eq!(leaders().await, 3);
        // The oracle writes and reads on.
        let wrote = lab.oracle.produce("orders", 0, 5).await.unwrap();
        assert_eq!(wrote.ids.count(), 5);
        lab.oracle.prove_path(SOON).await.unwrap();
        lab.cluster.allow_read(&orders).await.unwrap();
        assert_eq!(leaders().await, 3);
    }
    let group = Resource::Group("brokerfall".to_owned());
    let proof = lab.cluster.deny_read(&group).await.unwrap();
    assert!(proof.contains("GROUP_AUTHORIZATION_FAILED"), "{proof}");
    // Used again, a cluster is as good as new.
    lab.cluster.renew("brokerfall").await.unwrap();
    let gone = lab.cluster.allow_read(&group).await.unwrap_err();
    assert!(gone.to_string().contains("0 ACL(s)"), "{gone}");
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn topic_that_exists_is_refused_at_once() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let again = TopicSpec {
        name: "orders".to_owned(),
        partitions: 1,
        replicas: 1,
        ..TopicSpec::default()
    };
    let refused = lab.cluster.create_topic(&again).await.unwrap_err();
    assert!(refused.to_string().contains("TopicAlreadyExists"), "{refused}");
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn killed_broker_is_gone_and_comes_back_on_its_ports_with_its_data() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let wrote = lab.oracle.produce("orders", 0, 10).await.unwrap();
    assert_eq!(wrote.ids.count(), 10);
    let (pid, address) = (lab.cluster.pids()[0], lab.address(1));

    let proof = lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap();
    assert!(proof.contains("was killed and is gone"), "{proof}");
    assert_eq!(state(pid), None, "it is reaped");
    assert!(is_refused(address).await);
    assert!(lab.cluster.live().is_empty());
    let again = lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap_err();
    assert!(again.to_string().contains("down"), "{again}");

    lab.cluster.start_broker(1).await.unwrap();
    assert_ne!(lab.cluster.pids()[0], pid);
    let scan = lab.oracle.scan("orders", 0).await.unwrap();
    assert_eq!((scan.ids, scan.offsets), (wrote.ids, wrote.offsets));
    TcpStream::connect(address).await.unwrap();
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn port_of_a_dead_broker_is_nobodys() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let address = lab.address(1);
    lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap();
    // A socket as most programs make one, without SO_REUSEADDR.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let bound = socket.bind(&address.into());
    assert_eq!(bound.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    lab.cluster.start_broker(1).await.unwrap();
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn paused_broker_accepts_and_answers_nothing_until_it_goes_on() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let (pid, address) = (lab.cluster.pids()[0], lab.address(1));
    assert!(lab.cluster.can(Ability::PauseBroker));

    let proof = lab.cluster.pause_broker(1).await.unwrap();
    assert!(proof.starts_with(&format!("broker 1: {}", KIND.name())), "{proof}");
    if KIND == ClusterKind::Process {
        // Of a frozen container the kernel tells otherwise, in each version of control groups.
        assert_eq!(state(pid), Some('T'));
    }
    TcpStream::connect(address).await.unwrap();
    let silence = direct::metadata(address, "test", &[], Duration::from_millis(300)).await;
    assert!(silence.is_err(), "a stopped broker answered");
    assert!(!lab.cluster.answers());
    // It is up, as the kernel has it.
    assert_eq!(lab.cluster.live(), [1]);

    lab.cluster.resume_broker(1).await.unwrap();
    assert_ne!(state(pid), Some('T'));
    direct::metadata(address, "test", &[], SOON).await.unwrap();
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn paused_broker_can_be_killed() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    lab.cluster.pause_broker(1).await.unwrap();
    lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap();
    lab.cluster.start_broker(1).await.unwrap();
    lab.oracle.prove_path(SOON).await.unwrap();
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn records_are_deleted_without_writing_and_no_further_than_the_log_goes() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    lab.oracle.produce("orders", 0, 10).await.unwrap();
    lab.cluster.delete_records("orders", 0, 7).await.unwrap();
    assert_eq!(lab.oracle.watermarks("orders", 0).await.unwrap(), (7, 10));
    let beyond = lab.cluster.delete_records("orders", 0, 11).await.unwrap_err();
    assert!(beyond.to_string().contains("OffsetOutOfRange"), "{beyond}");
    assert_eq!(lab.oracle.watermarks("orders", 0).await.unwrap(), (7, 10));
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn records_of_a_compacted_topic_can_be_deleted_and_retention_deletes_by_itself() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let table = TopicSpec {
        name: "table".to_owned(),
        partitions: 1,
        replicas: 1,
        cleanup: Cleanup::CompactDelete,
        ..TopicSpec::default()
    };
    lab.cluster.create_topic(&table).await.unwrap();
    lab.cluster.until_takes("table", 0).await.unwrap();
    lab.cluster.delete_records("table", 0, 1).await.unwrap();

    let short = TopicSpec {
        name: "short".to_owned(),
        partitions: 1,
        replicas: 1,
        retention_ms: Some(100),
        segment_bytes: Some(4096),
        ..TopicSpec::default()
    };
    lab.cluster.create_topic(&short).await.unwrap();
    lab.cluster.until_takes("short", 0).await.unwrap();
    eventually("that retention deletes", async || {
        // Beyond the start nothing can be deleted any more: the log is empty from offset 1 on.
        lab.cluster
            .delete_records("short", 0, 0)
            .await
            .ok()
            .filter(|told| told.ends_with("to 1"))
    })
    .await;
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn leader_and_coordinator_move_where_they_are_told_and_stay() {
    let Some(lab) = Lab::start(3, 3).await else { return };
    for (partition, node) in [(0, 1), (1, 2), (2, 3)] {
        assert_eq!(lab.cluster.leader("orders", partition).await.unwrap(), node);
    }
    for to in [3, 1, 2] {
        lab.cluster.move_leader("orders", 0, to).await.unwrap();
        assert_eq!(lab.cluster.leader("orders", 0).await.unwrap(), to);
        lab.cluster.move_coordinator("brokerfall", to).await.unwrap();
        assert_eq!(lab.cluster.coordinator("brokerfall").await.unwrap(), to);
    }
    assert_eq!(lab.cluster.leader("orders", 1).await.unwrap(), 2);
    lab.oracle.produce("orders", 0, 5).await.unwrap();
    lab.oracle.prove_path(SOON).await.unwrap();
    let nobody = lab.cluster.move_leader("orders", 0, 9).await.unwrap_err();
    assert!(nobody.to_string().contains("brokers 1 to 3"), "{nobody}");
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn topic_of_one_broker_moves_with_its_data() {
    let _turn = Turn::one();
    let Some(cluster) = start(2).await else { return };
    let topic = TopicSpec {
        name: "orders".to_owned(),
        partitions: 1,
        replicas: 1,
        brokers: vec![2],
        ..TopicSpec::default()
    };
    cluster.create_topic(&topic).await.unwrap();
    assert_eq!(cluster.leader("orders", 0).await.unwrap(), 2);
    let oracle = oracle(&cluster, 1).await;
    let wrote = oracle.produce("orders", 0, 20).await.unwrap();
    cluster.move_leader("orders", 0, 1).await.unwrap();
    let scan = oracle.scan("orders", 0).await.unwrap();
    assert_eq!(scan.ids, wrote.ids);
    cluster.shutdown().await;
}

#[tokio::test]
async fn killed_leader_of_three_is_replaced_and_named_no_more() {
    let Some(lab) = Lab::start(3, 3).await else { return };
    lab.cluster.kill_broker(1, Duration::ZERO).await.unwrap();
    let elected = eventually("an election", async || {
        lab.cluster.leader("orders", 0).await.ok().filter(|node| *node != 1)
    });
    assert!([2, 3].contains(&elected.await));
    eventually("that nobody names the dead", async || {
        lab.cluster.members().await.ok().filter(|named| *named == [2, 3])
    })
    .await;
    lab.oracle.prove_path(SOON).await.unwrap();
    lab.cluster.start_broker(1).await.unwrap();
    assert_eq!(lab.cluster.live(), [1, 2, 3]);
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn whole_quorum_comes_back_together_with_its_data() {
    let Some(lab) = Lab::start(3, 3).await else { return };
    for partition in 0..3 {
        lab.oracle.produce("orders", partition, 5).await.unwrap();
    }
    for node in 1..=3 {
        lab.cluster.kill_broker(node, Duration::ZERO).await.unwrap();
    }
    assert!(lab.cluster.members().await.is_err());
    tokio::try_join!(
        lab.cluster.start_broker(1),
        lab.cluster.start_broker(2),
        lab.cluster.start_broker(3)
    )
    .unwrap();
    lab.oracle.prove_path(SOON).await.unwrap();
    for partition in 0..3 {
        assert_eq!(lab.oracle.scan("orders", partition).await.unwrap().ids.count(), 5);
    }
    lab.cluster.shutdown().await;
}

#[tokio::test]
async fn broker_that_dies_by_itself_ends_the_cluster_with_its_last_words() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let pid = i32::try_from(lab.cluster.pids()[0]).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let last_words = tokio::time::timeout(SOON, lab.cluster.died()).await.unwrap();
    assert!(last_words.contains(KILLED), "{last_words}");
    let logged = last_words.lines().filter(|line| line.contains(" INFO ")).count();
    assert!(logged > 3, "its log is shown: {last_words}");
    lab.cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_cluster_leaves_no_process() {
    let Some(lab) = Lab::start(1, 1).await else { return };
    let pid = lab.cluster.pids()[0];
    drop(lab);
    eventually("the end of its process", async || state(pid).is_none().then_some(())).await;
}

#[tokio::test]
async fn cluster_is_used_again_as_good_as_new_and_one_that_was_left_paused_is_not() {
    let _turn = Turn::one();
    let Some(starters) = starters().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let clusters = Clusters::new(program().to_owned(), folder.path().to_owned(), starters);
    let wanted = Wanted {
        kind: KIND,
        brokers: 1,
        group: "brokerfall",
        folder: folder.path(),
    };
    let first = clusters.up(wanted).await.unwrap();
    let addresses = first.cluster.brokers();
    let orders = TopicSpec {
        name: "orders".to_owned(),
        partitions: 2,
        replicas: 1,
        ..TopicSpec::default()
    };
    first.cluster.create_topic(&orders).await.unwrap();
    first.end().await;

    let second = clusters.up(wanted).await.unwrap();
    assert_eq!(second.cluster.brokers(), addresses, "the same brokers");
    let gone = second.cluster.leader("orders", 0).await.unwrap_err();
    assert!(matches!(gone, ClusterError::Refused { .. }), "{gone}");
    second.cluster.create_topic(&orders).await.unwrap();
    second.cluster.pause_broker(1).await.unwrap();
    second.end().await;

    let third = clusters.up(wanted).await.unwrap();
    assert_ne!(third.cluster.brokers(), addresses);
    third.cluster.create_topic(&orders).await.unwrap();
    third.end().await;
    clusters.shutdown().await;
}
