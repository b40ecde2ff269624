"""The Python side of Brokerfall's adapter protocol v1 (PROTOCOL.md): one file, standard library only, Python >= 3.9.

    import brokerfall_adapter
    sdk = brokerfall_adapter.Session()      # before the library is imported: stdout now belongs to the protocol
    import the_library

    class Adapter(brokerfall_adapter.AsyncAdapter):     # or ThreadAdapter, for a library that blocks
        ...                                 # start, read, stop and whatever else the library offers

    sdk.run(Adapter())

`skeleton_asyncio.py` and `skeleton_threads.py` are whole adapters to begin with.

Threads: the main thread runs the asyncio loop, `commands` reads stdin (and ends the process at its end, even while the
loop blocks), `ticker` flushes records and sends heartbeats. A `ThreadAdapter` has its reading loop on `reader`, and each of
its commands on a thread of its own. Deliberately not here: retries, exception handling on behalf of a library, or any
judgement.
"""

import asyncio
import builtins
import collections
import contextlib
import errno as os_errno
import functools
import importlib
import importlib.metadata
import json
import logging
import math
import os
import platform
import re
import sys
import sysconfig
import threading
import time

PROTOCOL = 1

HEARTBEAT_S = 0.25
FLUSH_S = 0.1
FLUSH_RECORDS = 10_000
FLUSH_RUNS = 500
SNAPSHOT_ENTRIES = 1_000
# What the library's own close is told it may take when `restart` throws the object away.
RESTART_GRACE_MS = 3_000
DELETED_KEYS = 1_000

# A loop of asyncio that has not turned for this long could not answer a health check either.
BLOCKED_S = 1.0

# Limits on what others' exceptions and logs may cost.
MAX_MESSAGE = 16_384
MAX_FRAMES = 100
MAX_EXCEPTIONS = 64
MAX_ERROR_KINDS = 1_000
NEW_ERRORS_PER_S = 100
LOG_LINES_PER_S = 200


class Unsupported(Exception):
    """The library offers no way to do what was asked."""


class InjectedBaseException(BaseException):
    """What `raise: {how: base_exception}` raises when no type is named: `except Exception` does not catch it."""


def version_of(package):
    """`name version` of an installed package, for `hello`."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def say(text):
    """A line on stderr. Straight to the descriptor: a finalizer that logs may come in the middle of another one."""
    with contextlib.suppress(OSError):
        os.write(2, (text + "\n").encode("utf-8", "replace"))


def mono_ms():
    """The adapter's clock."""
    return time.monotonic() * 1000.0


# -- exceptions as data ---------------------------------------------------------------------------------------------


class Frames:
    """Tells whose code a frame is."""

    def __init__(self):
        self._adapter_files = {os.path.abspath(__file__)}
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        if main:
            self._adapter_files.add(os.path.abspath(main))
        self._callbacks = set()
        paths = sysconfig.get_paths()
        self._stdlib = tuple({paths[name].rstrip(os.sep) + os.sep for name in ("stdlib", "platstdlib")})

    def callback(self, function):
        """Marks a function as a user callback; works as a decorator."""
        self._callbacks.add(function.__code__)
        return function

    def of(self, traceback):
        """The frames of a traceback, innermost last."""
        frames = []
        in_callback = False
        while traceback is not None:
            code = traceback.tb_frame.f_code
            file, owner = self._place(code.co_filename)
            # What a callback calls belongs to the callback.
            in_callback = in_callback or code in self._callbacks
            frames.append(
                {
                    "file": file,
                    # As a traceback prints it, so that a fingerprint equals one made from a traceback of the field.
                    "function": code.co_name,
                    "line": traceback.tb_lineno or 1,
                    "of": "callback" if in_callback else owner,
                }
            )
            traceback = traceback.tb_next
        return frames[-MAX_FRAMES:]

    def _place(self, filename):
        path = os.path.abspath(filename) if not filename.startswith("<") else filename
        if path in self._adapter_files:
            return os.path.basename(path), "adapter"
        for packages in ("site-packages", "dist-packages"):
            _, found, rest = path.rpartition(f"{os.sep}{packages}{os.sep}")
            if found:
                return rest, "library"
        if path.startswith("<frozen"):
            return path, "runtime"
        for stdlib in self._stdlib:
            if path.startswith(stdlib):
                return path[len(stdlib) :], "runtime"
        roots = [root.rstrip(os.sep) + os.sep for root in sys.path if root and path.startswith(root.rstrip(os.sep) + os.sep)]
        return (path[len(max(roots, key=len)) :] if roots else path), "library"


