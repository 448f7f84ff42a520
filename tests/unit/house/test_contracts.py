"""The import contracts of ``pyproject.toml`` hold for compiled modules as well, which ``lint-imports`` does not read.

The graph of import-linter has the Python modules. The house reading of imports adds what ``.pyx`` and ``.pxd`` files
import, and the compiled modules that Python loads by name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grimp
import importlinter.cli  # noqa: F401 - it configures what reads pyproject.toml
import pytest
from importlinter.application import use_cases

from house.imports import Import, closest, named_imports
from house.sources import SourceTree
from tests.unit.house.conftest import Plant

ROOT = Path(__file__).parents[3]
COMPILED_KINDS = ("by name", "of compiled modules")


def compiled_imports(tree: SourceTree) -> list[Import]:
    return [each for each in named_imports(tree) if each.kind in COMPILED_KINDS]


@pytest.fixture(scope="module")
def options() -> Any:
    found = use_cases.read_user_options(str(ROOT / "pyproject.toml"))
    use_cases._register_contract_types(found)
    return found


@pytest.fixture(scope="module")
def graph(options: Any) -> grimp.ImportGraph:
    """The imports of all modules, compiled ones with them."""
    found = grimp.build_graph(*options.session_options["root_packages"], include_external_packages=True, cache_dir=None)
    tree = SourceTree(ROOT)
    add(found, tree.modules, compiled_imports(tree))
    return found


def add(graph: grimp.ImportGraph, modules: set[str], imports: Iterable[Import]) -> None:
    """Add imports of compiled modules to the graph; of modules outside of the tree only the package counts."""
    for each in imports:
        imported = closest(each.imported, modules)
        if imported is None:
            imported = each.imported.partition(".")[0]
            if imported not in graph.modules:
                graph.add_module(imported, is_squashed=True)
        if imported != each.importer:
            for module in (each.importer, imported):
                if module not in graph.modules:
                    graph.add_module(module)
            graph.add_import(importer=each.importer, imported=imported)


def broken(graph: grimp.ImportGraph, options: Any) -> list[str]:
    """The names of the contracts that ``graph`` breaks."""
    report = use_cases._build_report(
        graph=graph,
        graph_building_duration=0,
        user_options=options,
        limit_to_contracts=(),
        show_timings=False,
        verbose=False,
    )
    assert not report.could_not_run
    return [contract.name for contract, check in report.get_contracts_and_checks() if not check.kept]


def test_compiled_modules_keep_the_contracts(graph: grimp.ImportGraph, options: Any) -> None:
    assert {"storage.log.append_c", "storage.segment.batch_search_c", "app.fast_path.produce_c"} <= graph.modules
    assert graph.direct_import_exists(importer="app.fast_path.produce_c", imported="storage.log.append_c")
    assert broken(graph, options) == []


@pytest.mark.parametrize(
    ("path", "text", "contract"),
    [
        ("storage/index/planted_c.pyx", "from storage.segment.segment import Segment\n", "Rooms of storage"),
        ("storage/index/planted.py", 'load("storage.log.append_c")\n', "Rooms of storage"),
        ("storage/log/planted_c.pyx", "cimport app.http.connection.request_heads_c\n", "Rooms: app -> storage"),
        ("app/http/connection/request_heads_c.pxd", "from app.fast_path.produce_c cimport a\n", "Rooms of app"),
        ("storage/segment/planted_c.pyx", "from os import (\n    pread,\n)\n", "Only storage.disk.file_system"),
        ("log_model/planted_c.pyx", "import asyncio\n", "storage and log_model are synchronous"),
        ("app/routes/planted_c.pyx", "import storage.index.offset_index\n", "The service takes of storage only"),
        ("app/metrics/planted_c.pyx", "import storage.manager.log_manager\n", "The service takes of storage only"),
        ("app/fetch/planted_c.pyx", "import app.engine_local.engine\n", "Routes, appends and fetches"),
        ("app/routes/planted_c.pyx", "import app.service.service\n", "Routes, appends and fetches"),
        ("client/src/rollway/records/planted_c.pyx", "import typer\n", "The library knows nothing"),
        ("client/src/rollway/spark/read/planted_c.pyx", "import rollway.spark.command\n", "Rooms of the library"),
    ],
)
def test_a_planted_import_against_a_direction_is_found(
    graph: grimp.ImportGraph, options: Any, plant: Plant, path: str, text: str, contract: str
) -> None:
    planted = compiled_imports(plant({path: text}))
    assert len(planted) == 1
    (importer,) = {each.importer for each in planted}
    changed = copy.deepcopy(graph)
    add(changed, graph.modules | {importer}, planted)
    assert any(name.startswith(contract) for name in broken(changed, options))
