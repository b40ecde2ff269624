"""Tests of the SDK: `python3 -B -m unittest test_sdk` in this folder. Standard library only."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import brokerfall_adapter as sdk

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 30


class Sink:
    """An emitter that writes into a pipe which is read as it fills."""

    def __init__(self):
        reading, writing = os.pipe()
        self.frames = sdk.Frames()
        self.emitter = sdk.Emitter(writing, self.frames)
        self._writing = writing
        self._lines = []
        self._thread = threading.Thread(target=self._read, args=(reading,))
        self._thread.start()

    def _read(self, reading):
        with os.fdopen(reading) as file:
            self._lines = [json.loads(line) for line in file]

    def lines(self):
        """Everything that was written; the emitter cannot be used afterwards."""
        os.close(self._writing)
        self._thread.join()
        return self._lines


class Records(unittest.TestCase):
    def setUp(self):
        self.sink = Sink()
        self.emitter = self.sink.emitter

    def test_runs_end_at_every_gap_and_step_back(self):
        for offset, number in [(0, 1), (1, 2), (5, 3), (6, 4), (2, 9)]:
            self.emitter.delivered("orders", 0, offset, number)
        self.emitter.tick()
        (line,) = self.sink.lines()
        (one,) = line["partitions"]
        self.assertEqual(one["offsets"], [[0, 1], [5, 6], [2, 2]])
        self.assertEqual(one["ids"], [[1, 4], [9, 9]])
        self.assertLessEqual(one["t"][0], one["t"][1])

    def test_waiting_records_go_before_any_other_event_and_before_the_next_incarnation(self):
        self.emitter.next_incarnation()
        self.emitter.delivered("orders", 0, 0)
        self.emitter.emit("caught_up")
        self.emitter.delivered("orders", 0, 1)
        self.emitter.next_incarnation()
        self.emitter.emit("started")
        lines = self.sink.lines()
        self.assertEqual([(line["type"], line["inc"]) for line in lines], [("records", 1), ("caught_up", 1), ("records", 1), ("started", 2)])
        self.assertEqual([line["seq"] for line in lines], [1, 2, 3, 4])

    def test_ten_thousand_records_or_five_hundred_runs_are_sent_at_once(self):
        for offset in range(10_000):
            self.emitter.delivered("orders", 0, offset)
        for offset in range(0, 1000, 2):
            self.emitter.delivered("orders", 0, offset)
        self.emitter.delivered("orders", 0, 7)
        first, second = self.sink.lines()
        self.assertEqual(first["partitions"][0]["offsets"], [[0, 9999]])
        self.assertEqual(len(second["partitions"][0]["offsets"]), 500)

    def test_record_without_an_id_does_not_put_the_others_out_of_step(self):
        self.emitter.delivered("orders", 0, 0, 1)
        self.emitter.delivered("orders", 0, 1)
        self.emitter.delivered("orders", 0, 2, 2)
        self.emitter.tick()
        parts = [line["partitions"][0] for line in self.sink.lines()]
        self.assertEqual([(part["offsets"], part.get("ids")) for part in parts], [([[0, 0]], [[1, 1]]), ([[1, 1]], None), ([[2, 2]], [[2, 2]])])

    def test_threads_that_report_at_once_leave_no_gap_in_seq(self):
        def report():
            for number in range(500):
                self.emitter.emit("status", state=str(number))

        threads = [threading.Thread(target=report) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lines = self.sink.lines()
        self.assertEqual([line["seq"] for line in lines], list(range(1, 2001)))
        times = [line["mono_ms"] for line in lines]
        self.assertEqual(times, sorted(times))


class Errors(unittest.TestCase):
    def setUp(self):
        self.sink = Sink()
        self.emitter = self.sink.emitter

    def test_equal_errors_are_sent_once_and_then_counted(self):
        for number in range(50):
            self.emitter.error(ValueError(f"offset {number} at 0x7f{number}"), "background")
        self.emitter.error(ValueError("offset 7 at 0x7f7"), "log")
        self.emitter.tick(last=True)
        told = [(line["origin"], line["exception"]["message"], line["count"]) for line in self.sink.lines()]
        self.assertEqual(told, [("background", "offset 0 at 0x7f0", 1), ("log", "offset 7 at 0x7f7", 1), ("background", "offset 0 at 0x7f0", 49)])

    def test_fatal_error_is_always_sent(self):
        for _ in range(2):
            self.emitter.error(ValueError("x"), "reader", fatal=True)
        self.assertEqual([line["fatal"] for line in self.sink.lines()], [True, True])

    def test_flood_of_differing_messages_is_counted_by_type(self):
        words = [f"{a}{b}{c}" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
        for word in words:
            self.emitter.error(ValueError(word), "log")
        self.emitter.tick(last=True)
        lines = self.sink.lines()
        self.assertLessEqual(len(lines), sdk.NEW_ERRORS_PER_S + 2)
        self.assertEqual(sum(line["count"] for line in lines), len(words))

    def test_log_lines_become_errors_from_warning_up(self):
        logger = logging.getLogger("some.library")
        logger.propagate = False
        logger.setLevel(logging.INFO)
        handler = sdk.LogToEvents(self.emitter)
        handler._to_stderr = lambda record, message: None
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        logger.info("Fetch offset %d is out of range", 7)
        logger.warning("lost %s", "broker 1")
        try:
            raise KeyError("k")
        except KeyError:
            logger.exception("task died")
        plain, raised = [line["exception"] for line in self.sink.lines()]
        self.assertEqual((plain["type"], plain["message"]), ("log:some.library", "lost broker 1"))
        self.assertEqual(raised["type"], "builtins.KeyError")
        self.assertEqual(raised["attributes"]["logged"], "task died")


    def test_library_that_logs_while_a_line_is_written_repeats_no_seq_and_loses_nothing(self):
        logger = logging.getLogger("loud.library")
        logger.propagate = False
        handler = sdk.LogToEvents(self.emitter)
        handler._to_stderr = lambda record, message: None
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

        class Loud(Exception):
            def __str__(self):
                logger.warning("asked for my words")
                return "loud"

        self.emitter.delivered("orders", 0, 0)
        self.emitter.error(Loud(), "background")
        self.emitter.tick(last=True)
        lines = self.sink.lines()
        self.assertEqual([line["seq"] for line in lines], list(range(1, len(lines) + 1)))
        self.assertEqual([line["type"] for line in lines].count("records"), 1)
        logged = [line["count"] for line in lines if line["type"] == "error" and line["origin"] == "log"]
        self.assertEqual(sum(logged), 2, "once before the lock is taken, once under it")


class Coded(RuntimeError):
    """As aiokafka's errors are made."""

    errno = 29
    message = "TOPIC_AUTHORIZATION_FAILED"
    retriable = False