def type_name(cls):
    """The type, verbatim: `module.qualname`, `builtins` included."""
    return f"{cls.__module__}.{cls.__qualname__}"


def message_of(exc):
    try:
        text = str(exc)
    except Exception as broken:  # A library's __str__ may raise; that must not hide the exception.
        text = f"(its __str__ raised {type_name(type(broken))})"
    return cut(text)


def cut(text, limit=MAX_MESSAGE):
    if len(text) > limit:
        text = f"{text[:limit]}... ({len(text) - limit} more characters)"
    # A lone surrogate cannot be written as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


def scalar(value):
    """The value if JSON can hold it as a scalar, else None; the second item says whether it could."""
    if value is None or isinstance(value, bool):
        return value, True
    if isinstance(value, str):
        return cut(value, 1000), True
    if isinstance(value, int):
        return (int(value) if -(2**63) <= value < 2**63 else str(value)), True
    if isinstance(value, float):
        return (float(value) if math.isfinite(value) else str(value)), True
    return None, False


def code_of(exc):
    """The error code and the library's name for it, where the exception has one."""
    if isinstance(exc, OSError):
        if isinstance(exc.errno, int):
            return {"value": exc.errno, "name": os_errno.errorcode.get(exc.errno, str(exc.errno))}
        return None
    # confluent-kafka: KafkaException(KafkaError), where the class says nothing and the error has code() and name().
    holder = exc.args[0] if getattr(exc, "args", None) else exc
    try:
        if callable(getattr(holder, "code", None)) and callable(getattr(holder, "name", None)):
            return {"value": int(holder.code()), "name": str(holder.name())}
    except Exception:
        return None
    # aiokafka: `errno` and `message` are attributes of the class.
    number = getattr(exc, "errno", None)
    if isinstance(number, int) and not isinstance(number, bool):
        name = getattr(exc, "message", None)
        return {"value": number, "name": name if isinstance(name, str) and name else type(exc).__name__}
    return None


def exception_tree(exc, frames, _relation=None, _seen=None):
    """An exception and all it was raised from, as PROTOCOL.md describes it."""
    seen = _seen if _seen is not None else set()
    seen.add(id(exc))
    tree = {"type": type_name(type(exc)), "message": message_of(exc)}
    code = code_of(exc)
    if code is not None:
        tree["code"] = code
    attributes = {}
    try:
        named = dict(vars(exc))
    except TypeError:
        named = {}
    named.setdefault("retriable", getattr(exc, "retriable", None))
    for name, value in named.items():
        value, is_scalar = scalar(value)
        if is_scalar and not name.startswith("_") and not (name == "retriable" and value is None):
            attributes[name] = value
    if attributes:
        tree["attributes"] = attributes
    if _relation is not None:
        tree["relation"] = _relation
    below = []
    if exc.__cause__ is not None:
        below.append((exc.__cause__, "cause"))
    elif exc.__context__ is not None and not exc.__suppress_context__ and not comes_of(exc.__context__, exc):
        below.append((exc.__context__, "context"))
    # ExceptionGroup of 3.11 and of the backport alike.
    joined = getattr(exc, "exceptions", None)
    if isinstance(joined, (tuple, list)):
        below.extend((one, "joined") for one in joined if isinstance(one, BaseException))
    children = []
    for child, relation in below:
        if id(child) not in seen and len(seen) < MAX_EXCEPTIONS:
            children.append(exception_tree(child, frames, relation, seen))
    if children:
        tree["children"] = children
    stack = frames.of(exc.__traceback__)
    if stack:
        tree["frames"] = stack
    return tree


