"""Log messages: one line each on stderr, as text or as JSON. stdout carries the ready line alone.

Lines that a request causes name the request ID and the principal. Values of records and secrets are never logged.
"""

from __future__ import annotations

import json
import logging
import logging.config
import time
from typing import Any, Literal

from app.problems import request_context
from rollway.printable import escape_json, escape_unprintable

LogFormat = Literal["text", "json"]

# Their messages at level info only help to find a fault.
_QUIET_BELOW_WARNING = ("uvicorn.error", "asyncio")
_ACCESS = "uvicorn.access"
_INDENT = "    "


class _TextFormatter(logging.Formatter):
    """``time level logger: message [request principal]``."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name logging calls
        line = super().formatMessage(record)
        context = [name for name in _context().values() if name]
        return escape_unprintable(f"{line} [{' '.join(context)}]" if context else line)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Indent the traceback: the message of an error may have lines that look like lines of a log."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    # On line feeds alone: other separators are escaped where they stand.
    return "\n".join(f"{_INDENT}{escape_unprintable(line)}" for line in text.split("\n"))


class _JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the request ID and principal if there are any."""

    converter = time.gmtime  # type: ignore[assignment]

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in _context().items() if value is not None},
            **(_access_fields(record) if record.name == _ACCESS else {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = self.formatStack(record.stack_info)
        return escape_json(json.dumps(entry, ensure_ascii=False))


def _context() -> dict[str, str | None]:
    return {"request_id": request_context.request_id.get(), "principal": request_context.principal.get()}


def _access_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of uvicorn's access line; none if its arguments have another form."""
    if not isinstance(record.args, tuple) or len(record.args) != 5:
        return {}
    client, method, path, _, status = record.args
    return {"client": client, "method": method, "path": path, "status": status}


def configure(level: str, *, access_log: bool, log_format: LogFormat = "text") -> None:
    """Log from ``level`` on; with ``access_log`` also a line for each request."""
    quiet = "debug" if level == "debug" else "error" if level == "error" else "warning"
    formatter = _JsonFormatter if log_format == "json" else _TextFormatter
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": formatter}},
            "handlers": {
                "stderr": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr", "formatter": "line"}
            },
            "root": {"handlers": ["stderr"], "level": level.upper()},
            "loggers": {
                **{name: {"level": quiet.upper()} for name in _QUIET_BELOW_WARNING},
                _ACCESS: {"level": "INFO", "handlers": ["stderr"] if access_log else [], "propagate": False},
            },
        }
    )
