"""Find the function that a call enters: by imports, by annotations, else by a name that there is only once."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

from house.definitions import Class, Definitions, Foreign, Function, ModuleName, Shape, Variable

# Methods of built-in containers that give one of their values, and builtins that keep the shape of their argument.
_GIVES_ELEMENT = frozenset(("get", "pop", "popleft", "setdefault"))
_KEEPS_SHAPE = frozenset(("list", "tuple", "sorted", "reversed", "set", "frozenset", "iter"))
_DISPLAYS: dict[type[ast.expr], str] = {
    **dict.fromkeys((ast.Dict, ast.DictComp), "dict"),
    **dict.fromkeys((ast.List, ast.ListComp), "list"),
    **dict.fromkeys((ast.Set, ast.SetComp), "set"),
    **dict.fromkeys((ast.Tuple, ast.GeneratorExp), "tuple"),
    ast.JoinedStr: "str",
}

Static = Class | ModuleName | Foreign


@dataclass(frozen=True)
class Known:
    """The call enters ``function``; ``is_bound`` if its first parameter is the object that it is called on."""

    function: Function
    is_bound: bool = False


@dataclass(frozen=True)
class Construction:
    """The call makes an object of ``kind``, or of a class that is not in the tree."""

    kind: Class | None
    init: Function | None


@dataclass(frozen=True)
class Ambiguous:
    """A call that may enter several functions, and nothing decides which."""

    text: str
    """The called expression."""
    candidates: tuple[str, ...]
    """The functions that it may enter; none if a variable holds the function."""


Callee = Known | Construction | Ambiguous | None
"""``None`` for functions that are not in the tree."""


@dataclass
class Scope:
    """The local names of one function, as far as it has been read."""

    function: Function
    shapes: dict[str, Shape] = field(default_factory=dict)
    callables: dict[str, Known] = field(default_factory=dict)
    """Local names of functions and bound methods."""
    statics: dict[str, Static] = field(default_factory=dict)
    """Local names of classes and modules."""
    bound: set[str] = field(default_factory=set)
    """The local names, which hide those of the module."""

    @property
    def module(self) -> str:
        return self.function.source.module


class Resolver:
    """Finds callees, and keeps the shapes of attributes that it has found."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._attributes: dict[tuple[Class, str], Shape | None] = {}

    def scope_of(self, function: Function, outer: Scope | None = None) -> Scope:
        """The scope at the beginning of ``function``, which may be written in a function with the scope ``outer``."""
        outer = outer or Scope(function)
        scope = Scope(function, {**outer.shapes}, {**outer.callables}, {**outer.statics}, {*outer.bound})
        scope.bound |= function.bound_names
        for parameter in function.parameters:
            for known in (scope.shapes, scope.callables, scope.statics):
                known.pop(parameter.arg, None)
            if parameter.annotation is not None:
                scope.shapes[parameter.arg] = Shape(parameter.annotation, scope.module)
        if function.owner is not None and function.takes_instance and function.positional:
            instance = function.positional[0].arg
            scope.shapes[instance] = function.owner.shape
            if "classmethod" in function.decorators:
                scope.statics[instance] = function.owner
        return scope

    def note(self, name: str, value: ast.expr, scope: Scope) -> None:
        """``name = value`` was read."""
        if (shape := self.shape_of(value, scope)) is not None:
            scope.shapes[name] = shape
        if (static := self._static(value, scope)) is not None:
            scope.statics[name] = static
        elif (known := self.function_of(value, scope)) is not None:
            scope.callables[name] = known

    # Callees

    def callee(self, called: ast.expr, scope: Scope) -> Callee:
        """Find the function that a call of the expression ``called`` enters."""
        match called:
            case ast.Name(id=name) if name in scope.callables:
                return scope.callables[name]
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                return self._inherited(scope.function, name)
            case ast.Name() | ast.Attribute():
                static = self._static(called, scope)
                if isinstance(static, Class):
                    return Construction(static, self._definitions.method(static, "__init__"))
                return self._named(called, scope) if isinstance(called, ast.Name) else self._method(called, scope)
        return None

    def function_of(self, expression: ast.expr, scope: Scope) -> Known | None:
        """The function or bound method that an expression names, if imports or annotations tell."""
        match expression:
            case ast.Name():
                callee = self.callee(expression, scope)
            case ast.Attribute(value=receiver) if self._static(receiver, scope) or self.shape_of(receiver, scope):
                callee = self.callee(expression, scope)
            case _:
                return None
        return callee if isinstance(callee, Known) and not callee.function.is_property else None

    def _static(self, expression: ast.expr, scope: Scope) -> Static | None:
        """The class or module that an expression names."""
        found: object = None
        match expression:
            case ast.Name(id=name) if name in scope.statics:
                return scope.statics[name]
            case ast.Name(id=name) if name not in scope.bound:
                found = self._definitions.member(scope.module, name)
            case ast.Attribute(value=value, attr=name):
                match self._static(value, scope):
                    case ModuleName(name=module):
                        found = self._definitions.member(module, name)
                    case Foreign():
                        found = Foreign(name)
        return found if isinstance(found, Class | ModuleName | Foreign) else None

    def _inherited(self, function: Function, name: str) -> Known | None:
        above = self._definitions.ancestors(function.owner)[1:] if function.owner else []
        found = next((each.methods[name] for each in above if name in each.methods), None)
        return Known(found, is_bound=found.takes_instance) if found else None

    def _named(self, called: ast.Name, scope: Scope) -> Callee:
        meaning = None if called.id in scope.bound else self._definitions.member(scope.module, called.id)
        if isinstance(meaning, Function):
            return Known(meaning)
        if called.id in scope.bound or (isinstance(meaning, Variable) and meaning.annotation is not None):
            return self._object_called(called, scope)
        return _foreign(called.id)

    def _method(self, called: ast.Attribute, scope: Scope) -> Callee:
        name = called.attr
        match self._static(called.value, scope):
            case ModuleName(name=module):
                member = self._definitions.member(module, name)
                return Known(member) if isinstance(member, Function) else _foreign(name)
            case Class() as kind:
                method = self._definitions.method(kind, name)
                return Known(method, is_bound="classmethod" in method.decorators) if method else _foreign(name)
            case Foreign():
                return _foreign(name)
        shape = self.shape_of(called.value, scope)
        if shape is None:
            return self._by_name(called)
        kinds = self._definitions.classes_of(shape)
        methods = [method for kind in kinds if (method := self._definitions.method(kind, name))]
        if methods:
            return self._entered(ast.unparse(called), methods)
        if any(self._attribute_shape(kind, name) for kind in kinds):
            return self._object_called(called, scope)
        return None if kinds or self._definitions.is_foreign(shape) else self._by_name(called)

    def _object_called(self, called: ast.expr, scope: Scope) -> Callee:
        """A call of a value: of an object with ``__call__``, or of a function that came from elsewhere."""
        shape = self.shape_of(called, scope)
        if shape is not None:
            kinds = self._definitions.classes_of(shape)
            methods = [method for kind in kinds if (method := self._definitions.method(kind, "__call__"))]
            if methods:
                return self._entered(ast.unparse(called), methods)
        return Ambiguous(ast.unparse(called), ())

    def _by_name(self, called: ast.Attribute) -> Callee:
        """The class of the object is unknown: its name decides, if there is one function or method of that name."""
        found = self._definitions.functions_by_name.get(called.attr, [])
        found = [each for each in found if not each.is_declaration] or found
        return self._entered(ast.unparse(called), found) if found else _foreign(called.attr)

    def _entered(self, call: str, methods: list[Function]) -> Known | Ambiguous:
        """The one of these methods, or behind them if they are declarations, that a call enters."""
        behind = [
            implementation
            for method in methods
            for implementation in (self._definitions.implementations(method) if method.is_declaration else ())
            or [method]
        ]
        candidates = list(dict.fromkeys(behind))
        if len(candidates) == 1:
            return Known(candidates[0], is_bound=candidates[0].takes_instance)
        return Ambiguous(call, tuple(f"{each.source.path}:{each.title}" for each in candidates))

    # Shapes

    def shape_of(self, expression: ast.expr, scope: Scope) -> Shape | None:
        """Find the annotation of the value of an expression."""
        match expression:
            case ast.Name(id=name):
                return self._shape_of_name(name, scope)
            case ast.Attribute(value=value, attr=name):
                return self._shape_of_attribute(value, name, scope)
            case ast.Call():
                return self._shape_of_call(expression, scope)
            case ast.Subscript(value=value, slice=place):
                shape = self.shape_of(value, scope)
                return shape if shape is None or isinstance(place, ast.Slice) else self._definitions.element_of(shape)
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
                return self.shape_of(one, scope) or self.shape_of(other, scope)
            case ast.Await(value=value) | ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self.shape_of(value, scope)
        display = _DISPLAYS.get(type(expression))
        return Shape(ast.Name(display), scope.module) if display else None

    def element_shape(self, expression: ast.expr, scope: Scope) -> Shape | None:
        """Find the annotation of the values in a container."""
        shape = self.shape_of(expression, scope)
        return None if shape is None else self._definitions.element_of(shape)

    def _shape_of_name(self, name: str, scope: Scope) -> Shape | None:
        if name in scope.shapes or name in scope.bound:
            return scope.shapes.get(name)
        return self._shape_of_variable(self._definitions.member(scope.module, name))

    def _shape_of_variable(self, variable: object) -> Shape | None:
        if not isinstance(variable, Variable):
            return None
        if variable.annotation is not None:
            return Shape(variable.annotation, variable.module)
        match variable.value:
            case ast.Call(func=ast.Name() | ast.Attribute() as called):
                kind = self._definitions.meaning(called, variable.module)
                return kind.shape if isinstance(kind, Class) else None
        return None

    def _shape_of_attribute(self, value: ast.expr, name: str, scope: Scope) -> Shape | None:
        match self._static(value, scope):
            case ModuleName(name=module):
                return self._shape_of_variable(self._definitions.member(module, name))
            case Class() as kind:
                return self._attribute_shape(kind, name)
        shape = self.shape_of(value, scope)
        kinds = [] if shape is None else self._definitions.classes_of(shape)
        return next((found for kind in kinds if (found := self._attribute_shape(kind, name))), None)

    def _attribute_shape(self, kind: Class, name: str) -> Shape | None:
        key = (kind, name)
        if key not in self._attributes:
            # An attribute that is made from itself has no shape.
            self._attributes[key] = None
            found = (self._declared_shape(each, name) for each in self._definitions.ancestors(kind))
            self._attributes[key] = next((each for each in found if each is not None), None)
        return self._attributes[key]

    def _declared_shape(self, kind: Class, name: str) -> Shape | None:
        """Find the annotation of an attribute in the body of a class, or where its methods assign it."""
        if name in kind.attributes:
            return Shape(kind.attributes[name], kind.source.module)
        method = kind.methods.get(name)
        if method is not None:
            returned = method.node.returns if method.node and method.is_property else None
            return Shape(returned, kind.source.module) if returned else None
        for method in kind.methods.values():
            for value, annotation in _assignments(method, name):
                if annotation is not None:
                    return Shape(annotation, kind.source.module)
                if value is not None and (shape := self.shape_of(value, self.scope_of(method))):
                    return shape
        return None

    def _shape_of_call(self, call: ast.Call, scope: Scope) -> Shape | None:
        match call:
            case ast.Call(func=ast.Name(id="cast"), args=[annotation, _]):
                return Shape(annotation, scope.module)
            case ast.Call(func=ast.Name(id=name), args=[argument, *_]) if name in _KEEPS_SHAPE:
                return self.shape_of(argument, scope)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="weakref"), attr="ref"), args=[argument]):
                shape = self.shape_of(argument, scope)
                return shape and Shape(ast.Subscript(ast.Name("ref"), shape.annotation), shape.module)
        match self.callee(call.func, scope):
            case Construction(kind=Class() as kind):
                return kind.shape
            case Construction():
                return Shape(call.func, scope.module)
            case Known(function=function):
                returned = function.node.returns if function.node else None
                if returned is not None and function.owner is not None and ast.unparse(returned) == "Self":
                    return function.owner.shape
                return Shape(returned, function.source.module) if returned else None
        return self._shape_of_foreign_call(call, scope)

    def _shape_of_foreign_call(self, call: ast.Call, scope: Scope) -> Shape | None:
        """The shape that a method of a built-in container gives, a weak reference, or another ``Callable``."""
        shape = self.shape_of(call.func.value, scope) if isinstance(call.func, ast.Attribute) else None
        if shape is not None and isinstance(call.func, ast.Attribute):
            if call.func.attr == "copy":
                return shape
            element = self._definitions.element_of(shape)
            if call.func.attr in _GIVES_ELEMENT:
                return element
            if call.func.attr == "values":
                return element and Shape(ast.Subscript(ast.Name("list"), element.annotation), element.module)
        shape = self.shape_of(call.func, scope)
        return None if shape is None else self._definitions.result_of(shape)


def _foreign(name: str) -> Callee:
    """A callee outside of the tree: a class, which keeps the values that it is given, or a function."""
    is_class = name.lstrip("_")[:1].isupper() or isinstance(getattr(builtins, name, None), type)
    return Construction(None, None) if is_class else None


def _assignments(method: Function, name: str) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """The values and annotations that ``self.name`` is given in a method."""
    for node in ast.walk(method.node) if method.node else ():
        match node:
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=attribute)) if attribute == name:
                yield node.value, node.annotation
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)]) if attribute == name:
                yield node.value, None
