# Plain cargo lines: each can be run by hand, and `.ci/run` runs the same ones.

# Everything that CI checks.
ci: format lint doc test main-job

format:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features --locked

test:
    cargo test --locked

# The tests on real services too: Apache Kafka as processes (Java 17 or later and, the first time, Maven) and in containers (a
# Docker engine and an image on it: apache/kafka:4.1.0, or what KAFKA_IMAGE names), Toxiproxy (toxiproxy-server 2.12.0 on PATH,
# or Go the first time). `.ci/chaos` starts an engine and builds an image first.
chaos:
    cargo test --locked --features chaos

# Only those on Apache Kafka as processes; `just chaos-process faults::` only what is named so.
chaos-process *TESTS:
    cargo test --locked --features chaos --test process -- {{TESTS}}

# Only those in containers.
chaos-container *TESTS:
    cargo test --locked --features chaos --test container -- {{TESTS}}

# Only those on Toxiproxy.
chaos-toxiproxy *TESTS:
    cargo test --locked --features chaos --test link --test toxiproxy -- {{TESTS}}

# Every scenario on Apache Kafka, bundled readers. Takes about an hour.
chaos-full:
    cargo run --locked -- run --cluster process --tag full

# Every scenario that the mock can serve, on it and on Apache Kafka: verdicts and exceptions agree. Takes more than an hour.
parity:
    cargo test --locked --features chaos --test process -- --ignored full_catalogue --nocapture

# An image with the entry of apache/kafka, brokerfall/kafka:VERSION, of the installed JDK and the jars in the cache.
image:
    harness/image/build.sh

# The bundled catalogue on the bundled readers, on the embedded cluster.
main-job:
    cargo run --locked -- run

# The three incidents on the real Python reader, bad and cured release side by side.
ktables:
    cargo run --locked -- run --tag quick incidents callback-panic broker-kill broker-pause partition --reader ktables@1.1.1 --reader ktables@1.1.2

# The figures of BENCHMARKS.md, measured anew and written there. On a quiet machine; takes less than 10 minutes.
bench:
    cargo bench --locked -p brokerfall --bench link_peers -- --write BENCHMARKS.md
    cargo bench --locked -p brokerfall --bench runs -- --write BENCHMARKS.md
    cargo bench --locked -p brokerfall --bench link
    cargo bench --locked -p brokerfall --bench judge -- --write BENCHMARKS.md

# Accept changed snapshots after looking at each.
review:
    INSTA_UPDATE=always cargo test --locked
