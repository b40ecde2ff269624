//! What a broker is told: its settings and the switches of its JVM.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cluster::NodeId;
use crate::cluster::direct::Login;

/// The JVM compiles with its first compiler only and collects garbage in one thread: a broker of a test lives too short for
/// more, and start-up is CPU (1.3 s of it, 4 s with the defaults). 192 MiB are ample for what scenarios write; a broker has
/// 150 to 180 MB resident.
pub(in crate::cluster) const JVM: [&str; 11] = [
    "-Xshare:auto",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    // No file of performance counters below the temporary folder.
    "-XX:-UsePerfData",
    "-Xms64m",
    "-Xmx192m",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    // Hundreds of lines of settings at every start.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
];

/// Whom brokers know: harness, oracle and the other nodes. Readers come without a login, as `User:ANONYMOUS`, so that what
/// is forbidden to them is forbidden to nobody else. No secret: brokers are on loopback, and serve every reader.
pub(super) const LOGIN: Login = Login {
    user: "brokerfall",
    password: "brokerfall",
};

/// The principal of readers.
pub(super) const READERS: &str = "User:ANONYMOUS";

/// The listeners that want [`LOGIN`], and the setting that names it. Brokers log in to each other with the same.
const GUARDED: [(&str, &str); 3] = [
    ("ORACLE", "listener.name.oracle.plain.sasl.jaas.config"),
    ("PEERS", "listener.name.peers.plain.sasl.jaas.config"),
    ("CONTROLLER", "listener.name.controller.plain.sasl.jaas.config"),
];

/// One listener, as `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) struct Listener {
    /// Where it listens.
    pub(in crate::cluster) bound: String,
    /// What others are told.
    pub(in crate::cluster) told: String,
}

/// The listeners of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) struct Listeners {
    /// For readers, who are told the link's address.
    pub(in crate::cluster) reader: Listener,
    /// For harness and oracle.
    pub(in crate::cluster) oracle: Listener,
    /// For the other brokers, where they do not reach the oracle's.
    pub(in crate::cluster) peers: Option<Listener>,
    /// For the quorum of controllers.
    pub(in crate::cluster) controller: Listener,
}

impl Listener {
    /// Others are told where it listens.
    pub(in crate::cluster) fn at(address: SocketAddr) -> Listener {
        Listener {
            bound: address.to_string(),
            told: address.to_string(),
        }
    }
}

/// How long a broker may be silent before the controller takes it for dead, and how often it says that it lives. Most of the
/// time from SIGKILL to serving again is the dead broker's session (12.5 s with Kafka's 9 s). A heartbeat is given up after
/// as long as the next one is due: at 50 ms a loaded machine loses them.
fn session(brokers: usize) -> (Duration, Duration) {
    match brokers {
        0 | 1 => (Duration::from_millis(500), Duration::from_millis(100)),
        _ => (Duration::from_millis(1_500), Duration::from_millis(250)),
    }
}