class KafkaError:
    """As confluent-kafka's is."""

    def code(self):
        return -185

    def name(self):
        return "_TIMED_OUT"


class Exceptions(unittest.TestCase):
    def setUp(self):
        self.frames = sdk.Frames()

    def tree(self, raising):
        try:
            raising()
        except BaseException as exc:
            return sdk.exception_tree(exc, self.frames)
        self.fail("nothing was raised")

    def test_cause_context_and_suppressed_context_are_told_apart(self):
        def cause():
            try:
                raise KeyError("a")
            except KeyError as exc:
                raise RuntimeError("b") from exc

        def context():
            try:
                raise KeyError("a")
            except KeyError:
                raise RuntimeError("b")

        def suppressed():
            try:
                raise KeyError("a")
            except KeyError:
                raise RuntimeError("b") from None

        self.assertEqual([(c["type"], c["relation"]) for c in self.tree(cause)["children"]], [("builtins.KeyError", "cause")])
        self.assertEqual([(c["type"], c["relation"]) for c in self.tree(context)["children"]], [("builtins.KeyError", "context")])
        self.assertNotIn("children", self.tree(suppressed))

    def test_joined_errors_of_a_group_are_children(self):
        if sys.version_info < (3, 11):
            self.skipTest("no ExceptionGroup before 3.11")
        group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [OSError("b")])])  # noqa: F821
        tree = sdk.exception_tree(group, self.frames)
        self.assertEqual([(c["type"], c["relation"]) for c in tree["children"]], [("builtins.ValueError", "joined"), ("builtins.ExceptionGroup", "joined")])
        self.assertEqual(tree["children"][1]["children"][0]["type"], "builtins.OSError")

    def test_code_and_attributes_are_kept_where_the_class_says_nothing(self):
        exc = Coded("x")
        exc.reason = "reader_dead"
        exc._private = 1
        exc.table = object()
        tree = sdk.exception_tree(exc, self.frames)
        self.assertEqual(tree["type"], f"{__name__}.Coded")
        self.assertEqual(tree["code"], {"value": 29, "name": "TOPIC_AUTHORIZATION_FAILED"})
        self.assertEqual(tree["attributes"], {"reason": "reader_dead", "retriable": False})
        self.assertEqual(sdk.exception_tree(RuntimeError(KafkaError()), self.frames)["code"], {"value": -185, "name": "_TIMED_OUT"})
        self.assertEqual(sdk.exception_tree(ConnectionRefusedError(111, "refused"), self.frames)["code"]["name"], "ECONNREFUSED")
        self.assertNotIn("code", sdk.exception_tree(ValueError(29), self.frames))

    def test_what_came_of_an_exception_is_not_named_as_its_context(self):
        died = ValueError("died")
        try:
            try:
                raise RuntimeError("did not start") from died
            finally:
                try:
                    raise died
                except ValueError:
                    pass
        except RuntimeError as exc:
            started = exc
        self.assertIs(died.__context__, started)
        self.assertNotIn("children", sdk.exception_tree(died, self.frames))
        self.assertEqual(sdk.exception_tree(started, self.frames)["children"][0]["relation"], "cause")

    def test_chain_that_bites_its_tail_ends(self):
        one, two = ValueError("one"), ValueError("two")
        one.__cause__, two.__cause__ = two, one
        tree = sdk.exception_tree(one, self.frames)
        self.assertNotIn("children", tree["children"][0])

    def test_unspeakable_exceptions_are_told_all_the_same(self):
        class Broken(Exception):
            def __str__(self):
                raise TypeError("no")

        self.assertIn("__str__ raised builtins.TypeError", sdk.exception_tree(Broken(), self.frames)["message"])
        long = sdk.exception_tree(ValueError("x" * 100_000 + "\ud800"), self.frames)["message"]
        self.assertLess(len(long), 20_000)
        json.dumps(sdk.exception_tree(ValueError("\ud800"), self.frames)).encode()

    def test_frames_say_whose_code_they_are(self):
        with tempfile.TemporaryDirectory() as folder:
            packages = os.path.join(folder, "site-packages", "lib")
            os.makedirs(packages)
            path = os.path.join(packages, "table.py")
            source = "def apply(callback):\n    callback(1)\n"
            with open(path, "w") as file:
                file.write(source)
            names = {}
            exec(compile(source, path, "exec"), names)

            @self.frames.callback
            def on_set(value):
                json.loads("{")

            stack = self.tree(lambda: names["apply"](on_set))["frames"]
        told = [(frame["file"], frame["function"], frame["of"]) for frame in stack]
        self.assertIn(("lib/table.py", "apply", "library"), told)
        place = told.index(("lib/table.py", "apply", "library"))
        self.assertEqual([frame[2] for frame in told[place + 1 :]], ["callback"] * (len(told) - place - 1))
        self.assertEqual(told[-1][0], "json/decoder.py")
        self.assertEqual(self.tree(lambda: json.loads("{"))["frames"][-1]["of"], "runtime")


