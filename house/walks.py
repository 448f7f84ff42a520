"""The path of one parameter through the code, as a reader follows it: the files to open, and to open again.

A walk begins in one function, with one of its parameters. It follows the value, and everything made from it by
assignment, attribute, subscript, unpacking, iteration, a display such as a tuple, or a constructor. It does not follow
the results of functions. A call that passes such a value on, also as the object that a method is called on, leads into
the called function, in the order the code is written. The walk reads each function once for each of its parameters.

Every mention of the value and every call that passes it on is an event. A *stay* is a longest run of events in one
file, a *return* is a stay in a file that was left before. So a walk has as many stays as it has files and returns.

The walk stops, and says so, at a call that may enter several functions. It does not read inside compiled modules, nor
below the places that it is given as ``leaves``: a call into one is an event there, no more.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from house.definitions import AnyFunction, Definitions, Function, Shape
from house.resolution import Ambiguous, Callee, Construction, Known, Resolver, Scope
from house.sources import is_below

# A call of a walk takes some ten calls of Python, and walks are dozens of calls deep.
_RECURSION_MAX = 20_000


@dataclass
class Stay:
    """A stretch of the walk in one file, from ``line`` on."""

    path: str
    line: int
    functions: dict[str, None] = field(default_factory=dict)
    """In the order they are read."""
    names: dict[str, None] = field(default_factory=dict)
    """The names of the value, and of the values made from it."""


@dataclass(frozen=True)
class Stop:
    """Where the walk cannot go on."""

    path: str
    line: int
    call: Ambiguous


@dataclass
class Walk:
    stays: list[Stay] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)

    @property
    def file_count(self) -> int:
        return len({stay.path for stay in self.stays})

    @property
    def return_count(self) -> int:
        """How many stays are in a file that was left before."""
        return len(self.stays) - self.file_count

    def go(self, path: str, line: int, function: str, names: Iterable[str] = ()) -> None:
        """Be in ``function``, where the value has these names."""
        if not self.stays or self.stays[-1].path != path:
            self.stays.append(Stay(path, line))
        self.stays[-1].functions[function] = None
        self.stays[-1].names.update(dict.fromkeys(names))

    def stop(self, stop: Stop) -> None:
        if stop not in self.stops:
            self.stops.append(stop)


def walk(definitions: Definitions, entry: str, leaves: Sequence[str] = ()) -> Walk:
    """Follow a parameter: ``entry`` is ``path:function:parameter`` or ``path:Class.method:parameter``.

    Raises:
        LookupError: there is no such function, or it has no such parameter.
    """
    path, title, parameter = _parts(entry)
    function = definitions.function(path, title)
    if parameter not in {each.arg for each in function.parameters}:
        raise LookupError(f"{title} of {path} has no parameter {parameter}")
    walker = _Walker(Resolver(definitions), leaves)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_MAX))
    try:
        walker.enter(function, {parameter})
    finally:
        sys.setrecursionlimit(limit)
    return walker.walk


def _parts(entry: str) -> tuple[str, str, str]:
    match entry.split(":"):
        case [path, title, parameter]:
            return path, title, parameter
    raise LookupError(f"{entry} is not of the form file:function:parameter")


@dataclass
class _Reading:
    """One function while it is read."""

    scope: Scope
    held: set[str]
    """The names, also dotted ones, of the value and of the values made from it. None is ever taken out."""


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a call; ``on_it`` if the value is the object that the method is called on."""

    on_it: bool
    positional: list[ast.expr]
    keywords: list[ast.keyword]

    def values(self) -> list[ast.expr]:
        return [*self.positional, *(each.value for each in self.keywords)]


