"""The machine that runs the pages: it must be able to fail."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import Shell, output_matches, read_commands

PAGE = """
# A page

```console
$ echo one
one
$ cat <<'END'
> a
>
> b
> END
a
...
```

```sh
systemctl restart rollway
```

<!-- exit: 3 -->
```console
$ (exit 3)
```
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, {"PATH": "/usr/bin:/bin"})
    yield shell
    shell.close()


def test_a_page_is_read_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    commands = read_commands(page)
    assert [(command.text, command.expected, command.exit_status) for command in commands] == [
        ("echo one", ["one"], 0),
        ("cat <<'END'\na\n\nb\nEND", ["a", "..."], 0),
        ("(exit 3)", [], 3),
    ]


@pytest.mark.parametrize(
    ("expected", "actual", "matches"),
    [
        (["one"], "one\n", True),
        (["one"], "one", True),
        (["one"], "two\n", False),
        (["one"], "one\ntwo\n", False),
        (["one", "..."], "one\ntwo\nthree\n", True),
        (["one", "..."], "one\n", True),
        (["...", "three"], "one\ntwo\nthree\n", True),
        (["a ... c"], "a b c\n", True),
        (["a ... c"], "a b\nc\n", False),
        (["1.5"], "1x5\n", False),
        (["a  b"], "a      b\n", True),
        (["a  b"], "ab\n", False),
    ],
)
def test_output_is_compared_loosely_only_where_marked(expected: list[str], actual: str, matches: bool) -> None:
    assert output_matches(expected, actual) is matches


def test_commands_share_one_shell(shell: Shell) -> None:
    assert shell.run("cd /tmp && name=value") == (0, "")
    assert shell.run('echo "$PWD $name"') == (0, "/tmp value\n")
    assert shell.run("false") == (1, "")


def test_background_jobs_can_be_killed_and_leave_no_notice(shell: Shell) -> None:
    assert shell.run("tail -f /dev/null & job=$!")[0] == 0
    assert shell.run("kill -9 $job; wait $job") == (137, "")


def test_closing_the_shell_ends_what_it_started(shell: Shell) -> None:
    _, output = shell.run("tail -f /dev/null & echo $!")
    job = os.pidfd_open(int(output))
    try:
        ended = select.poll()
        ended.register(job, select.POLLIN)
        assert not ended.poll(0), "it runs"
        shell.close()
        assert ended.poll(10_000), "it has ended"
    finally:
        os.close(job)
