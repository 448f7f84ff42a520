"""The command ``python -m house``: print the house numbers, and compare them with their limits.

Exit status: 0, or 1 if a number is above its limit, an entry of the limits is not up to date, or (with ``--check``)
the page is stale; 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import os
import sys
import tokenize
from pathlib import Path

from house import limits as house_limits
from house.definitions import Definitions
from house.imports import imports_of
from house.limits import Limits
from house.modules import rooms_of
from house.numbers import PACKAGES, measure
from house.page import arrows_text, fresh_text, generated, is_stale, walk_text
from house.sources import SourceTree
from house.walks import walk

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "house.md"

_EXAMPLES = """
examples:
  python -m house                      print the numbers, then each limit that does not hold
  python -m house --check              print only the faults
  python -m house --record             write docs/reference/house.md, and lower the limits of numbers that fell
  python -m house --walk app/a.py:Writer.append:batches
                                       print every stay of a walk, to see where it can be shortened
  python -m house --arrows app         print the imports behind each arrow, to see which ones close a circle
  python -m house --root ../main       print the numbers of another tree, compared with nothing

docs/reference/house.md explains the numbers and how they are counted.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return _run(options, parser)
    except BrokenPipeError:
        # ``| head`` takes a few lines; the rest goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError, SyntaxError, tokenize.TokenError) as error:
        parser.error(str(error))


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    limits = house_limits.read(options.limits.read_text("utf-8"))
    if options.walk is not None:
        return _print_walk(options.root, options.walk, limits, parser)
    if options.arrows is not None:
        tree = SourceTree(options.root)
        rooms = rooms_of(options.arrows, tree, imports_of(tree))
        sys.stdout.writelines(f"{line}\n" for line in arrows_text(rooms))
        return 0
    is_other = options.root.resolve() != ROOT and options.limits == house_limits.PATH
    if is_other and (options.check or options.record):
        parser.error("--check and --record are about this tree; another one needs --limits and --page of its own")
    numbers = measure(options.root, limits)
    if options.record:
        limits = _lower(options.limits, [each for each in numbers.faults(limits) if each.is_fall], limits)
    lines = generated(numbers, limits)
    found = [] if is_other else [each.text for each in numbers.faults(limits)]
    if options.record or options.check:
        old = options.page.read_text("utf-8")
        fresh = fresh_text(old, lines)
        if options.record:
            options.page.write_text(fresh, "utf-8")
        elif is_stale(old, fresh):
            found.append(f"{options.page.name} is stale: make house HOUSE=--record")
    if not options.check:
        sys.stdout.write("\n".join(lines) + "\n")
    if found:
        sys.stderr.write("\n".join(["", *found]) + "\n")
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m house",
        description="Print the house numbers: folders, rooms, imports, classes, files, statements and walks.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="print only the faults; a stale page is one")
    mode.add_argument("--record", action="store_true", help="write the page, and lower the limits of numbers that fell")
    mode.add_argument("--arrows", choices=PACKAGES, help="print the imports behind each arrow, nothing else")
    mode.add_argument("--walk", metavar="FILE:FUNCTION:PARAMETER", help="print every stay of this walk, nothing else")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to measure (default: this one)")
    parser.add_argument(
        "--limits", type=Path, default=house_limits.PATH, help="the limits (default: house/limits.toml)"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="the page (default: docs/reference/house.md)")
    return parser


def _print_walk(root: Path, entry: str, limits: Limits, parser: argparse.ArgumentParser) -> int:
    try:
        found = walk(Definitions(SourceTree(root)), entry, limits.leaves)
    except LookupError as error:
        parser.error(str(error))
    sys.stdout.writelines(f"{line}\n" for line in walk_text(entry, found))
    return 0


def _lower(path: Path, falls: list[house_limits.Fault], limits: Limits) -> Limits:
    """Write the numbers that fell into the limits file, and read it again."""
    text = path.read_text("utf-8")
    for fall in falls:
        group = getattr(limits, fall.group)
        text = house_limits.lowered(text, fall, group.goal(fall.name) or 0)
    path.write_text(text, "utf-8")
    return house_limits.read(text)


if __name__ == "__main__":
    sys.exit(main())
