//! What a broker is told: its server.properties and the switches of its JVM.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::cluster::NodeId;
use crate::cluster::direct::Login;

/// The JVM compiles with its first compiler only and collects garbage in one thread: a broker of a test lives too short for
/// more, and start-up is CPU (1.3 s of it, 4 s with the defaults). 192 MiB are ample for what scenarios write; a broker has
/// 150 to 180 MB resident.
pub(super) const JVM: [&str; 11] = [
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

/// Where one node of the cluster listens, and what it tells readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    /// For readers, behind the link.
    pub(super) reader: SocketAddr,
    /// What it tells readers: the link's address for it.
    pub(super) advertised: SocketAddr,
    /// For harness, oracle and the other brokers.
    pub(super) oracle: SocketAddr,
    /// For the quorum of controllers.
    pub(super) controller: SocketAddr,
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

/// The server.properties of a combined node. `nodes` are all of the cluster, in order of node id.
pub(super) fn properties(node: NodeId, nodes: &[(NodeId, Addresses)], data: &Path) -> String {
    let Some((_, own)) = nodes.iter().find(|(known, _)| *known == node) else {
        unreachable!("a node is one of its cluster's");
    };
    let brokers = nodes.len();
    let (session, heartbeat) = session(brokers);
    // A lone voter wins at once; several need time to hear each other on a loaded machine.
    let (election, backoff, fetch) = if brokers == 1 { (50, 50, 500) } else { (400, 200, 1_500) };
    let voters: Vec<String> = nodes.iter().map(|(id, at)| format!("{id}@{}", at.controller)).collect();
    let mut text = String::new();
    let mut set = |key: &str, value: &dyn std::fmt::Display| {
        // OK because a String takes everything.
        let _ = writeln!(text, "{key}={value}");
    };
    set("process.roles", &"broker,controller");
    set("node.id", &node);
    set("controller.quorum.voters", &voters.join(","));
    set("controller.listener.names", &"CONTROLLER");
    set("inter.broker.listener.name", &"ORACLE");
    set(
        "listeners",
        &format!(
            "READER://{},ORACLE://{},CONTROLLER://{}",
            own.reader, own.oracle, own.controller
        ),
    );
    set(
        "advertised.listeners",
        &format!("READER://{},ORACLE://{}", own.advertised, own.oracle),
    );
    set(
        "listener.security.protocol.map",
        &"READER:PLAINTEXT,ORACLE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    );
    set("sasl.enabled.mechanisms", &"PLAIN");
    set("sasl.mechanism.inter.broker.protocol", &"PLAIN");
    set("sasl.mechanism.controller.protocol", &"PLAIN");
    let Login { user, password } = LOGIN;
    for listener in ["oracle", "controller"] {
        set(
            &format!("listener.name.{listener}.plain.sasl.jaas.config"),
            &format!(
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"{user}\" \
                 password=\"{password}\" user_{user}=\"{password}\";"
            ),
        );
    }
    set(
        "authorizer.class.name",
        &"org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    );
    // Controllers among themselves: before a quorum stands, nothing else could let them in.
    set("super.users", &format!("User:{user}"));
    // Nobody notices the authorizer until something is denied.
    set("allow.everyone.if.no.acl.found", &true);
    set("log.dirs", &data.display());
    set("broker.session.timeout.ms", &session.as_millis());
    set("broker.heartbeat.interval.ms", &heartbeat.as_millis());
    set("controller.quorum.election.timeout.ms", &election);
    set("controller.quorum.election.backoff.max.ms", &backoff);
    set("controller.quorum.fetch.timeout.ms", &fetch);
    for (topic, least) in [
        ("offsets.topic", None),
        ("transaction.state.log", Some("transaction.state.log.min.isr")),
    ] {
        set(&format!("{topic}.num.partitions"), &3);
        set(&format!("{topic}.replication.factor"), &brokers);
        if let Some(least) = least {
            set(least, &1);
        }
    }
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
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(last: u8) -> Addresses {
        let at = |port| SocketAddr::from(([127, 0, 0, last], port));
        Addresses {
            reader: at(1),
            advertised: at(2),
            oracle: at(3),
            controller: at(4),
        }
    }

    #[test]
    fn readers_are_told_the_links_address_and_everybody_else_the_direct_one() {
        let nodes = [(1, addresses(1)), (2, addresses(2))];
        let text = properties(2, &nodes, Path::new("/data"));
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(&format!("{key}=")))
                .unwrap_or_else(|| panic!("{key} is not set"))
        };
        assert_eq!(value("node.id"), "2");
        assert_eq!(
            value("listeners"),
            "READER://127.0.0.2:1,ORACLE://127.0.0.2:3,CONTROLLER://127.0.0.2:4"
        );
        assert_eq!(
            value("advertised.listeners"),
            "READER://127.0.0.2:2,ORACLE://127.0.0.2:3"
        );
        assert_eq!(value("controller.quorum.voters"), "1@127.0.0.1:4,2@127.0.0.2:4");
        assert_eq!(value("offsets.topic.replication.factor"), "2");
        assert_eq!(value("log.dirs"), "/data");
    }

    #[test]
    fn session_is_several_heartbeats_long() {
        for brokers in 1..=3 {
            let (session, heartbeat) = session(brokers);
            assert!(session >= heartbeat * 5, "{brokers}");
        }
    }
}
