//! Whose a container or a network is: labels that name the harness which started it, and the sweep that goes by them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use testcontainers::bollard;
use testcontainers::bollard::query_parameters::{
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, RemoveContainerOptionsBuilder,
};

use super::{EngineError, Swept};
use crate::process::proc;
use crate::reader::provision::Fnv;

/// The harness that started it: its process id, and when that process was started.
const OWNER: &str = "brokerfall.owner";

/// Where that process id means something: host and pid namespace. Harnesses in two containers may share one engine.
const PLACE: &str = "brokerfall.place";

/// What has used the engine, of which one harness may have several: in tests each has its own.
const RUN: &str = "brokerfall.run";

/// The cluster that it belongs to.
const CLUSTER: &str = "brokerfall.cluster";

/// A harness, as labels name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// In clock ticks since the machine was booted, which tells it from a later process of the same id.
    started: u64,
}

impl Owner {
    fn own() -> Owner {
        let pid = std::process::id();
        Owner {
            pid,
            started: proc::stat(pid).map_or(0, |stat| stat.started),
        }
    }

    fn parse(label: &str) -> Option<Owner> {
        let (pid, started) = label.split_once('-')?;
        Some(Owner {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    fn label(self) -> String {
        format!("{}-{}", self.pid, self.started)
    }

    fn is_alive(self) -> bool {
        proc::stat(self.pid).is_some_and(|stat| stat.started == self.started && stat.is_alive())
    }
}

/// Host and pid namespace of this process.
pub(super) fn place() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", host.trim(), namespace.display())
}

/// A name that no other has on this engine.
pub(super) fn run() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let mut hash = Fnv::default();
    hash.part(place().as_bytes());
    hash.part(Owner::own().label().as_bytes());
    hash.part(&RUNS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    hash.hex()
}

/// What everything of a cluster carries.
pub(super) fn labels(run: &str, cluster: &str) -> HashMap<String, String> {
    HashMap::from([
        (RUN.to_owned(), run.to_owned()),
        (OWNER.to_owned(), Owner::own().label()),
        (PLACE.to_owned(), place()),
        (CLUSTER.to_owned(), cluster.to_owned()),
    ])
}

/// Removes what harnesses of this place left that are no more.
pub(super) async fn sweep(docker: &bollard::Docker) -> Result<Swept, EngineError> {
    let place = format!("{PLACE}={}", place());
    remove(docker, vec![OWNER.to_owned(), place], |labels| {
        let owner = labels.get(OWNER).and_then(|label| Owner::parse(label));
        owner.is_some_and(|owner| !owner.is_alive())
    })
    .await
}

/// Removes all that a cluster has started.
pub(super) async fn clear(docker: &bollard::Docker, cluster: &str) -> Result<Swept, EngineError> {
    remove(docker, vec![format!("{CLUSTER}={cluster}")], |_| true).await
}

/// Removes all that a run has started.
pub(super) async fn clear_run(docker: &bollard::Docker, run: &str) -> Result<Swept, EngineError> {
    remove(docker, vec![format!("{RUN}={run}")], |_| true).await
}

/// Removes containers, then networks, that carry these labels and meet this.
async fn remove(
    docker: &bollard::Docker,
    labels: Vec<String>,
    meets: impl Fn(&HashMap<String, String>) -> bool,
) -> Result<Swept, EngineError> {
    let refused = |what: &str| {
        let what = what.to_owned();
        move |source| EngineError::Refused { what, source }
    };
    let filters = HashMap::from([("label".to_owned(), labels)]);
    let mut swept = Swept::default();
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let containers = docker.list_containers(Some(options)).await;
    for found in containers.map_err(refused("list containers"))? {
        let Some(id) = found.id.filter(|_| meets(&found.labels.unwrap_or_default())) else {
            continue;
        };
        // With its anonymous volumes.
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let removed = docker.remove_container(&id, Some(options)).await;
        swept.containers += usize::from(gone(removed).map_err(refused("remove a container"))?);
    }
    let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
    let networks = docker.list_networks(Some(options)).await;
    for found in networks.map_err(refused("list networks"))? {
        let Some(id) = found.id.filter(|_| meets(&found.labels.unwrap_or_default())) else {
            continue;
        };
        let removed = docker.remove_network(&id).await;
        swept.networks += usize::from(gone(removed).map_err(refused("remove a network"))?);
    }
    Ok(swept)
}

/// Whether this removed it; false where somebody else has, or does so now.
fn gone(removed: Result<(), bollard::errors::Error>) -> Result<bool, bollard::errors::Error> {
    match removed {
        Ok(()) => Ok(true),
        Err(bollard::errors::Error::DockerResponseServerError {
            status_code: 404 | 409, ..
        }) => Ok(false),
        Err(cause) => Err(cause),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn owner_is_read_as_it_was_written_and_this_process_is_alive() {
        let own = Owner::own();
        assert_eq!(Owner::parse(&own.label()), Some(own));
        assert!(own.is_alive());
        for wrong in ["", "7", "a-1", "7-"] {
            assert_eq!(Owner::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn owner_whose_process_id_was_given_to_another_is_no_more() {
        let own = Owner::own();
        let earlier = Owner {
            started: own.started + 1,
            ..own
        };
        assert!(!earlier.is_alive());
    }

    #[test]
    fn no_two_runs_have_one_name() {
        assert_ne!(run(), run());
    }

    #[test]
    fn everything_says_whose_it_is() {
        let labels = labels("r1", "c1");
        assert_eq!((labels[RUN].as_str(), labels[CLUSTER].as_str()), ("r1", "c1"));
        assert_eq!(Owner::parse(&labels[OWNER]), Some(Owner::own()));
        assert!(labels[PLACE].contains("pid:["), "{}", labels[PLACE]);
    }
}
