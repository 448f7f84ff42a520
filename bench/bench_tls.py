"""Small requests over TLS: beside the same over plain TCP, and those that may be sent again beside those that may not.

The connections are open already: a handshake is no part of any row. The note of each row says the protocol and the
cipher.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import bench_retries
from bench.closed_loop import connect
from bench.machine import choose_cores
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Plan, Row, row_of
from bench.scenes import Scene
from bench.tls import client_context, profile_of, write_certificate

BENCH = "tls"
PLAIN = "over plain TCP"


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: the pairs of ``retries`` over TLS, then a produce and a fetch beside the same over plain TCP."""
    cores = choose_cores()
    secure = RollwayServer(plan.data_dir / "secure", cores.server, settings=write_certificate(plan.data_dir))
    secure.tls = client_context()
    with secure, RollwayServer(plan.data_dir / "plain", cores.server) as plain:
        with connect(secure.address, secure.tls) as connection:
            profile = f"{profile_of(connection)}, certificate on P-256"
        pairs = bench_retries.pairs()
        named = [pair._replace(name=_over_tls(pair.name), beside=_over_tls(pair.beside)) for pair in pairs]
        yield from bench_retries.rows_of(plan, BENCH, secure, named, profile)
        bench_retries.fill(plain)
        for what, load, writes in (
            ("raw produce, 1 KiB", pairs[0].without, True),
            ("raw fetch, 1 KiB", pairs[-1].without, False),
        ):
            name = _over_tls(what)
            servers = {name: secure, PLAIN: plain}
            contestants = {
                each: Scene(
                    BENCH,
                    each,
                    "requests/s",
                    load._replace(tls=server.tls),
                    bench_retries.fill,
                    bench_retries.RESET if writes else None,
                ).measure(server)
                for each, server in servers.items()
            }
            samples = in_turns(plan, f"{BENCH}, {name}", contestants)
            yield row_of(BENCH, name, "requests/s", samples[name], limit=PLAIN, limits=samples[PLAIN], note=profile)


def _over_tls(name: str) -> str:
    return f"{name}, over TLS"