class Arming(unittest.TestCase):
    def setUp(self):
        self.sink = Sink()
        self.arms = sdk.Arms(self.sink.emitter, self.sink.frames)

    def arm(self, on, times=1, how="exception", **more):
        self.arms.arm({"callback": "on_set", "on": on, "raise": {"how": how, **more}, "times": times})

    def struck(self, calls):
        """Numbers of the calls that raised."""
        hit = []
        for number, (key, offset) in enumerate(calls, 1):
            try:
                self.arms.strike("on_set", key=key, offset=offset)
            except BaseException:
                hit.append(number)
        return hit

    def test_nth_strikes_the_nth_call_and_those_after_it(self):
        self.arm({"nth": 3}, times=2)
        self.assertEqual(self.struck([("k", 1)] * 6), [3, 4])
        self.assertEqual([line["type"] for line in self.sink.lines()], ["callback_entered", "callback_raised"] * 2)

    def test_key_and_offset_strike_only_their_own(self):
        self.arm({"key": "b"}, times="always")
        self.assertEqual(self.struck([("a", 1), ("b", 2), ("b", 3)]), [2, 3])
        self.arm({"offset": 2})
        self.assertEqual(self.struck([("b", 1), ("b", 2), ("b", 2)]), [2])
        self.sink.lines()

    def test_other_callbacks_are_left_alone_and_zero_times_disarms(self):
        self.arm({"nth": 1}, times="always")
        self.arms.strike("on_delete", key="a")
        self.arm({"nth": 1}, times=0)
        self.assertEqual(self.struck([("a", 1)]), [])
        self.assertEqual(self.sink.lines(), [])

    def test_types_are_found_by_name_and_base_exceptions_pass_ordinary_handlers(self):
        for how, name, wanted in [
            ("exception", None, ValueError),
            ("exception", "KeyError", KeyError),
            ("exception", "builtins.OSError", OSError),
            ("exception", "asyncio.TimeoutError", asyncio.TimeoutError),
            ("base_exception", None, sdk.InjectedBaseException),
        ]:
            more = {} if name is None else {"type": name}
            self.arm({"nth": 1}, how=how, **more)
            with self.assertRaises(wanted):
                self.arms.strike("on_set", key="k")
        self.assertFalse(issubclass(sdk.InjectedBaseException, Exception))
        for name in ("NoSuchError", "len"):
            with self.assertRaises(sdk.Unsupported):
                self.arm({"nth": 1}, type=name)
        self.sink.lines()

    def test_delay_returns_late_and_raises_nothing(self):
        self.arm({"nth": 1}, how="delay", ms=50)
        began = time.monotonic()
        self.arms.strike("on_set", key="k")
        self.assertGreaterEqual(time.monotonic() - began, 0.05)
        self.assertEqual([line["type"] for line in self.sink.lines()], ["callback_entered"])

    def test_late_takes_its_time_once_and_lets_the_loop_turn(self):
        self.arm({"nth": 2}, how="delay", ms=50)
        turns = 0

        async def application():
            nonlocal turns
            await self.arms.late("on_set", key="k", offset=1)
            late = asyncio.ensure_future(self.arms.late("on_set", key="k", offset=2))
            while not late.done():
                turns += 1
                await asyncio.sleep(0.005)
            await self.arms.late("on_set", key="k", offset=3)

        began = time.monotonic()
        asyncio.run(application())
        self.assertGreaterEqual(time.monotonic() - began, 0.05)
        self.assertGreater(turns, 2)
        self.assertEqual([(line["type"], line["offset"]) for line in self.sink.lines()], [("callback_entered", 2)])

    def test_processing_that_is_the_applications_own_can_only_be_delayed(self):
        self.arms.only_delays = True
        for how in ("exception", "base_exception", "hang"):
            with self.assertRaises(sdk.Unsupported):
                self.arm({"nth": 1}, how=how)
        self.arm({"nth": 1}, how="delay", ms=1)
        self.assertEqual(self.sink.lines(), [])


