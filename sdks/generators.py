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
RENAMED = "cannot be used as a "
"""openapi-generator rust, of words that are no names in Rust (a media type, ``type``, ``0``): it changes them."""


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
        name="openapi-generator java, okhttp-gson",
        slug="openapi-generator-java-okhttp-gson",
        language="Java",
        version="7.26.0",
        options="--config: {library: okhttp-gson, disallowAdditionalPropertiesIfNotPresent: false}",
        needs=("java", "mvn"),
        tools=_pip("openapi-generator-cli==7.26.0"),
        generate=(
            (
                "openapi-generator-cli",
                "generate",
                "--config",
                "config.yaml",
                "--input-spec",
                "{document}",
                "--output",
                "rollway-client",
            ),
        ),
        compile=(
            (
                "mvn",
                "--batch-mode",
                "--quiet",
                "-Dmaven.test.skip=true",
                "-Dmaven.javadoc.skip=true",
                "-Dmaven.source.skip=true",
                "package",
            ),
        ),
        run=("java", "-jar", "program/target/program.jar"),
        allowed=(BETA,),
    ),
    Generator(
        name="openapi-generator java, native",
        slug="openapi-generator-java-native",
        language="Java",
        version="7.26.0",
        options="--config: {library: native, openApiNullable: false}",
        needs=("java", "mvn"),
        tools=_pip("openapi-generator-cli==7.26.0"),
        generate=(
            (
                "openapi-generator-cli",
                "generate",
                "--config",
                "config.yaml",
                "--input-spec",
                "{document}",
                "--output",
                "rollway-client",
            ),
        ),
        compile=(
            (
                "mvn",
                "--batch-mode",
                "--quiet",
                "-Dmaven.test.skip=true",
                "-Dmaven.javadoc.skip=true",
                "-Dmaven.source.skip=true",
                "package",
            ),
        ),
        run=("java", "-jar", "program/target/program.jar"),
        allowed=(BETA,),
    ),
    Generator(
        name="openapi-generator rust",
        slug="openapi-generator-rust",
        language="Rust",
        version="7.26.0",
        options="--config: {supportMiddleware: true, useSingleRequestParameter: true}",
        needs=("java", "cargo"),
        tools=_pip("openapi-generator-cli==7.26.0"),
        generate=(
            (
                "openapi-generator-cli",
                "generate",
                "--config",
                "config.yaml",
                "--input-spec",
                "{document}",
                "--output",
                "rollway_client",
            ),
        ),
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
        allowed=(BETA, RENAMED),
    ),
)
