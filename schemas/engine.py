"""Response of the route that describes the engine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Schema


class EngineCapabilities(Schema):
    """The capability table of an engine: whether it can do each of these."""

    segments: Annotated[bool, Field(description="listSegments: show the segments of a partition.", examples=[True])]
    retention_plan: Annotated[
        bool, Field(description="getRetentionPlan: show which segments retention would delete.", examples=[True])
    ]
    retention_run: Annotated[bool, Field(description="runRetention: run retention on request.", examples=[True])]
    begin_epoch: Annotated[bool, Field(description="beginEpoch: begin a leader epoch on request.", examples=[True])]
    log_start_reason: Annotated[
        bool,
        Field(
            description="Refuse an offset below the log start with the time and the cause of the last move of the "
            "log start.",
            examples=[True],
        ),
    ]
    exact_split_sizes: Annotated[
        bool, Field(description="Count the bytes of splits. Otherwise their sizes are estimates.", examples=[True])
    ]
    fsync_durability: Annotated[
        bool, Field(description="`durability=fsynced`: answer a produce request after its fsync.", examples=[True])
    ]
    expected_offset: Annotated[
        bool, Field(description="`expected_offset`: append only at this log end offset.", examples=[True])
    ]
    atomic_batches: Annotated[
        bool,
        Field(description="Append several batches for one partition together or not at all.", examples=[True]),
    ]
    fetch_sessions: Annotated[
        bool, Field(description="Fetch sessions: name only changed partitions in the next fetch.", examples=[True])
    ]


class EngineDescription(Schema):
    """The engine that keeps the records of the service."""

    engine: Annotated[str, Field(description="Name of the engine.", examples=["local"])]
    version: Annotated[str, Field(description="Version of the service.", examples=["0.1.0"])]
    capabilities: Annotated[EngineCapabilities, Field(description="The capability table of the engine.")]