PROGRAM = """
import asyncio, sys, threading, time
import brokerfall_adapter
session = brokerfall_adapter.Session()
print("the library prints")
import os
os.write(1, b"and writes to descriptor 1\\n")

class Adapter(brokerfall_adapter.AsyncAdapter):
    library = client = "library 1"
    kinds = ("table",)
    capabilities = ("barrier", "arm_callback", "records.ids")

    starts = 0

    async def start(self, start):
        self.starts += 1
        how = start.get("options", {}).get("how")
        if how == "raise":
            raise RuntimeError("cannot start")
        if how == "wait" and self.starts == 1:
            await asyncio.sleep(3600)
        if how == "block":
            session.delivered("orders", 0, record_id=1)
            time.sleep(3600)
        if how == "exit":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
        if how == "thread":
            threading.Thread(target=lambda: 1 / 0).start()

    async def barrier(self, timeout_ms):
        await asyncio.sleep(3600)

    def heartbeat(self):
        return {"claims": {"healthy": True}}

    async def stop(self, grace_ms):
        pass

session.run(Adapter())
"""


READING = """
import asyncio, sys, time
import brokerfall_adapter
session = brokerfall_adapter.Session()

class Asyncio(brokerfall_adapter.AsyncAdapter):
    async def start(self, start):
        self.how = start["how"]

    async def read(self):
        session.delivered("orders", 0, offset=0)
        try:
            if self.how == "raise":
                raise RuntimeError("the loop is over")
            if self.how == "return":
                return
            await asyncio.Event().wait()
        finally:
            if self.how == "bad close":
                raise OSError("cannot close")

    async def stop(self, grace_ms):
        session.emitter.emit("status", state="closed")

class Threads(brokerfall_adapter.ThreadAdapter):
    def start(self, start):
        self.how = start["how"]
        if self.how == "block":
            time.sleep(3600)

    def read(self):
        session.turned()
        session.delivered("orders", 0, offset=0)
        if self.how == "raise":
            raise RuntimeError("the loop is over")
        if self.how == "exit":
            sys.exit(3)
        if self.how == "return":
            return
        if self.how == "hang":
            time.sleep(3600)
        while not self.stopping.is_set():
            if self.how != "stand still":
                session.turned()
            time.sleep(0.01)
        if self.how == "bad close":
            raise OSError("cannot close")

    def stop(self, grace_ms):
        session.emitter.emit("status", state="closed")

session.run({"asyncio": Asyncio, "threads": Threads}[sys.argv[1]]())
"""


