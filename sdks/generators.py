"""The generators: how each is had, what makes a client, what compiles it, and what runs our program of it.

Commands run in the generator's own folder below the folder of all builds: there its files of ``sdks/SLUG`` are copied
to. Names in braces are ``document`` (the OpenAPI document), ``tools`` (a folder that is kept between runs and that the
commands of ``tools`` fill), ``requirements`` (the folder of locks), and ``python`` (the interpreter that runs this).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

Command = tuple[str, ...]
BETA = "OpenAPI 3.1 support is still in beta"
"""openapi-generator says so of every document of OpenAPI 3.1."""
NO_NAME = "Failed to get the schema name: null"
"""openapi-generator, of every document whose objects may have more members; nothing is missing from the client."""
RENAMED = "cannot be used as a "
"""openapi-generator rust, of words that are no names in Rust (a media type, ``type``, ``0``): it changes them."""

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
        tools: commands that install it, run when they or ``lock`` changed.
        generate: commands that make the client. What they print must have no warning but ``allowed``.
        compile: commands that compile client and program, or check their types, as strictly as templates allow.
        run: the program.
        example: the short program for people that stands beside that one; nothing if there is none. Its last line is
            the offset of the record that it appended, the key ``kitchen``, and a value with ``21.5``.
        lock: the file of ``requirements`` with the packages of ``tools``, if there is one.
        toolbox: the folder of its tools, where others with the same ``tools`` and ``lock`` have theirs; else its slug.
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
    example: Command = ()
    lock: str = ""
    toolbox: str = ""
    allowed: Command = ()
    defects: tuple[tuple[str, str], ...] = ()
    is_quick: bool = False


def _npm(slug: str) -> tuple[Command, ...]:
    """What the package.json of the program names; its programs are on the path of all commands."""
    package = json.loads((Path(__file__).parent / slug / "package.json").read_text())
    packages = {**package.get("dependencies", {}), **package["devDependencies"]}
    wanted = [f"{name}@{version}" for name, version in packages.items()]
    return (("npm", "install", "--prefix", "{tools}", "--no-audit", "--no-fund", "--no-save", *wanted),)


_FIND_MODULES = ("ln", "-s", "{tools}/node_modules", "node_modules")
"""Node.js looks for packages in the folder of the program; NODE_PATH does not reach ES modules."""


def _go(program: str) -> tuple[Command, ...]:
    """A program of a Go module, by its path and version; it is on the path of all commands."""
    return (("env", "GOBIN={tools}/bin", "go", "install", program),)


_OPENAPI_GENERATOR_GO = (
    "packageName=rollway,enumClassPrefix=true,disallowAdditionalPropertiesIfNotPresent=false,withGoMod=false"
)
"""The third: answers may have more members than the document says. Without it the client refuses them."""
_GO_COMPILE = (("go", "vet", ".", "./rollway"), ("go", "build", "-buildvcs=false", "-o", "program", "."))


def _locked(name: str) -> tuple[Command, ...]:
    """Packages of Python in an environment of their own: those of ``requirements/NAME.lock``."""
    return (
        ("{python}", "-m", "venv", "{tools}"),
        (
            *("{tools}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--require-hashes", "--no-deps", "--requirement", "{requirements}/" + name + ".lock"),
        ),
    )


_OPENAPI_GENERATOR = "openapi-generator-python"
"""The lock with the jar that makes clients of five languages, and the folder where it is installed once."""


def _configured(output: str) -> tuple[Command, ...]:
    """openapi-generator as the program's config.yaml says; the client goes into the folder ``output``."""
    generate = ("openapi-generator-cli", "generate", "--config", "config.yaml")
    return ((*generate, "--input-spec", "{document}", "--output", output),)


_MAVEN = (
    "mvn",
    "--batch-mode",
    "--quiet",
    "-Dmaven.test.skip=true",
    "-Dmaven.javadoc.skip=true",
    "-Dmaven.source.skip=true",
    "package",
)

