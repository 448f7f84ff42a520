"""The functions and classes of a tree with their annotations, from which a walk finds callees.

A ``Shape`` is an annotation with the module that it is written in, so that its names can be looked up.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from house.imports import absolute, loaded_name
from house.sizes import class_name, function_name
from house.sources import Source, SourceTree

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

# Annotations that only wrap the type that is their first argument.
_WRAPPERS = frozenset(("Annotated", "ClassVar", "Final", "Optional", "Awaitable", "type"))
_MAPPINGS = frozenset(("dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict"))
_COLLECTIONS = frozenset(
    ("list", "tuple", "set", "frozenset", "deque", "Sequence", "MutableSequence", "Collection", "Set", "AbstractSet")
)
_ITERABLES = frozenset(("Reversible", "Iterable", "Iterator", "Generator", "AsyncIterable", "AsyncIterator"))
_CALLABLES = frozenset(("Callable", "ref", "ReferenceType"))
# More imports of imports than this are a circle.
_REEXPORTS_MAX = 10


@dataclass(frozen=True)
class Shape:
    """The annotation of a value, written in ``module``."""

    annotation: ast.expr
    module: str


@dataclass(eq=False)
class Function:
    """A function or method. Of a compiled one only the name is known: its ``node`` is ``None``."""

    source: Source
    name: str
    line: int
    node: AnyFunction | None
    owner: Class | None = None
    is_inner: bool = False
    """Whether it is written in another function."""

    @property
    def title(self) -> str:
        """``Class.method`` or ``function``."""
        return f"{self.owner.name}.{self.name}" if self.owner else self.name

    @cached_property
    def decorators(self) -> set[str]:
        return {last_name(each) for each in self.node.decorator_list} if self.node else set()

    @property
    def is_property(self) -> bool:
        return not self.decorators.isdisjoint(("property", "cached_property"))

    @property
    def takes_instance(self) -> bool:
        """Whether the first parameter is the object or class that the function was called on."""
        return self.owner is not None and "staticmethod" not in self.decorators

    @property
    def is_declaration(self) -> bool:
        """Whether it only says that there is such a method: in a protocol, or as an abstract one."""
        if "abstractmethod" in self.decorators:
            return True
        body = self.node.body if self.node and self.owner and self.owner.is_protocol else []
        return bool(body) and all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in body)

    @cached_property
    def positional(self) -> list[ast.arg]:
        """The parameters that positions fill, in order, the instance with them."""
        return [*self.node.args.posonlyargs, *self.node.args.args] if self.node else []

    @cached_property
    def parameters(self) -> list[ast.arg]:
        """All parameters, ``*rest`` and ``**rest`` with them."""
        if self.node is None:
            return []
        rest = [each for each in (self.node.args.vararg, self.node.args.kwarg) if each is not None]
        return [*self.positional, *self.node.args.kwonlyargs, *rest]

    @cached_property
    def bound_names(self) -> set[str]:
        """The names that the function gives values to: its parameters and the targets of its assignments."""
        names = [each for each in ast.walk(self.node) if isinstance(each, ast.Name)] if self.node else []
        return {each.id for each in names if isinstance(each.ctx, ast.Store)} | {each.arg for each in self.parameters}


@dataclass(eq=False)
class Class:
    """A class with its methods, and the attributes that its body annotates."""

    source: Source
    name: str
    bases: list[ast.expr] = field(default_factory=list)
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, ast.expr] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The shape of its objects."""
        return Shape(ast.Name(self.name), self.source.module)

    @property
    def is_protocol(self) -> bool:
        return any(last_name(base) == "Protocol" for base in self.bases)


@dataclass(frozen=True)
class Variable:
    """A name that a module assigns, with its first value and its annotation."""

    value: ast.expr | None
    annotation: ast.expr | None
    module: str


@dataclass(frozen=True)
class Foreign:
    """A definition that is not in the tree."""

    name: str


@dataclass(frozen=True)
class ModuleName:
    """A module of the tree."""

    name: str


@dataclass(frozen=True)
class _Elsewhere:
    """A name that is imported from another module."""

    module: str
    name: str


Meaning = Function | Class | Variable | Foreign | ModuleName | None


