"""The count of failed authentications by address."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable

ADDRESSES_MAX = 10_000
_MINUTE_MS = 60_000
_V6_NETWORK_BITS = 64


class FailureLimit:
    """A bucket of allowed failures for each address, which fills up again within a minute.

    It holds the 10,000 addresses with the latest failures. Only failures are counted, and only failures are refused: a
    valid secret from a busy address still works. A guess of 256 bits is hopeless; the limit bounds the noise in the
    logs.

    Thread: the event loop.
    """

    def __init__(self, per_minute: int, elapsed_ms: Callable[[], int]) -> None:
        self._per_minute = per_minute
        self._elapsed_ms = elapsed_ms
        # By address: the failures left, and the time of that number.
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def note(self, address: str) -> int | None:
        """Count a failure. Return ``None`` while there are few, else the milliseconds until the next one is allowed."""
        network = _network_of(address)
        now_ms = self._elapsed_ms()
        left, since_ms = self._left.pop(network, (float(self._per_minute), now_ms))
        left = min(float(self._per_minute), left + (now_ms - since_ms) * self._per_minute / _MINUTE_MS)
        is_allowed = left >= 1
        self._left[network] = (left - 1 if is_allowed else left, now_ms)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        return None if is_allowed else int((1 - left) * _MINUTE_MS / self._per_minute) + 1

    def __len__(self) -> int:
        return len(self._left)


def _network_of(address: str) -> str:
    """Return the address, or for IPv6 the network that one customer gets."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _V6_NETWORK_BITS), strict=False))
    return address
