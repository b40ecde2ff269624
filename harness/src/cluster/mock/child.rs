//! The child process that holds librdkafka's mock cluster: the hidden subcommand `brokerfall mock-cluster N`.
//!
//! It is a process of its own because readers can make the mock abort (SIGABRT by assert), and because its death must be
//! evidence about the cluster and not the end of the harness. It ends when its stdin does, so it outlives nobody.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::{Producer, ProducerContext, ThreadedProducer};

use super::ffi;
use super::pipe::{Ask, Command, Tell};
use super::wake::Waker;

/// Versions that the mock advertises and cannot speak, limited to those that work (librdkafka 2.12.1):
/// JoinGroup 6 and SyncGroup 4 read an int32 where the flexible format has a varint, LeaveGroup 3 reads a member id where
/// the format has an array, Heartbeat 5 does not exist.
const CAPS: [(i16, i16); 4] = [(11, 5), (14, 3), (13, 2), (12, 4)];

/// Apis that abort the mock by assert or lead clients into what it cannot do: ConsumerGroupHeartbeat,
/// GetTelemetrySubscriptions, PushTelemetry.
const HIDDEN: [i16; 3] = [68, 71, 72];

/// Serves a mock cluster until stdin ends. `args` holds the number of brokers.
pub fn main(args: &[String]) -> ExitCode {
    let brokers = match args {
        [count] => count.parse::<u32>().ok().filter(|count| (1..=3).contains(count)),
        _ => None,
    };
    let Some(brokers) = brokers else {
        tell(&Tell::Unable {
            reason: format!("`mock-cluster` wants the number of brokers, 1 to 3, found {args:?}"),
        });
        return ExitCode::from(2);
    };
    match start(brokers) {
        Ok((producer, waker)) => serve(producer, &waker),
        Err(reason) => {
            tell(&Tell::Unable { reason });
            ExitCode::FAILURE
        }
    }
}

fn start(brokers: u32) -> Result<(ThreadedProducer<Complaints>, Waker), String> {
    let mut config = ClientConfig::new();
    config
        .set("test.mock.num.brokers", brokers.to_string())
        .set_log_level(RDKafkaLogLevel::Error);
    // Threaded, because rdkafka hands out log lines on the thread that polls.
    // Its error's text is all that goes through the pipe.
    let producer = ThreadedProducer::from_config_and_context(&config, Complaints).map_err(|cause| cause.to_string())?;
    let client = producer.client();
    let cluster = client.mock_cluster().ok_or("the client holds no mock cluster")?;
    let listening = cluster.bootstrap_servers();
    let waker = Waker::start(listening.split(',').flat_map(str::parse).collect());
    if !waker.hand_over(|| ffi::set_initial_rebalance_delay_ms(client, 0)) {
        return Err("the client holds no mock cluster".to_owned());
    }
    for (key, max) in CAPS {
        if !waker.hand_over(|| ffi::set_api_versions(client, key, Some((0, max)))) {
            return Err(format!("api {key} could not be limited to version {max}"));
        }
    }
    for key in HIDDEN {
        if !waker.hand_over(|| ffi::set_api_versions(client, key, None)) {
            return Err(format!("api {key} could not be hidden"));
        }
    }
    drop(cluster);
    Ok((producer, waker))
}

fn serve(producer: ThreadedProducer<Complaints>, waker: &Waker) -> ExitCode {
    let Some(cluster) = producer.client().mock_cluster() else {
        return ExitCode::FAILURE;
    };
    let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
    tell(&Tell::Ready {
        brokers: cluster.bootstrap_servers().split(',').map(str::to_owned).collect(),
        librdkafka,
    });
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ask { id, command } = match serde_json::from_str(&line) {
            Ok(ask) => ask,
            Err(cause) => {
                tell(&Tell::Complaint {
                    text: format!("a command that is none: {cause}"),
                });
                continue;
            }
        };
        let done = waker.hand_over(|| carry_out(&cluster, command));
        let error = done.err().map(|cause| cause.to_string());
        tell(&Tell::Answer { id, error });
    }
    // Destroying the client would wait for its threads; the end of the process closes everything at once.
    drop(cluster);
    std::mem::forget(producer);
    ExitCode::SUCCESS
}

fn carry_out(cluster: &MockCluster<'_, Complaints>, command: Command) -> Result<(), KafkaError> {
    match command {
        Command::CreateTopic {
            name,
            partitions,
            replicas,
        } => cluster.create_topic(&name, partitions, replicas),
        Command::Lead { topic, partition, node } => cluster.partition_leader(&topic, partition, Some(node)),
        Command::Coordinate { group, node } => cluster.coordinator(MockCoordinator::Group(group), node),
        Command::Down { node } => cluster.broker_down(node),
        Command::Up { node } => cluster.broker_up(node),
    }
}

/// Writes a line for the parent. Called by the log callback too, on the polling thread.
fn tell(what: &Tell) {
    if let Ok(mut line) = serde_json::to_vec(what) {
        line.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        // A parent that no longer reads has gone, and stdin tells that too.
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }
}

/// Passes on what the mock cluster logs. The client that hosts it logs too, such as connects that a broker which is down
/// refuses; that is no complaint of the cluster.
struct Complaints;

impl ClientContext for Complaints {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        use RDKafkaLogLevel::{Alert, Critical, Emerg, Error};
        if facility.starts_with("MOCK") && matches!(level, Emerg | Alert | Critical | Error) {
            tell(&Tell::Complaint {
                text: message.to_owned(),
            });
        }
    }

    fn error(&self, _error: KafkaError, _reason: &str) {}
}

impl ProducerContext for Complaints {
    type DeliveryOpaque = ();

    fn delivery(&self, _result: &DeliveryResult<'_>, (): ()) {}
}