GENERATORS = (
    Generator(
        name="openapi-python-client",
        slug="openapi-python-client",
        language="Python",
        version="0.29.1",
        options="--config: content_type_overrides: {application/x-ndjson: application/octet-stream}",
        needs=(),
        tools=_locked("openapi-python-client"),
        lock="openapi-python-client",
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
        compile=(("{tools}/bin/mypy", "--strict", "rollway_client", "program.py", "example.py"),),
        run=("{tools}/bin/python", "program.py"),
        example=("{tools}/bin/python", "example.py"),
        is_quick=True,
    ),
    Generator(
        name="openapi-generator python",
        slug="openapi-generator-python",
        language="Python",
        version="7.26.0",
        options="--additional-properties=packageName=rollway_client",
        needs=(),
        tools=_locked(_OPENAPI_GENERATOR),
        lock=_OPENAPI_GENERATOR,
        generate=(
            (
                "openapi-generator-cli",
                "generate",
                "--generator-name",
                "python",
                "--input-spec",
                "{document}",
                "--output",
                ".",
                "--additional-properties=packageName=rollway_client",
            ),
        ),
        compile=(("{tools}/bin/mypy", "rollway_client", "program.py"),),
        run=("{tools}/bin/python", "program.py"),
        allowed=(BETA, NO_NAME),
    ),
    Generator(
        name="openapi-typescript with openapi-fetch",
        slug="openapi-typescript",
        language="TypeScript",
        version="7.13.0",
        options="--root-types --root-types-no-schema-prefix",
        needs=("node", "npm"),
        tools=_npm("openapi-typescript"),
        generate=(
            (
                "openapi-typescript",
                "{document}",
                "--root-types",
                "--root-types-no-schema-prefix",
                "--output",
                "rollway.ts",
            ),
        ),
        compile=(_FIND_MODULES, ("tsc",)),
        run=("node", "build/program.js"),
        example=("node", "build/example.js"),
        is_quick=True,
    ),
    Generator(
        name="@hey-api/openapi-ts",
        slug="hey-api",
        language="TypeScript",
        version="0.99.0",
        options="output: { module: { extension: '.js' } } in openapi-ts.config.ts, for ES modules of Node.js",
        needs=("node", "npm"),
        tools=_npm("hey-api"),
        generate=(_FIND_MODULES, ("openapi-ts", "--input", "{document}", "--no-log-file")),
        compile=(("tsc",),),
        run=("node", "build/program.js"),
        is_quick=True,
    ),
    Generator(
        name="openapi-generator typescript-fetch",
        slug="openapi-generator-typescript-fetch",
        language="TypeScript",
        version="7.26.0",
        options="--additional-properties importFileExtension=.js, for ES modules of Node.js",
        needs=("node", "npm"),
        tools=(*_locked(_OPENAPI_GENERATOR), *_npm("openapi-generator-typescript-fetch")),
        lock=_OPENAPI_GENERATOR,
        generate=(
            (
                "openapi-generator-cli",
                "generate",
                "--generator-name",
                "typescript-fetch",
                "--input-spec",
                "{document}",
                "--output",
                "rollway",
                "--additional-properties",
                "importFileExtension=.js",
            ),
        ),
        compile=(_FIND_MODULES, ("tsc", "--build")),
        run=("node", "build/program.js"),
        allowed=(BETA,),
    ),
    Generator(
        name="openapi-generator go",
        slug="openapi-generator-go",
        language="Go",
        version="7.26.0",
        options=f"-g go --additional-properties {_OPENAPI_GENERATOR_GO}",
        needs=("go",),
        tools=_locked(_OPENAPI_GENERATOR),
        lock=_OPENAPI_GENERATOR,
        toolbox=_OPENAPI_GENERATOR,
        generate=(
            (
                "openapi-generator-cli",
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
        compile=(
            ("go", "vet", "./..."),
            ("go", "build", "-buildvcs=false", "-o", "program", "."),
            ("go", "build", "-buildvcs=false", "-o", "show", "./example"),
        ),
        run=("./program",),
        example=("./show",),
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
    Generator(
        name="openapi-generator java, okhttp-gson",
        slug="openapi-generator-java-okhttp-gson",
        language="Java",
        version="7.26.0",
        options="--config: {library: okhttp-gson, disallowAdditionalPropertiesIfNotPresent: false}",
        needs=("java", "mvn"),
        tools=_locked(_OPENAPI_GENERATOR),
        lock=_OPENAPI_GENERATOR,
        toolbox=_OPENAPI_GENERATOR,
        generate=_configured("rollway-client"),
        compile=(_MAVEN,),
        run=("java", "-jar", "program/target/program.jar"),
        example=("java", "-cp", "program/target/program.jar", "rollway.program.Example"),
        allowed=(BETA,),
    ),
    Generator(
        name="openapi-generator java, native",
        slug="openapi-generator-java-native",
        language="Java",
        version="7.26.0",
        options="--config: {library: native, openApiNullable: false}",
        needs=("java", "mvn"),
        tools=_locked(_OPENAPI_GENERATOR),
        lock=_OPENAPI_GENERATOR,
        toolbox=_OPENAPI_GENERATOR,
        generate=_configured("rollway-client"),
        compile=(_MAVEN,),
        run=("java", "-jar", "program/target/program.jar"),
        allowed=(BETA,),
    ),
    Generator(
        name="openapi-generator rust",
        slug="openapi-generator-rust",
        language="Rust",
        version="7.26.0",
        options="--config: {supportMiddleware: true, useSingleRequestParameter: true}",
        needs=("cargo",),
        tools=_locked(_OPENAPI_GENERATOR),
        lock=_OPENAPI_GENERATOR,
        toolbox=_OPENAPI_GENERATOR,
        generate=_configured("rollway_client"),
        compile=(
            (
                "cargo",
                "build",
                "--quiet",
                "--target-dir",
                "{tools}/target",
                "--config",
                "build.rustflags=['-Dwarnings']",
            ),
        ),
        run=("{tools}/target/debug/program",),
        example=("{tools}/target/debug/example",),
        allowed=(BETA, RENAMED),
    ),
)