class Driven(unittest.TestCase):
    """The SDK as a process, driven as the harness does it."""

    program = PROGRAM
    arguments = ()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        program = os.path.join(self.folder.name, "adapter.py")
        with open(program, "w") as file:
            file.write(textwrap.dedent(self.program))
        self.child = subprocess.Popen(
            [sys.executable, "-B", program, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": HERE},
        )
        self.addCleanup(self.end)
        self.lines = []

    def end(self):
        self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            stream.close()

    def ask(self, **request):
        self.child.stdin.write((json.dumps(request) + "\n").encode())
        self.child.stdin.flush()

    def until(self, event, **fields):
        while True:
            line = self.child.stdout.readline()
            self.assertTrue(line, f"the adapter ended before {event}: {self.lines[-3:]}")
            self.lines.append(json.loads(line))
            last = self.lines[-1]
            if last["type"] == event and all(last.get(name) == value for name, value in fields.items()):
                return last

    def rest(self):
        for line in self.child.stdout:
            self.lines.append(json.loads(line))
        return self.child.wait(PATIENCE_S)


class Process(Driven):
    def test_what_the_library_prints_goes_to_stderr(self):
        self.until("hello")
        self.ask(id=1, command="stop", grace_ms=1000)
        self.assertEqual(self.rest(), 0)
        self.assertEqual([line["type"] for line in self.lines if line["type"] != "heartbeat"], ["hello", "done", "stopped"])
        stderr = self.child.stderr.read().decode()
        self.assertIn("the library prints", stderr)
        self.assertIn("and writes to descriptor 1", stderr)

    def test_start_that_raises_is_answered_with_its_exception_and_the_process_lives(self):
        self.ask(id=1, command="start", options={"how": "raise"})
        done = self.until("done", id=1)
        self.assertFalse(done["ok"])
        self.assertEqual((done["error"]["type"], done["error"]["message"]), ("builtins.RuntimeError", "cannot start"))
        self.assertEqual(done["error"]["frames"][-1]["of"], "adapter")
        self.until("heartbeat")

    def test_stop_cuts_a_start_short_and_every_command_is_answered_once(self):
        self.ask(id=1, command="start", options={"how": "wait"})
        self.ask(id=2, command="barrier", timeout_ms=1)
        self.ask(id=3, command="no_such_command")
        self.until("done", id=3)
        self.ask(id=4, command="stop", grace_ms=1000)
        self.assertEqual(self.rest(), 0)
        answers = sorted((line["id"], line["ok"]) for line in self.lines if line["type"] == "done")
        self.assertEqual(answers, [(1, False), (2, False), (3, False), (4, True)])

    def test_restart_cuts_a_start_short_and_says_that_the_next_incarnation_started(self):
        self.ask(id=1, command="start", options={"how": "wait"})
        self.ask(id=2, command="restart")
        self.assertFalse(self.until("done", id=1)["ok"])
        self.assertEqual(self.until("started")["inc"], 2)
        self.assertTrue(self.until("done", id=2)["ok"])

    def test_blocked_loop_shows_in_its_age_and_records_and_arming_still_work(self):
        self.ask(id=1, command="start", options={"how": "block"})
        self.until("records")
        while self.until("heartbeat")["loop_age_ms"] < 600:
            pass
        self.ask(id=2, command="arm_callback", callback="on_set", on={"nth": 1}, times=1, **{"raise": {"how": "exception"}})
        self.assertTrue(self.until("done", id=2)["ok"])
        while (beat := self.until("heartbeat"))["loop_age_ms"] < 1000:
            self.assertEqual(beat["claims"], {"healthy": True})
        self.assertEqual(beat["claims"], {})

    def test_end_of_stdin_ends_the_process_even_while_the_loop_blocks(self):
        self.ask(id=1, command="start", options={"how": "block"})
        self.until("records")
        self.child.stdin.close()
        self.assertEqual(self.rest(), 0)

    def test_sigterm_ends_the_process_even_while_the_loop_blocks(self):
        self.ask(id=1, command="start", options={"how": "block"})
        self.until("records")
        self.child.send_signal(signal.SIGTERM)
        self.assertEqual(self.rest(), -signal.SIGTERM)

    def test_library_that_exits_the_process_is_reported_with_its_status(self):
        self.ask(id=1, command="start", options={"how": "exit"})
        stopped = self.until("stopped")
        self.assertEqual(stopped["exception"]["type"], "builtins.SystemExit")
        self.assertEqual(self.rest(), 3)

    def test_exception_that_ends_a_thread_is_the_logs(self):
        self.ask(id=1, command="start", options={"how": "thread"})
        error = self.until("error")
        self.assertEqual((error["origin"], error["exception"]["type"]), ("log", "builtins.ZeroDivisionError"))


class Asyncio(Driven):
    """Reading loops that the application has."""

    program = READING
    arguments = ("asyncio",)

    def test_exception_that_leaves_the_loop_ends_the_reader_and_the_process_lives(self):
        self.ask(id=1, command="start", how="raise")
        error = self.until("error", fatal=True)
        stopped = self.until("stopped")
        for told in (error["exception"], stopped["exception"]):
            self.assertEqual((told["type"], told["message"]), ("builtins.RuntimeError", "the loop is over"))
        self.assertEqual((error["origin"], stopped["reason"]), ("poll", "builtins.RuntimeError left the reading loop"))
        order = [line["type"] for line in self.lines if line["type"] in ("started", "records", "error", "stopped")]
        self.assertEqual(order, ["started", "records", "error", "stopped"])
        self.until("heartbeat")

    def test_loop_that_returns_unasked_is_told_without_an_exception(self):
        self.ask(id=1, command="start", how="return")
        stopped = self.until("stopped")
        self.assertEqual((stopped["reason"], stopped.get("exception")), ("the reading loop returned", None))

    def test_stop_ends_the_loop_before_it_closes_and_tells_no_end_but_the_asked_one(self):
        self.ask(id=1, command="start", how="read")
        self.until("records")
        self.ask(id=2, command="stop", grace_ms=1000)
        self.assertEqual(self.rest(), 0)
        told = [(line["type"], line.get("ok"), line.get("reason")) for line in self.lines if line["type"] in ("status", "error", "done", "stopped")]
        self.assertEqual(told[1:], [("status", None, None), ("done", True, None), ("stopped", None, "asked")])

    def test_what_the_loop_raises_while_it_closes_is_the_answer_to_stop(self):
        self.ask(id=1, command="start", how="bad close")
        self.until("records")
        self.ask(id=2, command="stop", grace_ms=1000)
        done = self.until("done", id=2)
        self.assertEqual((done["ok"], done["error"]["type"]), (False, "builtins.OSError"))
        self.assertEqual(self.rest(), 0)

    def test_restart_ends_the_loop_closes_and_reads_again_as_the_next_incarnation(self):
        self.ask(id=1, command="start", how="bad close")
        self.until("records")
        self.ask(id=2, command="restart")
        error = self.until("error")
        self.assertEqual((error["origin"], error["exception"]["type"]), ("reader", "builtins.OSError"))
        self.assertEqual(self.until("started")["inc"], 2)
        self.assertEqual(self.until("records")["inc"], 2)
        self.ask(id=3, command="stop", grace_ms=1000)
        self.assertFalse(self.until("done", id=3)["ok"])

    def test_restart_before_start_is_refused(self):
        self.ask(id=1, command="restart")
        self.assertFalse(self.until("done", id=1)["ok"])


class Threads(Asyncio):
    """The same on threads, and what only threads have."""

    arguments = ("threads",)

    def test_loop_that_stands_still_shows_in_its_age_and_one_that_turns_does_not(self):
        self.ask(id=1, command="start", how="stand still")
        while (self.until("heartbeat")["loop_age_ms"] or 0) < 600:
            pass
        self.ask(id=2, command="stop", grace_ms=1000)
        self.assertEqual(self.rest(), 0)

    def test_loop_that_turns_stays_young(self):
        self.ask(id=1, command="start", how="read")
        self.until("records")
        beats = [self.until("heartbeat")["loop_age_ms"] for _ in range(4)]
        # It is stamped every 10 ms; the ages would grow by 250 ms if nobody stamped it.
        self.assertLess(beats[-1], 500, beats)

    def test_age_ends_with_the_loop(self):
        self.ask(id=1, command="start", how="return")
        self.until("stopped")
        self.assertIsNone(self.until("heartbeat")["loop_age_ms"])

    def test_exit_in_the_loop_ends_the_loop_and_not_the_process(self):
        self.ask(id=1, command="start", how="exit")
        stopped = self.until("stopped")
        (cause,) = stopped["exception"]["children"]
        self.assertEqual((cause["type"], cause["relation"]), ("builtins.SystemExit", "cause"))
        self.until("heartbeat")

    def test_stop_cuts_a_start_short_that_blocks(self):
        self.ask(id=1, command="start", how="block")
        self.ask(id=2, command="stop", grace_ms=1000)
        self.assertEqual(self.rest(), 0)
        self.assertEqual({line["id"]: line["ok"] for line in self.lines if line["type"] == "done"}, {1: False, 2: True})

    def test_loop_that_hangs_keeps_stop_from_being_answered_and_the_end_of_stdin_ends_it(self):
        self.ask(id=1, command="start", how="hang")
        self.until("records")
        self.ask(id=2, command="stop", grace_ms=1000)
        for _ in range(3):
            self.until("heartbeat")
        self.assertNotIn(2, [line.get("id") for line in self.lines])
        self.child.stdin.close()
        self.assertEqual(self.rest(), 0)


if __name__ == "__main__":
    unittest.main()
