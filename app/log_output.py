"""Where log messages go: one line each on stderr. stdout carries the ready line alone."""

from __future__ import annotations

import logging
import logging.config
import time

# Chatty at info, and what they say there is of use only to somebody who looks for a fault.
_QUIET_BELOW_WARNING = ("uvicorn.error", "apscheduler", "asyncio")


class _UtcFormatter(logging.Formatter):
    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def configure(level: str, *, access_log: bool) -> None:
    """Log from ``level`` on; with ``access_log`` also a line for each request."""
    quiet = "debug" if level == "debug" else "error" if level == "error" else "warning"
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": _UtcFormatter, "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
            "handlers": {
                "stderr": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr", "formatter": "line"}
            },
            "root": {"handlers": ["stderr"], "level": level.upper()},
            "loggers": {
                **{name: {"level": quiet.upper()} for name in _QUIET_BELOW_WARNING},
                "uvicorn.access": {
                    "level": "INFO",
                    "handlers": ["stderr"] if access_log else [],
                    "propagate": False,
                },
            },
        }
    )
