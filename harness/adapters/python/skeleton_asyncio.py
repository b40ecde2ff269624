"""A reader for Brokerfall on an asyncio library. Runs as it is on aiokafka: put your library in its place.

    pip install aiokafka
    brokerfall adapter check --kind group -- python3 skeleton_asyncio.py
"""

import brokerfall_adapter

sdk = brokerfall_adapter.Session()  # First: from here on stdout belongs to the protocol.

from aiokafka import AIOKafkaConsumer  # noqa: E402


class Adapter(brokerfall_adapter.AsyncAdapter):
    library = brokerfall_adapter.version_of("aiokafka")  # Yours.
    client = brokerfall_adapter.version_of("aiokafka")  # The Kafka client below it.
    kinds = ("group",)
    capabilities = ("records.offsets", "records.ids", "restart")  # PROTOCOL.md lists what else there is.

    async def start(self, start):
        self.consumer = AIOKafkaConsumer(
            *[topic["name"] for topic in start["topics"]],
            bootstrap_servers=start["bootstrap"],
            client_id=start["client_id"],
            group_id=start["group"],
            auto_offset_reset=start["reset"],
            isolation_level=start["isolation"],
            session_timeout_ms=start.get("session_ms", 10_000),
        )
        await self.consumer.start()

    async def read(self):  # Leave it out where your library calls back.
        async for message in self.consumer:
            record_id = int(dict(message.headers)["bf-id"])
            sdk.delivered(message.topic, message.partition, offset=message.offset, record_id=record_id)

    async def stop(self, grace_ms):
        await self.consumer.stop()


sdk.run(Adapter())
