"""``python -m bench.limits.fastapi_json FILE``: records as JSON the way FastAPI's manual shows it.

pydantic models for what comes in and what goes out, a decorated function for each route, aiokafka's codec between them
and one file. No limit of speed, but what the columns are measured against.
"""

from __future__ import annotations

import os
import sys

import uvicorn
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from fastapi import FastAPI
from pydantic import BaseModel

from bench.limits.listening import listener, say_ready

FILE_BYTES_MAX = 1 << 30


class HeaderModel(BaseModel):
    key: str
    value: str | None = None


class RecordModel(BaseModel):
    key: str | None = None
    value: str | None = None
    timestamp: int | None = None
    headers: list[HeaderModel] = []


class ProduceModel(BaseModel):
    records: list[RecordModel]


class ProducedModel(BaseModel):
    base_offset: int
    record_count: int


class FetchedRecord(BaseModel):
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: list[HeaderModel]


class FetchedModel(BaseModel):
    records: list[FetchedRecord]


class Store:
    """One file, and the batch that was last written to it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._position = 0
        self._offset = 0
        self._last = (0, 0)

    def append(self, records: list[RecordModel]) -> int:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=2**31 - 1,
        )
        for number, record in enumerate(records):
            builder.append(
                number,
                timestamp=record.timestamp or 0,
                key=None if record.key is None else record.key.encode(),
                value=None if record.value is None else record.value.encode(),
                headers=[(each.key, None if each.value is None else each.value.encode()) for each in record.headers],
            )
        data = bytes(builder.build())
        base_offset = self._offset
        self._offset += len(records)
        if self._position > FILE_BYTES_MAX:
            self._position = 0
        self._last = (self._position, len(data))
        self._position += os.pwrite(self._file, data, self._position)
        return base_offset

    def read(self) -> list[FetchedRecord]:
        position, size = self._last
        batch = DefaultRecordBatch(os.pread(self._file, size, position))
        return [
            FetchedRecord(
                offset=record.offset,
                timestamp=record.timestamp,
                key=None if record.key is None else record.key.decode(),
                value=None if record.value is None else record.value.decode(),
                headers=[
                    HeaderModel(key=key, value=None if value is None else value.decode())
                    for key, value in record.headers
                ],
            )
            for record in batch
        ]


def create_app(path: str) -> FastAPI:
    app = FastAPI()
    store = Store(path)

    @app.post("/records")
    async def produce(body: ProduceModel) -> ProducedModel:
        return ProducedModel(base_offset=store.append(body.records), record_count=len(body.records))

    @app.get("/records")
    async def fetch() -> FetchedModel:
        return FetchedModel(records=store.read())

    return app


def main() -> None:
    config = uvicorn.Config(
        create_app(sys.argv[1]), http="httptools", loop="uvloop", log_config=None, access_log=False, ws="none"
    )
    socket = listener()
    say_ready(socket)
    uvicorn.Server(config).run([socket])


if __name__ == "__main__":
    main()