class _Walker:
    def __init__(self, resolver: Resolver, leaves: Sequence[str]) -> None:
        self.walk = Walk()
        self._resolver = resolver
        self._leaves = leaves
        self._read_with: dict[Function, set[str]] = {}

    def enter(self, function: Function, parameters: set[str], outer: Scope | None = None) -> None:
        """Read ``function`` with the value in ``parameters``, but for those that it was read with before."""
        path = function.source.path
        is_first = function not in self._read_with
        before = self._read_with.setdefault(function, set())
        new = parameters - before
        before |= new
        if function.node is None or (new and any(is_below(path, leaf) for leaf in self._leaves)):
            if is_first:
                self.walk.go(path, function.line, function.title)
        elif new:
            self.walk.go(path, function.line, function.title, sorted(new))
            self._read(function.node.body, _Reading(self._resolver.scope_of(function, outer), new))

    # Reading

    def _read(self, nodes: Iterable[ast.AST], reading: _Reading) -> None:
        for node in nodes:
            self._visit(node, reading)

    def _visit(self, node: ast.AST, reading: _Reading) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._visit_inner(node, reading)
            case ast.Lambda():
                own = {each.arg for each in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]}
                self._visit(node.body, _Reading(reading.scope, reading.held - own))
            case ast.Call():
                self._read(ast.iter_child_nodes(node), reading)
                self._call(node, reading)
            case ast.IfExp(body=body, test=test, orelse=orelse):
                self._read((body, test, orelse), reading)
            case ast.Match():
                self._visit_match(node, reading)
            case _:
                self._visit_binding(node, reading)

    def _visit_binding(self, node: ast.AST, reading: _Reading) -> None:
        """Visit a node that gives names values, the value before the names."""
        match node:
            case ast.Assign(targets=targets, value=value):
                self._visit(value, reading)
                for target in targets:
                    self._bind(target, value, reading)
                self._read(targets, reading)
            case ast.NamedExpr(target=target, value=value):
                self._visit(value, reading)
                self._bind(target, value, reading)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                if value is not None:
                    self._visit(value, reading)
                    self._bind(target, value, reading)
                if isinstance(target, ast.Name):
                    reading.scope.shapes[target.id] = Shape(annotation, reading.scope.module)
                self._visit(target, reading)
            case ast.AugAssign(target=target, value=value):
                self._visit(value, reading)
                self._give(target, self._holds(value, reading), None, reading)
                self._visit(target, reading)
            case ast.For(target=target) | ast.AsyncFor(target=target):
                self._visit(node.iter, reading)
                self._bind_each(target, node.iter, reading)
                self._read((target, *node.body, *node.orelse), reading)
            case ast.withitem(context_expr=value, optional_vars=target):
                self._visit(value, reading)
                if target is not None:
                    shape = self._resolver.element_shape(value, reading.scope)
                    shape = shape or self._resolver.shape_of(value, reading.scope)
                    self._give(target, self._holds(value, reading), shape, reading)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._visit_comprehension(node, reading)
            case ast.Name() | ast.Attribute() if (name := _dotted(node)) in reading.held:
                self._mention(node, reading, [name] if name else [])
            case _:
                self._read(ast.iter_child_nodes(node), reading)

    def _mention(self, node: ast.expr, reading: _Reading, names: Sequence[str] = ()) -> None:
        function = reading.scope.function
        self.walk.go(function.source.path, node.lineno, function.title, names)

    def _visit_inner(self, node: AnyFunction, reading: _Reading) -> None:
        """A function in a function is read where it is written, with the names that it takes from around it."""
        outer = reading.scope.function
        function = Function(outer.source, f"{outer.title}.{node.name}", node.lineno, node, is_inner=True)
        reading.scope.callables[node.name] = Known(function)
        own = {each.arg for each in function.parameters}
        self._read(node.body, _Reading(self._resolver.scope_of(function, reading.scope), reading.held - own))

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, reading: _Reading
    ) -> None:
        for each in node.generators:
            self._visit(each.iter, reading)
            self._bind_each(each.target, each.iter, reading)
            self._read(each.ifs, reading)
        self._read((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,), reading)

    def _visit_match(self, node: ast.Match, reading: _Reading) -> None:
        self._visit(node.subject, reading)
        for case in node.cases:
            if self._holds(node.subject, reading):
                reading.held |= set(_captured(case.pattern))
            if case.guard is not None:
                self._visit(case.guard, reading)
            self._read(case.body, reading)

    # The names of the value

    def _holds(self, expression: ast.expr, reading: _Reading) -> bool:
        """Whether an expression gives the value, or something made from it."""
        match expression:
            case ast.Name() | ast.Attribute() if _dotted(expression) in reading.held:
                return True
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Await(value=value):
                return self._holds(value, reading)
            case ast.Starred(value=value) | ast.NamedExpr(value=value):
                return self._holds(value, reading)
            case ast.IfExp(body=one, orelse=other):
                return self._holds(one, reading) or self._holds(other, reading)
            case ast.BoolOp(values=values) | ast.Tuple(elts=values) | ast.List(elts=values) | ast.Set(elts=values):
                return any(self._holds(each, reading) for each in values)
            case ast.Dict(values=values):
                return any(self._holds(each, reading) for each in values)
            case ast.ListComp(elt=each) | ast.SetComp(elt=each) | ast.GeneratorExp(elt=each):
                return self._holds(each, reading)
            case ast.DictComp(value=each):
                return self._holds(each, reading)
            case ast.Call(func=called, args=args, keywords=keywords):
                held = any(self._holds(each, reading) for each in _Arguments(False, args, keywords).values())
                return held and isinstance(self._resolver.callee(called, reading.scope), Construction)
        return False

    def _bind(self, target: ast.expr, value: ast.expr, reading: _Reading) -> None:
        """``target = value``."""
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    self._bind(one, other, reading)
            case _:
                self._give(target, self._holds(value, reading), None, reading)
                if isinstance(target, ast.Name):
                    self._resolver.note(target.id, value, reading.scope)

    def _bind_each(self, target: ast.expr, values: ast.expr, reading: _Reading) -> None:
        """``for target in values``."""
        match target, values:
            case ast.Tuple(elts=[_, second]), ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                self._bind_each(second, inner, reading)
            case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=inners) if len(targets) == len(inners):
                for one, other in zip(targets, inners, strict=True):
                    self._bind_each(one, other, reading)
            case ast.Tuple(elts=[key, second]), ast.Call(func=ast.Attribute(value=mapping, attr="items")):
                self._give(key, self._holds(mapping, reading), None, reading)
                self._bind_each(second, mapping, reading)
            case _, ast.Call(func=ast.Attribute(value=mapping, attr="values")):
                self._bind_each(target, mapping, reading)
            case _:
                shape = self._resolver.element_shape(values, reading.scope)
                self._give(target, self._holds(values, reading), shape, reading)

    def _give(self, target: ast.expr, is_held: bool, shape: Shape | None, reading: _Reading) -> None:
        """A name gets the value, or something else; of several names each gets it."""
        match target:
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for each in targets:
                    self._give(each, is_held, None, reading)
            case ast.Starred(value=inner):
                self._give(inner, is_held, shape, reading)
            case ast.Name() | ast.Attribute():
                name = _dotted(target)
                if is_held and name is not None:
                    reading.held.add(name)
                if isinstance(target, ast.Name) and shape is not None:
                    reading.scope.shapes[target.id] = shape

    # Calls

    def _call(self, call: ast.Call, reading: _Reading) -> None:
        arguments = _Arguments(self._is_on_it(call.func, reading), call.args, call.keywords)
        if self._passes(arguments, reading):
            self._mention(call, reading)
            self._pass(call, self._resolver.callee(call.func, reading.scope), arguments, reading)
        # ``partial(f, x)``, ``call_in(pool, f, x)``: a function among the arguments is called with those behind it.
        for place, each in enumerate(call.args):
            known = self._resolver.function_of(each, reading.scope)
            if known is not None:
                behind = _Arguments(self._is_on_it(each, reading), call.args[place + 1 :], call.keywords)
                if self._passes(behind, reading):
                    self._pass(call, known, behind, reading)

    def _is_on_it(self, called: ast.expr, reading: _Reading) -> bool:
        return isinstance(called, ast.Attribute) and self._holds(called.value, reading)

    def _passes(self, arguments: _Arguments, reading: _Reading) -> bool:
        return arguments.on_it or any(self._holds(each, reading) for each in arguments.values())

    def _pass(self, call: ast.Call, callee: Callee, arguments: _Arguments, reading: _Reading) -> None:
        match callee:
            case Ambiguous():
                self.walk.stop(Stop(reading.scope.function.source.path, call.lineno, callee))
            case Known(function=function, is_bound=is_bound):
                filled = set(self._filled(function, is_bound, arguments, reading))
                self.enter(function, filled, reading.scope if function.is_inner else None)
            case Construction(init=Function() as init):
                made = _Arguments(False, arguments.positional, arguments.keywords)
                self.enter(init, set(self._filled(init, True, made, reading)))

    def _filled(self, function: Function, is_bound: bool, arguments: _Arguments, reading: _Reading) -> Iterator[str]:
        """The parameters of ``function`` that get the value."""
        if function.node is None:
            return
        positional = [each.arg for each in function.positional]
        if is_bound and arguments.on_it and positional:
            yield positional[0]
        positional = positional[int(is_bound) :]
        rest, named_rest = function.node.args.vararg, function.node.args.kwarg
        for place, argument in enumerate(arguments.positional):
            if self._holds(argument, reading):
                if isinstance(argument, ast.Starred):
                    yield from positional[place:]
                elif place < len(positional):
                    yield positional[place]
                elif rest is not None:
                    yield rest.arg
        names = {each.arg for each in function.parameters}
        for keyword in arguments.keywords:
            if self._holds(keyword.value, reading):
                if keyword.arg in names:
                    yield keyword.arg
                elif named_rest is not None:
                    yield named_rest.arg


def _dotted(expression: ast.expr) -> str | None:
    """``a.b.c`` as text, if the expression is a dotted name."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            outer = _dotted(value)
            return f"{outer}.{name}" if outer else None
    return None


def _captured(pattern: ast.pattern) -> Iterator[str]:
    """The names that a pattern gives values to."""
    for part in ast.walk(pattern):
        match part:
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
