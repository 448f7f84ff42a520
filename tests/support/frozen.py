"""Imported last by the process that services are forked from: what is loaded stays, and no collector looks at it again.

A service collects when it is ready. In a fork that walked through all that was loaded before, and copied its pages.
"""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
