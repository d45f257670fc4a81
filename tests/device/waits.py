"""Every wait of device copies, feeds, sums and moves, and what its line becomes without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIES = "trainers.device.device_streams"
MARK = OWN = "trainers.device.device_streams"
SUM = BOTH = "trainers.reduce.device_reduce"
BUCKETS, RING, BESIDE, HOROVOD = (
    f"trainers.reduce.{name}" for name in ("buckets", "ordered_reduce", "reduction", "horovod")
)
GROUP, TRANSPORT, MPI = (f"trainers.messages.{name}" for name in ("group", "transport", "mpi"))
CHANNEL = TORCH = "trainers.messages.torch_backend"
LOSSES, UPDATE = "trainers.step.losses", "trainers.step.update"
TRAINER, MOVE, TASK = "trainers.job.trainer", "trainers.job.resize", "trainers.task.task"
FEED = "fleet.workers.feed"


@dataclass(frozen=True)
class Mutant:
    """What becomes of which words of a module, where they stand once."""

    name: str
    module: str
    old: str
    new: str = "pass"

    @property
    def text(self) -> str:
        return text_of(self.module)

    @property
    def gone(self) -> range:
        """The places in the module's text of what is no longer there."""
        start, common = self.text.index(self.old), 0
        while common < len(self.new) and self.old.endswith(self.new[-common - 1 :]):
            common += 1
        return range(start, start + len(self.old) - common)


def text_of(module: str) -> str:
    return Path(ROOT, *module.split(".")).with_suffix(".py").read_text()


