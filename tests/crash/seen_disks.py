"""Which disks were recovered and found right already, so that none is recovered twice for nothing."""

from __future__ import annotations

import hashlib
import pickle

from log_model.clock import Clock
from tests.crash.ledger import Ledger
from tests.crash.simulated_disk import SimulatedDisk

AGAIN_EVERY = 32


class SeenDisks:
    """Disks of one run that kept their promises.

    Crashes at neighbouring moments leave many equal disks. What recovery makes of a disk depends on its bytes and
    the time alone, so one that was found right is right again as long as no more is promised. Should recovery ever
    depend on something else, one in ``AGAIN_EVERY`` known disks that is recovered all the same has the chance to
    show it.

    Attributes:
        known_count: how often a disk was known.
    """

    def __init__(self) -> None:
        self.known_count = 0
        self._seen: set[bytes] = set()

    def is_new(self, disk: SimulatedDisk, clock: Clock, ledger: Ledger, *, killed: bool) -> bool:
        """Whether this disk must be recovered and held against these promises; from now on it is known.

        ``killed``: only the process died, see ``DirectoryCheck``.
        """
        promised = pickle.dumps((clock.now_ms(), ledger, killed))
        key = disk.fingerprint() + hashlib.blake2b(promised, digest_size=32).digest()
        if key not in self._seen:
            self._seen.add(key)
            return True
        self.known_count += 1
        return self.known_count % AGAIN_EVERY == 0
