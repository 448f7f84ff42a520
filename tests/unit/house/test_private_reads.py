"""Compiled code reads no private name of another class or module."""

from __future__ import annotations

from pathlib import Path

from house.private_reads import private_reads
from house.sources import SourceTree
from tests.unit.house.conftest import Plant

ROOT = Path(__file__).parents[3]


def test_compiled_code_takes_no_private_name_of_another_class() -> None:
    compiled = [source for source in SourceTree(ROOT).sources if source.is_compiled]
    assert len(compiled) > 10
    assert {source.path: found for source in compiled if (found := private_reads(source))} == {}


def test_private_names_of_others_are_found(plant: Plant) -> None:
    tree = plant(
        {
            "app/planted_c.pyx": '''
                """Reads log._docstring."""
                from app.other import _hidden, shown
                cdef class Own:
                    cdef object _mine
                    def read(self, log):
                        self._mine = log._writer.written  # log._comment
                        return (
                            self.log._entries[0]._last,
                            log.__class__,
                            "log._text",
                            <object>log.get()._index,
                        )
                '''
        }
    )
    (source,) = tree.sources
    assert private_reads(source) == ["3: _hidden", "7: log._writer", "8: log._entries", "8: ]._last", "8: )._index"]
