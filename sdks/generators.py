"""The generators: how each is had, what makes a client, what compiles it, and what runs our program of it.

Commands run in the generator's own folder below the folder of all builds: there its files of ``sdks/SLUG`` are copied
to. Names in braces are ``document`` (the OpenAPI document), ``tools`` (a folder that is kept between runs and that the
commands of ``tools`` fill), and ``python`` (the interpreter that runs this).
"""

from __future__ import annotations

from dataclasses import dataclass

Command = tuple[str, ...]
BETA = "OpenAPI 3.1 support is still in beta"
"""openapi-generator says so of every document of OpenAPI 3.1."""
NO_NAME = "Failed to get the schema name: null"
"""openapi-generator, of every document whose objects may have more members; nothing is missing from the client."""
RANGE = "range (reserved word) cannot be used as parameter name. Renamed to range_"
"""openapi-generator for Go, of the header Range; the header keeps its name on the wire."""
STATUS = 'Ensuring "status" matching HTTP status code will not be enforced yet!'
"""ogen, of each answer of problem+json: its client does not compare the member status with the answer's status."""
ETAG = '"original_name": "ETag", "canonical_name": "Etag"'
"""ogen, of each answer with an ETag: its code spells the name as Go does. Names of headers have no case."""


@dataclass(frozen=True)
class Generator:
    """One generator of clients for one language.

    Attributes:
        name: as people call it.
        slug: the folder of its program.
        language: of the client.
        version: of the generator, which ``tools`` installs.
        options: what a user of it gives besides the document, as the how-to page shows it.
        needs: the programs that have to be on this machine.
        tools: commands that install it, run when ``version`` changed.
        generate: commands that make the client. What they print must have no warning but ``allowed``.
        compile: commands that compile client and program, or check their types, as strictly as templates allow.
        run: the program.
        allowed: warnings that say nothing about the document, each with its reason in this module.
        defects: steps that a template's own defect keeps from working, each with the reason.
        is_quick: whether CI runs it.
    """

    name: str
    slug: str
    language: str
    version: str
    options: str
    needs: Command
    tools: tuple[Command, ...]
    generate: tuple[Command, ...]
    compile: tuple[Command, ...]
    run: Command
    allowed: Command = ()
    defects: tuple[tuple[str, str], ...] = ()
    is_quick: bool = False


def _npm(*packages: str) -> tuple[Command, ...]:
    """Packages of npm; their programs are on the path of all commands."""
    return (("npm", "install", "--prefix", "{tools}", "--no-audit", "--no-fund", "--no-save", *packages),)


def _pip(*packages: str) -> tuple[Command, ...]:
    """Packages of Python in an environment of their own."""
    return (
        ("{python}", "-m", "venv", "{tools}"),
        ("{tools}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages),
    )


def _go(program: str) -> tuple[Command, ...]:
    """A program of a Go module, by its path and version; it is on the path of all commands."""
    return (("env", "GOBIN={tools}/bin", "go", "install", program),)


_OPENAPI_GENERATOR_GO = (
    "packageName=rollway,enumClassPrefix=true,disallowAdditionalPropertiesIfNotPresent=false,withGoMod=false"
)
"""The third: answers may have more members than the document says. Without it the client refuses them."""
_GO_COMPILE = (("go", "vet", ".", "./rollway"), ("go", "build", "-buildvcs=false", "-o", "program", "."))


GENERATORS = (
    Generator(
        name="openapi-python-client",
        slug="openapi-python-client",
        language="Python",
        version="0.29.1",
        options="--config: content_type_overrides: {application/x-ndjson: application/octet-stream}",
        needs=(),
        tools=_pip("openapi-python-client==0.29.1", "mypy==2.4.1", "ruff==0.17.5"),
        generate=(
            (
                "{tools}/bin/openapi-python-client",
                "generate",
                "--path",
                "{document}",
                "--config",
                "config.yaml",
                "--meta",
                "none",
                "--output-path",
                "rollway_client",
                "--overwrite",
                "--fail-on-warning",
            ),
        ),
        compile=(("{tools}/bin/mypy", "--strict", "rollway_client", "program.py"),),
        run=("{tools}/bin/python", "program.py"),
        is_quick=True,
    ),
    Generator(
        name="openapi-generator (go)",
        slug="openapi-generator-go",
        language="Go",
        version="7.26.0",
        options=f"-g go --additional-properties {_OPENAPI_GENERATOR_GO}",
        needs=("go", "java"),
        tools=_pip("openapi-generator-cli==7.26.0"),
        generate=(
            (
                "{tools}/bin/openapi-generator-cli",
                "generate",
                "-i",
                "{document}",
                "-g",
                "go",
                "-o",
                "rollway",
                "--additional-properties",
                _OPENAPI_GENERATOR_GO,
            ),
        ),
        compile=_GO_COMPILE,
        run=("./program",),
        allowed=(BETA, RANGE),
    ),
    Generator(
        name="oapi-codegen",
        slug="oapi-codegen",
        language="Go",
        version="2.8.2",
        options="-config: output-options: {nullable-type: true}; compatibility: {always-prefix-enum-values: true}",
        needs=("go",),
        tools=_go("github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"),
        generate=(("mkdir", "rollway"), ("oapi-codegen", "-config", "config.yaml", "{document}")),
        compile=_GO_COMPILE,
        run=("./program",),
    ),
    Generator(
        name="ogen",
        slug="ogen",
        language="Go",
        version="1.24.0",
        options="--config: generator: {features: {disable_all: true, enable: [paths/client]}}",
        needs=("go",),
        tools=_go("github.com/ogen-go/ogen/cmd/ogen@v1.24.0"),
        generate=(
            (
                "ogen",
                "--loglevel",
                "warn",
                "--config",
                "ogen.yml",
                "--target",
                "rollway",
                "--package",
                "rollway",
                "{document}",
            ),
        ),
        compile=_GO_COMPILE,
        run=("./program",),
        allowed=(STATUS, ETAG),
    ),
)
