"""Adapter for aiokafka: `AIOKafkaConsumer` as its documentation shows it.

`group` is "Consumer Groups and Topic Subscriptions" (docs/consumer.rst) with a listener as in
docs/examples/local_state_consumer.rst, and commits as in "Manual vs automatic committing": "for most simple use cases auto
committing is probably the best choice". With the option `enable_auto_commit = false` it is the loop that the same chapter
shows for manual commits, and the listener commits what abc.py says it has to. `assign` is "Storing Offsets Outside Kafka"
with nothing stored: assign, then seek to the beginning.

Nothing is caught on the library's behalf: what leaves the loop ends the reader, as it would end an application. Of
`arm_callback` only the delay: a record is processed in the application's own loop, which may take long over it (and let the
event loop turn meanwhile, as `await` does), and an exception there is no fault of a reader. No
`heartbeat.positions`: `position()` takes the coordinator's pending error, which belongs to the loop.
"""

import brokerfall_adapter

sdk = brokerfall_adapter.Session()

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition  # noqa: E402

#: How the protocol's optional timeouts are called here.
TIMEOUTS = {"session_ms": "session_timeout_ms", "heartbeat_ms": "heartbeat_interval_ms", "max_poll_ms": "max_poll_interval_ms"}


class Listener(ConsumerRebalanceListener):
    """Says what moves, and commits where nobody else does."""

    def __init__(self, adapter):
        self._adapter = adapter

    async def on_partitions_revoked(self, revoked):
        if revoked:
            if not self._adapter.auto_commit:
                # "If you are using manual commit you have to commit all consumed offsets here" (aiokafka/abc.py).
                await self._adapter.commit()
            sdk.emitter.emit("rebalanced", assigned=[], revoked=named(revoked), lost=[])

    async def on_partitions_assigned(self, assigned):
        sdk.emitter.emit("rebalanced", assigned=named(assigned), revoked=[], lost=[])


class AiokafkaAdapter(brokerfall_adapter.AsyncAdapter):
    library = brokerfall_adapter.version_of("aiokafka")
    client = library
    kinds = ("group", "assign")
    capabilities = ("arm_callback.delay", "commit", "rebalanced", "records.ids", "records.offsets", "restart", "static-member")

    def __init__(self):
        self._consumer = None
        self._state = "unstarted"
        self.auto_commit = True

    async def start(self, start):
        self._state = "starting"
        options = {
            "bootstrap_servers": start["bootstrap"],
            "client_id": start["client_id"],
            "group_id": start["group"] if start["kind"] == "group" else None,
            "auto_offset_reset": start["reset"],
            "isolation_level": start["isolation"],
            # "Autocommit every second", as the example there has it.
            "auto_commit_interval_ms": 1000,
            **{name: start[ours] for ours, name in TIMEOUTS.items() if ours in start},
            **({"group_instance_id": start["group_instance_id"]} if "group_instance_id" in start else {}),
            **start.get("options", {}),
        }
        self.auto_commit = options.get("enable_auto_commit", True)
        self._consumer = consumer = AIOKafkaConsumer(**options)
        await consumer.start()
        if start["kind"] == "group":
            consumer.subscribe(topics=[topic["name"] for topic in start["topics"]], listener=Listener(self))
        else:
            partitions = [TopicPartition(topic["name"], number) for topic in start["topics"] for number in range(topic["partitions"])]
            consumer.assign(partitions)
            if start["reset"] == "latest":
                await consumer.seek_to_end(*partitions)
            else:
                await consumer.seek_to_beginning(*partitions)
        self._state = "running"

    async def read(self):
        try:
            if self.auto_commit:
                async for message in self._consumer:
                    await process(message)
            else:
                while True:
                    result = await self._consumer.getmany(timeout_ms=10 * 1000)
                    for partition, messages in result.items():
                        for message in messages:
                            await process(message)
                        await self._consumer.commit({partition: messages[-1].offset + 1})
        finally:
            self._state = "ended"
            await self._consumer.stop()

    async def stop(self, grace_ms):
        # Returns at once where `read` has done it.
        if self._consumer is not None:
            await self._consumer.stop()

    async def commit(self):
        await self._consumer.commit()

    def heartbeat(self):
        # It has no status of its own.
        return {"state": self._state}


async def process(message):
    """The application's work on a record."""
    ids = [value for name, value in message.headers if name == "bf-id"]
    sdk.delivered(message.topic, message.partition, offset=message.offset, record_id=int(ids[0]) if ids else None)
    key = message.key.decode() if message.key is not None else None
    await sdk.arms.late("on_record", key=key, offset=message.offset)


def named(partitions):
    return [{"topic": one.topic, "partition": one.partition} for one in sorted(partitions)]


if __name__ == "__main__":
    sdk.run(AiokafkaAdapter())