/// The settings of a combined node, `log.dirs` being `data`. `nodes` are all of the cluster, in order of node id.
pub(in crate::cluster) fn properties(
    node: NodeId,
    nodes: &[(NodeId, Listeners)],
    data: &str,
) -> Vec<(&'static str, String)> {
    let Some((_, own)) = nodes.iter().find(|(known, _)| *known == node) else {
        unreachable!("a node is one of its cluster's");
    };
    let brokers = nodes.len();
    let (session, heartbeat) = session(brokers);
    // A lone voter wins at once; several need time to hear each other on a loaded machine.
    let (election, backoff, fetch) = if brokers == 1 { (50, 50, 500) } else { (400, 200, 1_500) };
    let voters: Vec<String> = nodes
        .iter()
        .map(|(id, at)| format!("{id}@{}", at.controller.told))
        .collect();
    let mut named = vec![("READER", &own.reader), ("ORACLE", &own.oracle)];
    named.extend(own.peers.as_ref().map(|peers| ("PEERS", peers)));
    let told: Vec<String> = named.iter().map(|(name, at)| format!("{name}://{}", at.told)).collect();
    named.push(("CONTROLLER", &own.controller));
    let bound: Vec<String> = named
        .iter()
        .map(|(name, at)| format!("{name}://{}", at.bound))
        .collect();
    let guarded = GUARDED
        .iter()
        .filter(|(name, _)| named.iter().any(|(known, _)| known == name));
    let protocols: Vec<String> = named
        .iter()
        .map(|(name, _)| {
            let is_guarded = GUARDED.iter().any(|(guarded, _)| guarded == name);
            format!("{name}:{}", if is_guarded { "SASL_PLAINTEXT" } else { "PLAINTEXT" })
        })
        .collect();
    let mut properties = Vec::new();
    let mut set = |key: &'static str, value: &dyn std::fmt::Display| properties.push((key, value.to_string()));
    set("process.roles", &"broker,controller");
    set("node.id", &node);
    set("controller.quorum.voters", &voters.join(","));
    set("controller.listener.names", &"CONTROLLER");
    let between_brokers = if own.peers.is_some() { "PEERS" } else { "ORACLE" };
    set("inter.broker.listener.name", &between_brokers);
    set("listeners", &bound.join(","));
    set("advertised.listeners", &told.join(","));
    set("listener.security.protocol.map", &protocols.join(","));
    set("sasl.enabled.mechanisms", &"PLAIN");
    set("sasl.mechanism.inter.broker.protocol", &"PLAIN");
    set("sasl.mechanism.controller.protocol", &"PLAIN");
    let Login { user, password } = LOGIN;
    let login = format!(
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"{user}\" password=\"{password}\" \
         user_{user}=\"{password}\";"
    );
    for (_, setting) in guarded {
        set(setting, &login);
    }
    set(
        "authorizer.class.name",
        &"org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    );
    // Controllers among themselves: before a quorum stands, nothing else could let them in.
    set("super.users", &format!("User:{user}"));
    // Nobody notices the authorizer until something is denied.
    set("allow.everyone.if.no.acl.found", &true);
    set("log.dirs", &data);
    set("broker.session.timeout.ms", &session.as_millis());
    set("broker.heartbeat.interval.ms", &heartbeat.as_millis());
    set("controller.quorum.election.timeout.ms", &election);
    set("controller.quorum.election.backoff.max.ms", &backoff);
    set("controller.quorum.fetch.timeout.ms", &fetch);
    set("offsets.topic.num.partitions", &super::topics::OFFSETS_PARTITIONS);
    set("offsets.topic.replication.factor", &brokers);
    set("transaction.state.log.num.partitions", &3);
    set("transaction.state.log.replication.factor", &brokers);
    set("transaction.state.log.min.isr", &1);
    set("default.replication.factor", &brokers);
    set("group.initial.rebalance.delay.ms", &0);
    // A reader that asks for a topic must not make it.
    set("auto.create.topics.enable", &false);
    // Leaders stay where a scenario has put them.
    set("auto.leader.rebalance.enable", &false);
    set("log.retention.ms", &-1);
    // Kafka looks first after 30 s, and then every 5 minutes.
    set("log.initial.task.delay.ms", &500);
    set("log.retention.check.interval.ms", &500);
    // The cleaner, which also applies retention to compacted topics, looks every 15 s.
    set("log.cleaner.backoff.ms", &500);
    set("num.network.threads", &1);
    set("num.io.threads", &2);
    // Its default is 128 MiB of heap.
    set("log.cleaner.dedupe.buffer.size", &(2 << 20));
    properties
}

/// Settings as a server.properties.
pub(in crate::cluster) fn file(properties: &[(&str, String)]) -> String {
    let lines = properties.iter().map(|(key, value)| format!("{key}={value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(properties: &'a [(&str, String)], key: &str) -> &'a str {
        let found = properties.iter().find(|(known, _)| *known == key);
        &found.unwrap_or_else(|| panic!("{key} is not set")).1
    }

    fn listeners(last: u8) -> Listeners {
        let at = |port: u16| Listener::at(SocketAddr::from(([127, 0, 0, last], port)));
        Listeners {
            reader: Listener {
                told: format!("127.0.0.{last}:2"),
                ..at(1)
            },
            oracle: at(3),
            peers: None,
            controller: at(4),
        }
    }

    #[test]
    fn readers_are_told_the_links_address_and_everybody_else_the_direct_one() {
        let nodes = [(1, listeners(1)), (2, listeners(2))];
        let told = properties(2, &nodes, "/data");
        let value = |key| value(&told, key);
        assert_eq!(value("node.id"), "2");
        assert_eq!(
            value("listeners"),
            "READER://127.0.0.2:1,ORACLE://127.0.0.2:3,CONTROLLER://127.0.0.2:4"
        );
        assert_eq!(
            value("advertised.listeners"),
            "READER://127.0.0.2:2,ORACLE://127.0.0.2:3"
        );
        assert_eq!(value("inter.broker.listener.name"), "ORACLE");
        assert_eq!(value("controller.quorum.voters"), "1@127.0.0.1:4,2@127.0.0.2:4");
        assert_eq!(value("offsets.topic.replication.factor"), "2");
        assert_eq!(value("log.dirs"), "/data");
    }

    #[test]
    fn brokers_that_do_not_reach_the_direct_listener_have_one_of_their_own() {
        let own = Listeners {
            peers: Some(Listener {
                bound: "0.0.0.0:9094".to_owned(),
                told: "broker-1:9094".to_owned(),
            }),
            ..listeners(1)
        };
        let told = properties(1, &[(1, own)], "/data");
        assert_eq!(value(&told, "inter.broker.listener.name"), "PEERS");
        assert_eq!(
            value(&told, "advertised.listeners"),
            "READER://127.0.0.1:2,ORACLE://127.0.0.1:3,PEERS://broker-1:9094"
        );
        assert!(value(&told, "listeners").contains("PEERS://0.0.0.0:9094"));
    }

    #[test]
    fn all_listeners_but_the_readers_want_a_login() {
        let peers = Some(Listener::at(SocketAddr::from(([127, 0, 0, 1], 5))));
        let with_peers = Listeners { peers, ..listeners(1) };
        let told = properties(1, &[(1, with_peers)], "/data");
        assert_eq!(
            value(&told, "listener.security.protocol.map"),
            "READER:PLAINTEXT,ORACLE:SASL_PLAINTEXT,PEERS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
        );
        for listener in ["oracle", "peers", "controller"] {
            let login = value(&told, &format!("listener.name.{listener}.plain.sasl.jaas.config"));
            assert!(login.contains("user_brokerfall=\"brokerfall\""), "{login}");
        }
        let told = properties(1, &[(1, listeners(1))], "/data");
        assert_eq!(
            value(&told, "listener.security.protocol.map"),
            "READER:PLAINTEXT,ORACLE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
        );
        assert!(!told.iter().any(|(key, _)| key.contains("peers")));
    }

    #[test]
    fn each_setting_is_a_line_of_the_file() {
        assert_eq!(
            file(&[("a", "1".to_owned()), ("b.c", "x,y".to_owned())]),
            "a=1\nb.c=x,y\n"
        );
    }

    #[test]
    fn session_is_several_heartbeats_long() {
        for brokers in 1..=3 {
            let (session, heartbeat) = session(brokers);
            assert!(session >= heartbeat * 5, "{brokers}");
        }
    }
}
