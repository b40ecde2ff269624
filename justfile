# Plain cargo lines: each can be run by hand, and `.ci/run` runs the same ones.

# Everything that CI checks.
ci: format lint doc test main-job

format:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

test:
    cargo test --locked

# Suites on Apache Kafka; they need Java 17 or later and, the first time, Maven. One at a time: each starts brokers.
chaos:
    cargo test --locked -p brokerfall-tests --features chaos --test process -- --test-threads 2

# The link `toxiproxy`; needs toxiproxy-server 2.12.0 on PATH, or Go the first time.
toxiproxy:
    cargo test --locked -p brokerfall --features toxiproxy --test link
    cargo test --locked -p brokerfall-tests --features chaos --test toxiproxy
# The same in containers; they need a Docker engine and the image on it (KAFKA_IMAGE names another than apache/kafka).
containers:
    cargo test --locked -p brokerfall-tests --features chaos --test container -- --test-threads 2

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