STEPS = (
    Mutant(
        "a gradient is copied before it is scaled",
        COPIES,
        "self._side.wait_stream(self._module.current_stream(self._device))",
    ),
    Mutant("a scaled gradient's memory is used again", COPIES, "flat.record_stream(self._side)"),
    Mutant("gradients are copied on another stream", COPIES, "with self._module.stream(self._side):", "if True:"),
    Mutant(
        "the event is nowhere", MARK, "event.record(stream or torch.get_device_module(device).current_stream(device))"
    ),
    Mutant("sums come before the copies", UPDATE, ", self._buckets.copies.mark()", ""),
    Mutant("nobody waits for the copies", MARK, "not event.query()", "False"),
    Mutant("a loss is read before it is there", LOSSES, "wait()\n        numbers", "numbers"),
    Mutant("a loss has no event", LOSSES, "mark(device)\n", "lambda: None\n"),
    Mutant("a loss that is looked at is not waited for", LOSSES, "self.settle()\n        return self", "return self"),
    Mutant("the event is on another stream", COPIES, "mark(self._device, self._side)", "mark(self._device)"),
    Mutant("the thread waits on another device", MARK, "select(device)\n", "pass\n"),
)
FEEDS = (
    Mutant("a batch is used before it is there", FEED, "stream.wait_event(copied)"),
    Mutant("a batch's memory is used again", FEED, "tensor.record_stream(stream)"),
    Mutant("nobody knows when a batch is there", FEED, "self._stream.record_event()", "None"),
    Mutant("the feed's thread has no device", FEED, '"feed", select, (self._device,)', '"feed"'),
    Mutant(
        "batches are copied in the device's own stream",
        FEED,
        "nullcontext() if self._stream is None else self._module.stream(self._stream)",
        "nullcontext()",
    ),
    Mutant("batches are pageable", FEED, ".pin_memory()", ""),
    Mutant("samples are read before they are there", FEED, "reader.wait(stop, self._timeout, self._closed.is_set)"),
    Mutant("steps do not wait for samples", FEED, "self._await(base + places.start, base + places.stop)"),
    Mutant("held-out batches do not wait for samples", FEED, "self._await(first, last)"),
    Mutant("a feed is left while it reads", FEED, "shutdown(wait=True)", "shutdown(wait=False)"),
)
OTHERS = {
    "memory": Mutant("pinned memory is in use", UPDATE, "torch.accelerator.synchronize(place)"),
    "buckets": Mutant(
        "gradients come to pageable memory", BUCKETS, "pin_memory=self.copies is not None", "pin_memory=False"
    ),
    "loss": Mutant("losses come to pageable memory", LOSSES, ", pin_memory=True", ""),
    "batches": Mutant("batches are pageable", TASK, "value.pin_memory() if is_sent and plain else value", "value"),
    "the next step": Mutant("nobody looks at the losses of the step before", TRAINER, "before.settle()"),
    "a snapshot": Mutant(
        "a snapshot does not look at the last losses", TRAINER, "self.settle()\n            own", "own"
    ),
    "an epoch": Mutant("an epoch ends without its last losses", TRAINER, "self.settle()\n        losses", "losses"),
    "a job that moves": Mutant("nobody asks for losses", TRAINER, "self._losses.settle()"),
    "a move": Mutant("a move does not look at the last losses", MOVE, "trainer.settle()"),
    "a device that failed": Mutant(
        "nobody asks the device", OWN, "torch.get_device_module(device).synchronize(device)"
    ),
    "places far ahead": Mutant(
        "samples that nobody wants are not waited for",
        FEED,
        "reader.wait(min(start, reader.released + reader.certain), self._timeout, self._closed.is_set)",
    ),
    "samples of others": Mutant(
        "others' samples are not waited for",
        FEED,
        "not reader.wait(min(position, reader.released + reader.certain), timeout, stopped)",
        "False",
    ),
    "samples in place of corrupt ones": Mutant(
        "a batch goes on without what is made in place of corrupt samples", FEED, "missing.found.wait()"
    ),
}
SUMS = (
    Mutant(
        "messages before the gradients are there",
        SUM,
        "self._side.wait_stream(self._module.current_stream(self._device))",
    ),
    Mutant("additions before the messages are there", CHANNEL, "work.wait(*limit)"),
    Mutant(
        "the master's tensors are used before they are there",
        SUM,
        "self._waited += self._channel.settle()  # they come",
    ),
    Mutant(
        "what an other member brings is used before it is there",
        SUM,
        "self._waited += self._channel.settle()  # all have come",
    ),
    Mutant(
        "an update is asked for and does not wait for its sums",
        SUM,
        "self._module.current_stream(self._device).wait_stream(self._side)",
    ),
    Mutant("a thread has no device", SUM, "select(self._device)"),
    Mutant(
        "messages stand in the device's own stream",
        SUM,
        "nullcontext() if self._module is None else self._module.stream(self._side)",
        "nullcontext()",
    ),
    Mutant("the thread that meets has no device", CHANNEL, "select(self._device)"),
    Mutant("sums are used before they are there", SUM, "self._waited += self._channel.settle()  # they are summed"),
    Mutant("the event is nowhere", CHANNEL, "event.record(self._module.current_stream(self._device))"),
    Mutant(
        "nobody waits for the event",
        CHANNEL,
        "self._wait(event.query, lambda elapsed: backoff(elapsed, eager=0.0002, longest=0.001))",
    ),
    Mutant("sums begin before the members have met", SUM, "self._channel.connected()"),
    Mutant(
        "nobody waits for the thread that meets",
        CHANNEL,
        "self._wait(lambda: not meeting.is_alive(), lambda elapsed: meeting.join(LEAST_BETWEEN))",
    ),
    Mutant(
        "the first message is read before it is there", CHANNEL, "work.wait(timedelta(seconds=_longer(self.transport)))"
    ),
)
GROUPS = (
    Mutant(
        "an update does not wait for its sums",
        TRAINER,
        "self._finish(reduction)\n            update",
        "pass\n            update",
    ),
    Mutant("the host hears of no member", TRAINER, "if follows:\n                self._finish(reduction)", "pass"),
    Mutant("the device does not wait for the sums", TRAINER, "self._reducer.follow()", "True"),
    Mutant("nobody completes the sums", TRAINER, "reduction.finish()[1]", "0.0"),
    Mutant("nobody completes the sums of the way that is taken", BOTH, "self._used.complete()"),
    Mutant("the device does not wait on the way that is taken", BOTH, "self._used.follow()", "True"),
)
WHILE_MEETING = (
    Mutant(
        "the first messages stand in the device's own stream",
        CHANNEL,
        "self._module.stream(self._module.Stream(device=self._device))",
        "nullcontext()",
    ),
)
IN_THE_RING = (
    Mutant("sums are written over what is being sent", RING, "sent.free(arrival.where)"),
    Mutant("what is being sent is given up", RING, "self._neighbours.wait([self._pending.pop(where.start)])"),
    Mutant("the last messages are not waited for", RING, "self._neighbours.wait(list(self._pending.values()))"),
    Mutant("the ring ends before its messages", RING, "sent.finish()"),
    Mutant("what comes lands on what is being sent", RING, "self._sent.free(self._course[self._begun].where)"),
    Mutant("what has not come is added", RING, "self._neighbours.wait([pending])"),
    Mutant(
        "finished parts land on what is being sent",
        RING,
        "return  # the previous trainer has yet to take what its place holds",
    ),
)
BESIDE_STEPS = (
    Mutant("vectors are not ready", BESIDE, "ready()\n            self._sums", "pass\n            self._sums"),
    Mutant(
        "vectors are not ready for the thread",
        BESIDE,
        "ready()\n                self._sums",
        "pass\n                self._sums",
    ),
    Mutant("sums are taken before they have begun", BESIDE, "self._stop()\n        if", "if"),
    Mutant("a step that fails leaves its thread", BESIDE, "self._reducer.interrupt()\n            self._stop()"),
    Mutant("the thread goes on", BESIDE, "self._thread.join()"),
    Mutant("sums are taken before they are complete", BESIDE, "self._reducer.complete()"),
)
IN_HOROVOD = (
    Mutant("sums are used before they are there", HOROVOD, "self._await(under_way.handle)"),
    Mutant("nobody looks whether a sum is there", HOROVOD, "not self._hvd.poll(handle)", "False"),
    Mutant("nobody takes a sum", HOROVOD, "self._hvd.synchronize(handle)"),
    Mutant("nobody waits for Horovod's start", HOROVOD, "thread.join(seconds)"),
)
OF_MESSAGES = (
    Mutant("neighbours do not wait", GROUP, "self._waited += self._transport.wait(pending)"),
    Mutant("an exchange does not wait", TRANSPORT, "return transport.wait(pending)", "return 0.0"),
)
OVER_MPI = (
    Mutant("messages are not waited for", MPI, "[transfer for transfer in transfers if not transfer.done]", "[]"),
    Mutant("nobody asks MPI", MPI, "all(request.Test() for request in self.requests)", "True"),
    Mutant("a wait hears of nobody", MPI, "self._look_around(elapsed, transfers)"),
    Mutant("a wait does not look for who gave up", MPI, "self._check_once()\n        if self.inter", "if self.inter"),
    Mutant("nobody looks for who gave up", MPI, "self._comm.Iprobe(source, self._abort_tag, self._status)", "False"),
    Mutant("who gave up is not heard out", MPI, "self._comm.Recv([text, MPI.BYTE], rank, self._abort_tag)"),
    Mutant("what was sent lands after the end", MPI, "request.Cancel()"),
    Mutant("memory that is being sent is given away", MPI, "not transfer.settled", "False"),
    Mutant("what is over is not known", MPI, "return self.done", "return True"),
)
OVER_TORCH = (
    Mutant("a message is not waited for", TORCH, "self._finish(message)"),
    Mutant("gloo is not waited for", TORCH, "message.work.wait(timedelta(seconds=self.timeout))"),
)
ALL = (
    *STEPS, *FEEDS, *OTHERS.values(), *SUMS, *GROUPS, *WHILE_MEETING, *IN_THE_RING, *BESIDE_STEPS, *IN_HOROVOD,
    *OF_MESSAGES, *OVER_MPI, *OVER_TORCH,
)  # fmt: skip
