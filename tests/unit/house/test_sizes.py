"""Methods of classes, lines of files, and statements, in Python and in Cython."""

from __future__ import annotations

import pytest

from house.sizes import line_counts, method_counts
from house.statements import statement_count, statements_of
from tests.unit.house.conftest import Plant


def test_every_definition_in_the_body_of_a_class_is_a_method(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": """
                class Outer:
                    value: int = 0

                    def __init__(self): ...

                    @property
                    def size(self): ...

                    @size.setter
                    def size(self, value): ...

                    async def wait(self):
                        def inner(): ...

                    if value:
                        @staticmethod
                        def make(): ...

                    class Inner:
                        def only(self): ...

                def function():
                    class Local(Outer):
                        def one(self): ...
                """
        }
    )
    assert method_counts(tree) == {"app/a.py:Outer": 5, "app/a.py:Outer.Inner": 1, "app/a.py:Local": 1}


def test_a_class_of_26_methods_in_cython_is_found(plant: Plant) -> None:
    methods = "".join(
        f"    cdef int method_{number}(self) except? -1:\n        return {number}\n\n" for number in range(23)
    )
    head = '''
"""Cython."""
cdef class Large(Base):
    """A class."""

    cdef public object a, b
    cdef int *place
    cdef int counted

    def __init__(self, a):
        self.a = <object>a
        cdef int x = f(a)

    cpdef bint has(self, int[:] view): return view[0] == 1

    cdef inline bytes write(
        self,
        const char* data,
    ) noexcept:
        cdef int made = (
            2
        )
        return b""

'''
    tail = "\ncdef int outside(int a) noexcept nogil:\n    return a\n\nclass Small:\n    async def wait(self): pass\n"
    tree = plant(
        {
            "storage/large.pyx": f"{head}{methods}{tail}",
            "storage/large.pxd": "cdef class Large:\n    cdef int f(self)\n",
        }
    )
    assert method_counts(tree) == {"storage/large.pyx:Large": 26, "storage/large.pyx:Small": 1}


def test_lines_are_those_of_the_file(plant: Plant) -> None:
    tree = plant({"app/a.py": "\n\nx = 1\n", "client/src/rollway/b.pyx": "y = 1"})
    assert line_counts(tree) == {"app/a.py": 3, "client/src/rollway/b.pyx": 1}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ('"""Docstring."""\n\n# comment\n', 0),
        ('x = 1  # comment\n"""The explanation of x,\n\nin lines."""\n', 1),
        ("x = 'text'\n", 1),
        ("call(\n    1,\n    2,\n)\n", 1),
        ("if a: b\n", 1),
        ("if a:\n    b\nelse:\n    c\n", 4),
        ("a = 1; b = 2\n", 1),
        ("@property\ndef f():\n    '''Docstring.'''\n    return f'{1}'\n", 3),
    ],
)
def test_statements_are_logical_lines_without_docstrings(plant: Plant, text: str, count: int) -> None:
    (source,) = plant({"app/a.py": text}).sources
    assert statement_count(source) == count


def test_cython_has_statements_too(plant: Plant) -> None:
    text = '''
        # cython: language_level=3
        """Docstring."""

        from libc.stdint cimport int64_t

        cdef extern from "<time.h>" nogil:
            int clock_gettime(int clock, timespec* time)

        cdef enum:
            # A comment.
            SIZE_MAX = 128 * 1024ULL

        cdef inline int64_t now(const char* data, Span id) except? -1:
            """As ``time.perf_counter``."""
            cdef timespec time
            if data[0] == c"?": return 0x7FUL
            clock_gettime(1, &time)
            return <int64_t>time.tv_sec + <double>(
                time.tv_nsec
            )
        '''
    (source,) = plant({"storage/now.pyx": text}).sources
    assert statement_count(source) == 10


def test_statements_of_a_place_are_those_of_its_files(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": "x = 1\ny = 2\n",
            "app/engine/b.py": "x = 1\n",
            "app/engine_local/c.py": "x = 1\n",
            "app/problems/kinds.py": "x = 1\n",
            "app/problems/d.pxd": "cdef int f(int a)\n",
        }
    )
    assert statements_of(tree, "app") == 6
    assert statements_of(tree, "app/engine") == 1
    assert statements_of(tree, "app/missing") == 0
