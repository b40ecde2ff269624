"""Adapter for ktables: a compacted topic as a read-only dict.

`KafkaTable` is used as its README shows, with `ensure_topic=False`, for the topic is there already. It reads from the
beginning whatever `reset` says. Its observers get key and value: the record id is read from the value, the partition from
the key. `status` and `failure` are the public properties to gate liveness on, so they are what is claimed.
"""

import dataclasses
import re
import threading

import brokerfall_adapter

sdk = brokerfall_adapter.Session()

import aiokafka  # noqa: E402
import ktables  # noqa: E402
from ktables import KafkaTable  # noqa: E402

PARTITION = re.compile(r"p(\d+)-")


def record_id(value):
    """The id in `<id>|<padding>`."""
    return int(value.split(b"|", 1)[0])


class KtablesAdapter(brokerfall_adapter.AsyncAdapter):
    library = brokerfall_adapter.version_of("ktables")
    client = brokerfall_adapter.version_of("aiokafka")
    kinds = ("table",)
    capabilities = (
        "arm_callback",
        "barrier",
        "caught_up",
        "deleted",
        "records.ids",
        "restart",
        "snapshot",
        "status",
        "wait_caught_up",
    )

    def __init__(self):
        self._topic = ""
        self._table = None
        # The loop and the ticker both watch.
        self._watching = threading.Lock()
        self._told = {}

    # -- the user's side of the library

    @sdk.callback
    def on_set(self, key, value):
        found = PARTITION.match(key)
        sdk.delivered(self._topic, int(found.group(1)) if found else 0, record_id=value)
        sdk.arms.strike("on_set", key=key)

    @sdk.callback
    def on_delete(self, key):
        sdk.emitter.deleted(key)
        sdk.arms.strike("on_delete", key=key)

    def _build(self, start):
        if len(start["topics"]) != 1:
            raise brokerfall_adapter.Unsupported("a KafkaTable reads exactly one topic")
        self._topic = start["topics"][0]["name"]
        connection = connection_arguments(start)
        return KafkaTable(
            **connection,
            topic=self._topic,
            value_decoder=record_id,
            ensure_topic=False,
            on_set=self.on_set,
            on_delete=self.on_delete,
            **start.get("options", {}),
        )

    # -- commands

    async def start(self, start):
        table = self._build(start)
        with self._watching:
            self._table, self._told = table, {}
        await table.start()

    async def stop(self, grace_ms):
        if self._table is not None:
            await self._table.stop()

    async def snapshot(self):
        return self._running().snapshot().items()

    async def barrier(self, timeout_ms):
        return await self._running().barrier(timeout=timeout_ms / 1000.0)

    async def wait_caught_up(self, timeout_ms):
        return await self._running().wait_until_caught_up(timeout=timeout_ms / 1000.0)

    def _running(self):
        if self._table is None:
            raise brokerfall_adapter.Unsupported("the table was not started")
        return self._table

    # -- what it says of itself

    def watch(self):
        with self._watching:
            table, told = self._table, self._told
            if table is None:
                return
            failure = table.failure
            status = table.status
            if told.get("status") != status:
                told["status"] = status
                detail = "" if failure is None else brokerfall_adapter.type_name(type(failure))
                sdk.emitter.emit("status", state=status, detail=detail)
            if failure is not None and told.get("failure") is not failure:
                told["failure"] = failure
                sdk.emitter.error(failure, "reader", fatal=True)
            if table.is_caught_up and not told.get("caught_up"):
                told["caught_up"] = True
                sdk.emitter.emit("caught_up")

    def heartbeat(self):
        table = self._table
        if table is None:
            return {"state": "unstarted"}
        status = table.status
        claims = {"caught_up": status == "caught_up"}
        if status in ("caught_up", "degraded", "failed"):
            claims["healthy"] = status == "caught_up"
        stats = dataclasses.asdict(table.stats)
        return {
            "state": status,
            "claims": claims,
            "counters": {name: value for name, value in stats.items() if isinstance(value, (int, float))},
        }


def connection_arguments(start):
    """How this version is told where Kafka is. `client.id` is what the link tells readers apart by."""
    bootstrap = start["bootstrap"]
    if hasattr(ktables, "KafkaConnectionConfig"):
        options = {"client_id": start["client_id"], "isolation_level": start["isolation"]}
        return {"connection": ktables.KafkaConnectionConfig(bootstrap_servers=bootstrap, consumer_opts=options)}
    if start["isolation"] != "read_uncommitted":
        raise brokerfall_adapter.Unsupported(f"{KtablesAdapter.library} cannot set an isolation level")
    # Before 2.0.0 there is no way to name the client. Its default name is changed, and nothing else.
    defaults = aiokafka.AIOKafkaConsumer.__init__.__kwdefaults__ or {}
    if "client_id" in defaults:
        defaults["client_id"] = start["client_id"]
    return {"bootstrap_servers": bootstrap}


if __name__ == "__main__":
    sdk.run(KtablesAdapter())