def comes_of(later, exc):
    """Whether `later` was raised because of `exc`. Python names such a one as the context of `exc` when `exc` is raised
    again while `later` unwinds; it explains nothing, and whether it is there depends on the moment of looking."""
    for _ in range(MAX_EXCEPTIONS):
        later = later.__cause__ or later.__context__
        if later is None or later is exc:
            return later is exc
    return False


# -- events ---------------------------------------------------------------------------------------------------------


class Batch:
    """Records of one partition that were not sent yet. Every record of a batch has the same parts."""

    __slots__ = ("offsets", "ids", "first", "last")

    def __init__(self, now):
        self.offsets = []
        self.ids = []
        self.first = now
        self.last = now

    @staticmethod
    def push(runs, number):
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])


class OwnedLock:
    """A lock that knows whether the asking thread holds it."""

    def __init__(self):
        self._lock = threading.Lock()
        self._owner = None

    def __enter__(self):
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *exc):
        self._owner = None
        self._lock.release()

    def by_me(self):
        return self._owner == threading.get_ident()


class Emitter:
    """Writes events, one line each, from any thread."""

    def __init__(self, fd, frames):
        self._fd = fd
        self._frames = frames
        self._held = OwnedLock()
        # Errors that came while their own thread held the lock (a finalizer or a `__str__` that logs): a line inside a
        # line would repeat a `seq` or send records twice.
        self._deferred = collections.deque()
        self._seq = 0
        self._inc = 0
        self._batches = {}
        self._deleted = []
        self._waiting = 0
        self._errors = {}
        self._window = 0.0
        self._new_in_window = 0
        # Set when something waits for the ticker.
        self.pending = threading.Event()

    def next_incarnation(self):
        """A new reader object is about to be built."""
        with self._held:
            self._flush()
            self._inc += 1

    def emit(self, event, **fields):
        """Sends one event; records that wait go first."""
        with self._held:
            self._flush()
            self._write(event, fields)

    def delivered(self, topic, partition, offset=None, record_id=None):
        """A record reached the user. Give what the library tells: offset, id, or both."""
        now = mono_ms()
        place = (topic, partition)
        with self._held:
            batch = self._batches.get(place)
            if batch is not None and (bool(batch.offsets) != (offset is not None) or bool(batch.ids) != (record_id is not None)):
                self._flush()
                batch = None
            if batch is None:
                batch = self._batches[place] = Batch(now)
                self.pending.set()
            if offset is not None:
                Batch.push(batch.offsets, offset)
            if record_id is not None:
                Batch.push(batch.ids, record_id)
            batch.last = now
            self._waiting += 1
            if self._waiting >= FLUSH_RECORDS or max(len(batch.offsets), len(batch.ids)) >= FLUSH_RUNS:
                self._flush()

    def deleted(self, key):
        """A tombstone was applied of which the library tells only the key."""
        with self._held:
            self._deleted.append(key)
            self.pending.set()
            if len(self._deleted) >= DELETED_KEYS:
                self._flush()

    def error(self, exc, origin, fatal=False, **attributes):
        """Something went wrong: an exception, or (type, message) for a plain log line. Equal ones are counted, fatal
        ones always sent."""
        if self._held.by_me():
            self._deferred.append((exc, origin, fatal, attributes))
            self.pending.set()
            return
        kind, message = exc if isinstance(exc, tuple) else (type_name(type(exc)), message_of(exc))
        masked = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", message)
        now = time.monotonic()
        with self._held:
            if now - self._window >= 1.0:
                self._window, self._new_in_window = now, 0
            key = (kind, masked, origin)
            known = None if fatal else self._errors.get(key)
            if known is None and not fatal:
                self._new_in_window += 1
                if self._new_in_window > NEW_ERRORS_PER_S:
                    # A flood of messages that all differ: counted by type.
                    key = (kind, None, origin)
                    known = self._errors.get(key)
            if known is not None:
                known["count"] += 1
                self.pending.set()
                return
            if len(self._errors) >= MAX_ERROR_KINDS:
                self._send_counts(now, every=True)
                self._errors.clear()
            if isinstance(exc, tuple):
                tree = {"type": kind, "message": message}
            else:
                tree = exception_tree(exc, self._frames)
            extra = {name: value for name, value in attributes.items() if value is not None}
            if extra:
                tree["attributes"] = {**tree.get("attributes", {}), **extra}
            if not fatal:
                self._errors[key] = {"sent": now, "count": 0, "tree": tree}
            self._flush()
            self._write("error", {"origin": origin, "fatal": fatal, "exception": tree, "count": 1})

    def tick(self, last=False):
        """Sends what waits: records, and counts of equal errors that are a second old (at the end: all)."""
        while self._deferred:
            exc, origin, fatal, attributes = self._deferred.popleft()
            self.error(exc, origin, fatal, **attributes)
        with self._held:
            self._flush()
            self._send_counts(time.monotonic(), every=last)
            return any(entry["count"] for entry in self._errors.values())

    def _send_counts(self, now, every):
        for (_, _, origin), entry in self._errors.items():
            if entry["count"] and (every or now - entry["sent"] >= 1.0):
                fields = {"origin": origin, "fatal": False, "exception": entry["tree"], "count": entry["count"]}
                self._flush()
                self._write("error", fields)
                entry["sent"], entry["count"] = now, 0

    def _flush(self):
        if self._batches:
            partitions = []
            for (topic, partition), batch in self._batches.items():
                one = {"topic": topic, "partition": partition, "t": [batch.first, batch.last]}
                if batch.offsets:
                    one["offsets"] = batch.offsets
                if batch.ids:
                    one["ids"] = batch.ids
                partitions.append(one)
            self._batches = {}
            self._waiting = 0
            self._write("records", {"partitions": partitions})
        if self._deleted:
            keys, self._deleted = self._deleted, []
            self._write("deleted", {"keys": keys})

    def _write(self, event, fields):
        line = {"v": PROTOCOL, "seq": self._seq + 1, "inc": self._inc, "mono_ms": mono_ms(), "type": event, **fields}
        data = memoryview((json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii"))
        self._seq += 1
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            # The harness is gone. Raising here would look like a fault of the library's callback.
            os._exit(1)


class LogToEvents(logging.Handler):
    """The library's log: INFO up to stderr (rate-limited), WARNING up also as `error{origin: log}`.

    A record without an exception has no type; it is reported as `log:<logger name>`.
    """

    def __init__(self, emitter):
        super().__init__(logging.INFO)
        self._emitter = emitter
        self._window = 0.0
        self._lines = 0

    def emit(self, record):
        try:
            message = cut(record.getMessage())
        except Exception as broken:
            message = f"(unformattable: {record.msg!r}: {broken!r})"
        self._to_stderr(record, message)
        if record.levelno < logging.WARNING:
            return
        exc = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if exc is None:
            self._emitter.error((f"log:{record.name}", message), "log", level=record.levelname)
        else:
            self._emitter.error(exc, "log", level=record.levelname, logger=record.name, logged=cut(message, 1000))

    def _to_stderr(self, record, message):
        now = time.monotonic()
        if now - self._window >= 1.0:
            if self._lines > LOG_LINES_PER_S:
                say(f"... {self._lines - LOG_LINES_PER_S} log lines dropped")
            self._window, self._lines = now, 0
        self._lines += 1
        if self._lines <= LOG_LINES_PER_S:
            stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
            say(f"{stamp}.{int(record.msecs):03d} {record.levelname} {record.name}: {message}")


# -- callbacks that misbehave ----------------------------------------------------------------------------------------


class Arms:
    """Callback faults that are armed."""

    def __init__(self, emitter, frames):
        self._emitter = emitter
        self._lock = threading.Lock()
        self._armed = {}
        #: An adapter with `arm_callback.delay` alone: what else could be armed is no fault of its library.
        self.only_delays = False
        # Frames of the striking itself are the callback's.
        frames.callback(Arms.strike)

    def arm(self, command):
        """Carries out `arm_callback`. Raises when the type to raise does not exist."""
        callback, raising, times = command["callback"], command["raise"], command["times"]
        on = command["on"]
        if self.only_delays and raising["how"] != "delay":
            raise Unsupported(f"`{raising['how']}` in processing that is the application's own (only `delay` is)")
        if raising["how"] in ("exception", "base_exception"):
            exception_type(raising)
        with self._lock:
            if times == 0:
                self._armed.pop(callback, None)
            else:
                self._armed[callback] = {"on": on, "raise": raising, "left": math.inf if times == "always" else times, "calls": 0}

    def strike(self, callback, key=None, offset=None):
        """To be called in every user callback, after the record was reported as delivered. Raises, hangs or delays if
        a fault is armed for this call; else returns at once."""
        struck = self._struck(callback, key, offset)
        if struck is None:
            return
        call, raising = struck
        if raising["how"] == "hang":
            # The fault itself: a callback that never comes back.
            while True:
                time.sleep(3600)
        if raising["how"] == "delay":
            # The fault itself: its length is the scenario's.
            time.sleep(raising.get("ms", 0) / 1000.0)
            return
        self._emitter.emit("callback_raised", **call)
        raise exception_type(raising)("injected by brokerfall")

    async def late(self, callback, key=None, offset=None):
        """To be awaited where the application itself processes a record, after it was reported as delivered: takes as
        long as a delay that is armed for this call (capability `arm_callback.delay`), and lets the event loop turn."""
        struck = self._struck(callback, key, offset)
        if struck is not None:
            # The fault itself: its length is the scenario's.
            await asyncio.sleep(struck[1].get("ms", 0) / 1000.0)

    def _struck(self, callback, key, offset):
        """The call and what it is to raise, reported as entered; None where nothing is armed for it."""
        with self._lock:
            arm = self._armed.get(callback)
            if arm is None:
                return None
            arm["calls"] += 1
            on = arm["on"]
            if "nth" in on:
                hit = arm["calls"] >= on["nth"]
            elif "key" in on:
                hit = key == on["key"]
            else:
                hit = offset is not None and offset == on["offset"]
            if not hit:
                return None
            arm["left"] -= 1
            if arm["left"] <= 0:
                del self._armed[callback]
        call = {"callback": callback}
        if key is not None:
            call["key"] = key
        if offset is not None:
            call["offset"] = offset
        self._emitter.emit("callback_entered", **call)
        return call, arm["raise"]


def exception_type(raising):
    """The class that `raise` names: a builtin, or `module.Class`."""
    name = raising.get("type")
    if name is None:
        return ValueError if raising["how"] == "exception" else InjectedBaseException
    module, _, attribute = name.rpartition(".")
    holder = importlib.import_module(module) if module else builtins
    found = getattr(holder, attribute, None)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise Unsupported(f"`{name}` is no exception type (wanted a builtin's name or module.Class)")
    return found


# -- the process ----------------------------------------------------------------------------------------------------


class Session:
    """Owns the standard streams. Make one before the library is imported."""

    def __init__(self):
        # Not inheritable: a grandchild that kept one open would hide our end from the harness, or its end from us.
        self._commands = os.fdopen(os.dup(0), "rb")
        events = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self.frames = Frames()
        self.emitter = Emitter(events, self.frames)
        self.arms = Arms(self.emitter, self.frames)
        #: Decorator for user callbacks: their frames are told from the adapter's.
        self.callback = self.frames.callback
        self._turned_at = None
        logging.root.addHandler(LogToEvents(self.emitter))
        logging.root.setLevel(logging.INFO)
        # An exception that ends a thread is only printed: it reaches no caller, so it is the log's.
        threading.excepthook = self._thread_ended

    def delivered(self, *arguments, **fields):
        """See `Emitter.delivered`."""
        self.emitter.delivered(*arguments, **fields)

    def turned(self):
        """To be called in every turn of a reading loop on a thread: its age is what heartbeats tell. The loop of asyncio
        is stamped by the SDK."""
        self._turned_at = time.monotonic()

    def run(self, adapter):
        """Says hello and serves commands until `stop`, the end of stdin, or the library ends the process."""
        self.arms.only_delays = "arm_callback" not in adapter.capabilities
        self.emitter.emit(
            "hello",
            protocol=PROTOCOL,
            library=adapter.library,
            client=adapter.client,
            runtime=f"{platform.python_implementation()} {platform.python_version()}",
            kinds=list(adapter.kinds),
            capabilities=list(adapter.capabilities),
        )
        try:
            asyncio.run(self._serve(adapter))
        except BaseException as exc:
            # SystemExit and KeyboardInterrupt leave the loop even when raised in the library's own task; an application
            # would end here too.
            self.emitter.error(exc, "background", fatal=True)
            self.emitter.tick(last=True)
            self.emitter.emit("stopped", reason=f"{type_name(type(exc))} left the event loop", exception=exception_tree(exc, self.frames))
            raise
        # Not os._exit: a thread that the library left running must be able to show.

    async def _serve(self, adapter):
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        running = {}
        threaded = isinstance(adapter, ThreadAdapter)
        server = _Server(self, _Threaded(self, adapter) if threaded else adapter, running, ended)

        def take(request):
            task = loop.create_task(server.answer(request))
            running[task] = request["command"]
            task.add_done_callback(lambda done: running.pop(done, None))

        threading.Thread(target=self._read_commands, args=(loop, take), name="commands", daemon=True).start()
        threading.Thread(target=self._tick, args=(adapter,), name="ticker", daemon=True).start()
        turning = loop.create_task(self._turn(adapter, stamps=not threaded))
        await ended
        turning.cancel()

    async def _turn(self, adapter, stamps):
        while True:
            if stamps:
                self.turned()
            self.watch(adapter)
            await asyncio.sleep(0.05)

    @staticmethod
    def watch(adapter):
        """Lets the adapter look at what changed; a bug of its own must not look like the reader's death."""
        try:
            adapter.watch()
        except Exception as exc:
            say(f"brokerfall_adapter: watch failed: {exc!r}")

    def _read_commands(self, loop, take):
        for line in self._commands:
            try:
                request = json.loads(line)
                if request["command"] == "arm_callback":
                    # Here and not on the loop: it must work while the loop blocks.
                    self._arm(request)
                else:
                    loop.call_soon_threadsafe(take, request)
            except RuntimeError:
                break  # The loop is closed: stop was answered.
            except (ValueError, KeyError, TypeError) as broken:
                say(f"brokerfall_adapter: cannot read command {line!r}: {broken!r}")
        self.emitter.tick(last=True)
        os._exit(0)

    def _arm(self, request):
        try:
            self.arms.arm(request)
        except Exception as exc:
            self.emitter.emit("done", id=request["id"], ok=False, error=exception_tree(exc, self.frames))
        else:
            self.emitter.emit("done", id=request["id"], ok=True)

    def _tick(self, adapter):
        emitter = self.emitter
        beat = time.monotonic()
        waits = False
        while True:
            now = time.monotonic()
            if now >= beat:
                beat = now + HEARTBEAT_S
                self.watch(adapter)
                turned = self._turned_at
                age = None if turned is None else (time.monotonic() - turned) * 1000.0
                try:
                    beat_of = {"state": "none", "claims": {}, "loop_age_ms": age, **adapter.heartbeat()}
                    if not isinstance(adapter, ThreadAdapter) and age is not None and age > BLOCKED_S * 1000.0:
                        # Nobody on the loop can be told anything: what a property says from this thread is no claim.
                        beat_of["claims"] = {}
                    emitter.emit("heartbeat", **beat_of)
                except Exception as exc:
                    # A bug of the adapter's; the thread must live, or the reader would look dead.
                    say(f"brokerfall_adapter: no heartbeat: {exc!r}")
                    emitter.emit("heartbeat", state="unknown", claims={}, loop_age_ms=age)
            # Sleeps through to the next heartbeat unless something waits.
            if emitter.pending.wait(max(0.0, beat - time.monotonic())) or waits:
                emitter.pending.clear()
                # What comes within FLUSH_S goes out as one line: time is the condition.
                time.sleep(max(0.0, min(FLUSH_S, beat - time.monotonic())))
                waits = emitter.tick()

    def _thread_ended(self, arguments):
        if arguments.exc_value is not None:
            self.emitter.error(arguments.exc_value, "log", level="ERROR", logger="threading")
        sys.__excepthook__(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)


class _Server:
    """Answers commands on the loop."""

    def __init__(self, session, adapter, running, ended):
        self._session = session
        self._adapter = adapter
        self._running = running
        self._ended = ended
        self._start = None
        self._reading = None

    async def answer(self, request):
        command, number = request["command"], request["id"]
        emitter = self._session.emitter
        try:
            answer = await self._carry_out(command, request)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            # CancelledError too: a start that `stop` cut short is answered as well.
            self._session.watch(self._adapter)
            emitter.emit("done", id=number, ok=False, error=exception_tree(exc, self._session.frames))
        else:
            emitter.emit("done", id=number, ok=True, **answer)
        if command == "stop":
            emitter.tick(last=True)
            emitter.emit("stopped", reason="asked")
            if not self._ended.done():
                self._ended.set_result(None)

    async def _carry_out(self, command, request):
        adapter, emitter = self._adapter, self._session.emitter
        if command == "start":
            self._start = request
            await self._open()
        elif command == "restart":
            if self._start is None:
                raise Unsupported("restart before start")
            await self._cut_short(lambda other: other in ("start", "restart"))
            try:
                await self._close(RESTART_GRACE_MS)
            except (SystemExit, KeyboardInterrupt, asyncio.CancelledError):
                raise
            except BaseException as exc:
                # The object is thrown away, whatever its close raised.
                emitter.error(exc, "reader")
            await self._open()
        elif command == "stop":
            await self._cut_short(lambda other: other in ("start", "restart"))
            await self._close(request["grace_ms"])
            # What the library woke by closing answers by itself; the rest is cancelled.
            await self._cut_short(lambda other: other != "stop", patience=0.2)
        elif command == "snapshot":
            entries = list(await adapter.snapshot())
            for at in range(0, len(entries), SNAPSHOT_ENTRIES):
                emitter.emit("snapshot_part", id=request["id"], entries=entries[at : at + SNAPSHOT_ENTRIES])
        elif command in ("barrier", "wait_caught_up"):
            began = time.monotonic()
            reached = bool(await getattr(adapter, command)(request["timeout_ms"]))
            self._session.watch(adapter)
            return {"reached": reached, "elapsed_ms": (time.monotonic() - began) * 1000.0}
        elif command == "commit":
            await adapter.commit()
        else:
            raise Unsupported(f"unknown command `{command}`")
        return {}

    async def _open(self):
        adapter, emitter = self._adapter, self._session.emitter
        emitter.next_incarnation()
        await adapter.start(self._start)
        self._session.watch(adapter)
        emitter.emit("started")
        if adapter.reads():
            self._reading = asyncio.create_task(self._read())

    async def _close(self, grace_ms):
        """Ends the reading loop as an application would that is told to end, then closes what is left open. Raises what
        either of them raised."""
        reading, self._reading = self._reading, None
        try:
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading
        finally:
            await self._adapter.stop(grace_ms)

    async def _read(self):
        emitter = self._session.emitter
        me = asyncio.current_task()
        try:
            await self._adapter.read()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            if self._reading is not me:
                raise  # It was told to end: the answer to `stop` says what came of it.
            self._session.watch(self._adapter)
            emitter.error(exc, "poll", fatal=True)
            emitter.emit("stopped", reason=f"{type_name(type(exc))} left the reading loop", exception=exception_tree(exc, self._session.frames))
        else:
            if self._reading is me:
                emitter.emit("stopped", reason="the reading loop returned")

    async def _cut_short(self, which, patience=0.0):
        """Cancels other commands in flight, as an application that closes would, and waits until they are answered."""
        me = asyncio.current_task()
        tasks = [task for task, command in self._running.items() if task is not me and which(command)]
        if tasks and patience:
            _, tasks = await asyncio.wait(tasks, timeout=patience)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class _Adapter:
    """What every adapter says of its library."""

    #: `name version` of the library and of the Kafka client below it.
    library = "unnamed"
    client = "unnamed"
    kinds = ()
    #: `restart` can be claimed by every adapter whose `start` can be called again after `stop`.
    capabilities = ()

    def watch(self):
        """Looks at public properties and emits what changed. Called often, on the loop and on the ticker's thread."""

    def heartbeat(self):
        """`state`, `claims`, `counters` and so on, from any thread, without touching the loop."""
        return {}

    def reads(self):
        """Whether the reading loop is the adapter's. A library that reads by itself calls back."""
        return type(self).read not in (AsyncAdapter.read, ThreadAdapter.read)


class AsyncAdapter(_Adapter):
    """What an adapter for an asyncio library fills in. What a library does not offer stays as it is here, and out of
    `capabilities`. Methods raise what the library raises."""

    async def start(self, start):
        """Builds the reader and starts it as its documentation shows."""
        raise NotImplementedError

    async def read(self):
        """The reading loop, where the application has it: from `start` until it is cancelled. Left alone where the
        library calls back."""

    async def stop(self, grace_ms):
        """Calls the library's own close; `read` has ended by then. Also after a `start` that was cut short."""
        raise NotImplementedError

    async def snapshot(self):
        """Pairs of key and record id."""
        raise Unsupported("snapshot")

    async def barrier(self, timeout_ms):
        raise Unsupported("barrier")

    async def wait_caught_up(self, timeout_ms):
        raise Unsupported("wait_caught_up")

    async def commit(self):
        raise Unsupported("commit")


class ThreadAdapter(_Adapter):
    """The same for a library that blocks: `read` runs on a thread of its own, and so does every command."""

    def __init__(self):
        #: Set when `read` must end.
        self.stopping = threading.Event()

    def start(self, start):
        """Builds the reader and starts it as its documentation shows."""
        raise NotImplementedError

    def read(self):
        """The reading loop: from `start` until `stopping` is set. It calls `Session.turned` in every turn. Left alone
        where the library has a thread of its own and calls back."""

    def wake(self):
        """Interrupts a call that `read` blocks in, where the library has a way to do that from another thread."""

    def stop(self, grace_ms):
        """Closes what `read` did not close; `read` has ended by then. Also after a `start` that was cut short."""

    def snapshot(self):
        """Pairs of key and record id."""
        raise Unsupported("snapshot")

    def barrier(self, timeout_ms):
        raise Unsupported("barrier")

    def wait_caught_up(self, timeout_ms):
        raise Unsupported("wait_caught_up")

    def commit(self):
        raise Unsupported("commit")


class _Threaded:
    """A `ThreadAdapter` as the server drives it. A call that is cut short is answered, and its thread left alone."""

    def __init__(self, session, adapter):
        self._session = session
        self._adapter = adapter
        self.watch = adapter.watch
        self.reads = adapter.reads
        for name in ("start", "stop", "snapshot", "barrier", "wait_caught_up", "commit"):
            setattr(self, name, functools.partial(self._call, name, getattr(adapter, name)))

    async def read(self):
        adapter = self._adapter
        adapter.stopping.clear()
        # Not a daemon: a library whose loop does not come back must be seen to keep the process alive.
        reading = asyncio.ensure_future(self._call("reader", self._read, daemon=False))
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            adapter.stopping.set()
            await self._call("wake", adapter.wake)
            await reading
            raise

    def _read(self):
        try:
            self._adapter.read()
        finally:
            # A loop that has ended has no age.
            self._session._turned_at = None

    async def _call(self, name, function, *arguments, daemon=True):
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def settle(put, value):
            if not answer.done():
                put(value)

        def run():
            try:
                result = function(*arguments)
            except (SystemExit, KeyboardInterrupt, StopIteration) as exc:
                # In a thread these end nothing but the thread, and asyncio would make more of them.
                put, value = answer.set_exception, RuntimeError(f"{type_name(type(exc))} left a thread")
                value.__cause__ = exc
            except BaseException as exc:
                put, value = answer.set_exception, exc
            else:
                put, value = answer.set_result, result
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits for the answer.
                loop.call_soon_threadsafe(settle, put, value)

        threading.Thread(target=run, name=name, daemon=daemon).start()
        return await answer
