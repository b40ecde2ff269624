"""A reader for Brokerfall on a library that blocks. Runs as it is on confluent-kafka: put your library in its place.

    pip install confluent-kafka
    brokerfall adapter check --kind group -- python3 skeleton_threads.py
"""

import brokerfall_adapter

sdk = brokerfall_adapter.Session()  # First: from here on stdout belongs to the protocol.

from confluent_kafka import Consumer, KafkaException  # noqa: E402


class Adapter(brokerfall_adapter.ThreadAdapter):
    library = brokerfall_adapter.version_of("confluent-kafka")  # Yours.
    client = brokerfall_adapter.version_of("confluent-kafka")  # The Kafka client below it.
    kinds = ("group",)
    capabilities = ("records.offsets", "records.ids", "restart")  # PROTOCOL.md lists what else there is.

    def start(self, start):
        self.consumer = Consumer(
            {
                "bootstrap.servers": start["bootstrap"],
                "client.id": start["client_id"],
                "group.id": start["group"],
                "auto.offset.reset": start["reset"] if start["reset"] != "none" else "error",
                "isolation.level": start["isolation"],
                "session.timeout.ms": start.get("session_ms", 45_000),
            }
        )
        self.consumer.subscribe([topic["name"] for topic in start["topics"]])

    def read(self):  # On a thread of its own, until `stopping` is set. Leave it out where your library calls back.
        while not self.stopping.is_set():
            sdk.turned()
            message = self.consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                sdk.emitter.error(KafkaException(message.error()), "poll")
            else:
                record_id = int(dict(message.headers())["bf-id"])
                sdk.delivered(message.topic(), message.partition(), offset=message.offset(), record_id=record_id)

    def stop(self, grace_ms):
        self.consumer.close()


sdk.run(Adapter())
