"""The keeper of a node's ring: opens its lanes, receives what other nodes' preprocessors made, and passes it on."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    CloseLane,
    DismissReader,
    DismissWriter,
    OpenLane,
    ReadEnergy,
    ReplaceWriter,
    Shutdown,
)
from fleet.workers.energy_reader import EnergyReader
from preprocess import SlotReceiver


@dataclass
class RingKeeper:
    """Runs in a thread of the node's lowest rank, whatever that rank does beside it.

    Args:
        mailbox: the mailbox of the keeper's role.
        receiver: this node's.
        energy: reads this host's counters.
    """

    mailbox: Mailbox
    receiver: SlotReceiver
    energy: EnergyReader

    def run(self) -> None:
        """Serve until told to shut down."""
        while True:
            message = self.mailbox.poll()
            if isinstance(message, Shutdown):
                self.energy.end()
                return
            if isinstance(message, OpenLane):
                self.receiver.open_lane(message.lane)
            elif isinstance(message, CloseLane):
                self.receiver.close_lane(message.lane)
            elif isinstance(message, DismissReader):
                self.receiver.dismiss(message.reader)
            elif isinstance(message, DismissWriter):
                self.receiver.dismiss_writer(message.writer)
            elif isinstance(message, ReplaceWriter):
                self.receiver.replace_writer(message.writer)
            elif isinstance(message, ReadEnergy):
                self.energy.ask()
            elif not self.receiver.step():
                self.receiver.wait(self.mailbox.pause, self.mailbox.rest)