class Definitions:
    """All functions and classes of a tree, by the names that modules have for them."""

    def __init__(self, tree: SourceTree) -> None:
        # Packages without an ``__init__`` are modules here.
        self._modules = {each for module in tree.modules for each in (*_parents(module), module)}
        self._members: dict[str, dict[str, Meaning | _Elsewhere]] = {}
        self.functions_by_name: dict[str, list[Function]] = {}
        self._ancestors: dict[Class, list[Class]] = {}
        for source in tree.sources:
            if source.suffix != ".pxd":
                members = _compiled_members(source) if source.is_compiled else self._python_members(source)
                self._members.setdefault(source.module, {}).update(members)
        own = [member for members in self._members.values() for member in members.values()]
        self.classes = [each for each in own if isinstance(each, Class)]
        functions = [each for each in own if isinstance(each, Function)]
        for function in [*functions, *(method for each in self.classes for method in each.methods.values())]:
            self.functions_by_name.setdefault(function.name, []).append(function)

    def _python_members(self, source: Source) -> Iterator[tuple[str, Meaning | _Elsewhere]]:
        for statement in _flat(source.tree.body):
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield statement.name, Function(source, statement.name, statement.lineno, statement)
                case ast.ClassDef():
                    yield statement.name, _class_of(source, statement)
                case ast.Import(names=names):
                    for alias in names:
                        name = alias.name if alias.asname else alias.name.partition(".")[0]
                        yield alias.asname or name, ModuleName(name) if name in self._modules else Foreign(name)
                case ast.ImportFrom(module=module, names=names, level=level):
                    for alias in names:
                        yield alias.asname or alias.name, _Elsewhere(absolute(source, module, level), alias.name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    yield name, self._variable(value, None, source.module)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    yield name, self._variable(statement.value, annotation, source.module)

    def _variable(self, value: ast.expr | None, annotation: ast.expr | None, module: str) -> ModuleName | Variable:
        """A variable; one that a compiled module is loaded into is that module."""
        loaded = loaded_name(_uncast(value)) if value is not None else None
        return ModuleName(loaded) if loaded in self._modules else Variable(value, annotation, module)

    # Names

    def function(self, path: str, title: str) -> Function:
        """The function ``title`` (``f`` or ``Class.f``) of the file ``path``.

        Raises:
            LookupError: there is none.
        """
        for function in self.functions_by_name.get(title.rpartition(".")[2], []):
            if function.source.path == path and function.title == title:
                return function
        raise LookupError(f"{path} has no function {title}")

    def member(self, module: str, name: str) -> Meaning:
        """Find the definition of ``name`` in ``module``, or where ``module`` imports it from."""
        for _ in range(_REEXPORTS_MAX):
            if module not in self._modules:
                return Foreign(name)
            found = self._members.get(module, {}).get(name)
            if not isinstance(found, _Elsewhere):
                inner = f"{module}.{name}"
                return ModuleName(inner) if found is None and inner in self._modules else found
            module, name = found.module, found.name
        return None

    def meaning(self, expression: ast.expr, module: str) -> Meaning:
        """Find the definition of a name or a dotted name that is written in ``module``."""
        match expression:
            case ast.Name(id=name):
                return self.member(module, name)
            case ast.Attribute(value=value, attr=name):
                outer = self.meaning(value, module)
                if isinstance(outer, ModuleName):
                    return self.member(outer.name, name)
                return Foreign(name) if isinstance(outer, Foreign) else None
        return None

    # Shapes

    def classes_of(self, shape: Shape) -> list[Class]:
        """The classes of the tree that a value of this shape may be of."""
        return list(dict.fromkeys(each for each in self._kinds(shape) if isinstance(each, Class)))

    def is_foreign(self, shape: Shape) -> bool:
        """Whether the annotation decides that the value is of no class of the tree. ``Any`` decides nothing."""
        kinds = list(self._kinds(shape))
        return bool(kinds) and all(isinstance(each, Foreign) for each in kinds)

    def element_of(self, shape: Shape) -> Shape | None:
        """The shape of one value of a container; of a mapping that of a value, not of a key."""
        for outer, arguments, module in self._subscripts(shape):
            if outer in _MAPPINGS and len(arguments) == 2:
                return Shape(arguments[1], module)
            if outer in _COLLECTIONS or outer in _ITERABLES:
                return Shape(arguments[0], module)
        return None

    def result_of(self, shape: Shape) -> Shape | None:
        """The shape that calling a ``Callable`` or a weak reference gives."""
        found = (
            Shape(arguments[-1], module) for outer, arguments, module in self._subscripts(shape) if outer in _CALLABLES
        )
        return next(found, None)

    def _subscripts(self, shape: Shape) -> Iterator[tuple[str, list[ast.expr], str]]:
        for each in self._alternatives(shape):
            match each.annotation:
                case ast.Subscript(value=outer, slice=ast.Tuple(elts=[_, *_] as arguments)):
                    yield last_name(outer), arguments, each.module
                case ast.Subscript(value=outer, slice=argument):
                    yield last_name(outer), [argument], each.module

    def _alternatives(self, shape: Shape) -> Iterator[Shape]:
        """The parts of a union, without wrappers, aliases resolved; ``None`` is left out."""
        module = shape.module
        match shape.annotation:
            case ast.Constant(value=str(text)):
                yield from self._alternatives(Shape(ast.parse(text, mode="eval").body, module))
            case ast.Constant():
                return
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                yield from self._alternatives(Shape(left, module))
                yield from self._alternatives(Shape(right, module))
            case ast.Subscript(value=outer, slice=inner) if last_name(outer) in _WRAPPERS:
                yield from self._alternatives(Shape(inner.elts[0] if isinstance(inner, ast.Tuple) else inner, module))
            case ast.Subscript(value=outer, slice=ast.Tuple(elts=[*_, last])) if last_name(outer) == "Coroutine":
                yield from self._alternatives(Shape(last, module))
            case ast.Name() | ast.Attribute():
                meaning = self.meaning(shape.annotation, module)
                is_alias = isinstance(meaning, Variable) and not isinstance(meaning.value, ast.Call | None)
                if isinstance(meaning, Variable) and meaning.value is not None and is_alias:
                    yield from self._alternatives(Shape(meaning.value, meaning.module))
                else:
                    yield shape
            case _:
                yield shape

    def _kinds(self, shape: Shape) -> Iterator[Class | Foreign | None]:
        """Yield the class of each part of a union; ``None`` for parts that decide nothing, as ``Any``."""
        for each in self._alternatives(shape):
            annotation = each.annotation
            outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
            meaning = self.meaning(outer, each.module)
            if last_name(outer) in {"Any", "object", ""} or (
                isinstance(meaning, Variable) and _is_type_variable(meaning)
            ):
                yield None
            else:
                yield meaning if isinstance(meaning, Class) else Foreign(last_name(outer))

    # Members of classes

    def ancestors(self, kind: Class) -> list[Class]:
        """The class and the classes of the tree that it inherits from, nearest first."""
        if kind in self._ancestors:
            return self._ancestors[kind]
        found = self._ancestors[kind] = [kind]
        for each in found:
            for base in each.bases:
                meaning = self.meaning(base.value if isinstance(base, ast.Subscript) else base, each.source.module)
                if isinstance(meaning, Class) and meaning not in found:
                    found.append(meaning)
        return found

    def method(self, kind: Class, name: str) -> Function | None:
        return next((each.methods[name] for each in self.ancestors(kind) if name in each.methods), None)

    def implementations(self, declared: Function) -> list[Function]:
        """The methods behind one that only declares.

        They are of classes that inherit from its class, or that have all methods that its protocol declares.
        """
        kind = declared.owner
        assert kind is not None
        wanted = {name for each in self.ancestors(kind) for name in each.methods}
        found = []
        for each in self.classes:
            inherits = kind in self.ancestors(each)
            has_all = kind.is_protocol and not each.is_protocol and all(self.method(each, name) for name in wanted)
            method = self.method(each, declared.name) if inherits or has_all else None
            if method is not None and not method.is_declaration:
                found.append(method)
        return list(dict.fromkeys(found))


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, also of one that is called or subscripted; empty for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return last_name(inner)
    return ""


def _parents(module: str) -> Iterator[str]:
    """The packages around a module."""
    while module := module.rpartition(".")[0]:
        yield module


def _class_of(source: Source, node: ast.ClassDef) -> Class:
    kind = Class(source, node.name, node.bases)
    for statement in _flat(node.body):
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                # Of a property the getter, whose annotation is that of the value.
                kind.methods.setdefault(name, Function(source, name, statement.lineno, statement, kind))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                kind.attributes[name] = annotation
    return kind


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, those under ``if`` and ``try`` with them."""
    for statement in body:
        match statement:
            case ast.If(body=inner, orelse=other):
                yield from _flat([*inner, *other])
            case ast.Try(body=inner, handlers=handlers):
                yield from _flat([*inner, *(each for handler in handlers for each in handler.body)])
            case _:
                yield statement


def _compiled_members(source: Source) -> Iterator[tuple[str, Meaning]]:
    kind: Class | None = None
    for line in source.logical_lines:
        if line.column == 0:
            kind = None
        if (name := class_name(line)) is not None:
            kind = Class(source, name)
            yield name, kind
        elif (name := function_name(line)) is not None:
            function = Function(source, name, line.number, None, kind)
            if kind is None:
                yield name, function
            else:
                kind.methods.setdefault(name, function)


def _uncast(node: ast.expr) -> ast.expr:
    match node:
        case ast.Call(func=ast.Name(id="cast"), args=[_, value]):
            return value
    return node


def _is_type_variable(variable: Variable) -> bool:
    return isinstance(variable.value, ast.Call) and last_name(variable.value) in {"TypeVar", "ParamSpec"}
