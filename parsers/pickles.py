"""Pickles, read without unpickling: their opcodes are interpreted here, and only inert values are built.

Nothing is imported and nothing is called, whatever a pickle asks for: a class is its name, an object its name and its
fields. What a hostile one can waste is bounded: bytes, steps, the length of texts and of lists of numbers. Values
share what the pickle shares and may contain themselves, so nobody should walk one without a limit.
"""

from __future__ import annotations

import mmap
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 30
"""Bytes of a pickle that is read."""

MAX_STEPS = 40_000_000
"""Opcodes that are interpreted; a token's id is one."""

MAX_VALUES = 5_000_000
"""Containers, memo entries and items of containers that are kept in all, and values that wait on the stack at once."""

MAX_TEXT = 1 << 16
"""Characters of a text that are kept."""

MAX_NUMBERS = 64
"""Of a longer list of numbers only so many are kept, and how many there were: token ids are payload."""


class PickleError(ValueError):
    """A file that is no pickle, or one that asks for more than it is given; the text says which."""


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function that a pickle names: `module.qualname`, never looked up."""

    name: str


@dataclass(slots=True, eq=False)
class Object:
    """An object that a pickle describes: what it would be made of, and the fields it would get."""

    name: str
    args: tuple[Any, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)


class Numbers(list[Any]):
    """A list, or what is kept of one that had `size` items."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


@dataclass(slots=True)
class Pickle:
    """What a pickle holds. `damage` says why its end is missing; `values` are then what had been built until there."""

    values: list[Any]
    damage: str | None = None


def load(path: Path) -> Pickle:
    """Read a file. Raises `PickleError`, OSError."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if not size:
            raise PickleError("an empty file, not a pickle")
        if size > MAX_BYTES:
            raise PickleError(f"a pickle of more than {MAX_BYTES >> 20} MiB")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _interpret(view)


def loads(data: bytes) -> Pickle:
    """Read bytes. Raises `PickleError`."""
    return _interpret(BytesIO(data))


def _interpret(stream: Any) -> Pickle:
    machine = _Machine()
    try:
        for steps, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if steps >= MAX_STEPS:
                return Pickle(machine.stack, f"more than {MAX_STEPS:,} steps")
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as problem:
        # genops and the machine's own accesses fail alike on what no pickler writes
        return Pickle(machine.stack, f"{type(problem).__name__}: {problem}"[:200])
    return Pickle(machine.stack[-1:])


class _Machine:
    """The pickle machine: a stack, marks in it, and a memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._left = MAX_VALUES

    def step(self, name: str, argument: Any) -> None:
        """Interpret one opcode. Raises what a broken pickle makes lists and dicts raise."""
        operation = _OPERATIONS.get(name)
        if operation is not None:
            if name not in _FREE:
                self._spend(1)
            operation(self, argument)
        elif name not in _SILENT:
            self.stack.append(_bounded(argument))

    def _spend(self, values: int) -> None:
        """Count what is kept. Raises ValueError where it is too much."""
        self._left -= values
        if self._left < 0 or len(self.stack) > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values")

    def _marked(self) -> list[Any]:
        """What was pushed since the last mark, taken off the stack."""
        start = self._marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def mark(self, _: Any) -> None:
        self._marks.append(len(self.stack))

    def pop(self, _: Any) -> None:
        if self._marks and self._marks[-1] == len(self.stack):
            self._marks.pop()
        else:
            self.stack.pop()

    def pop_mark(self, _: Any) -> None:
        self._marked()

    def dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def put(self, index: Any) -> None:
        self._memo[int(index)] = self.stack[-1]

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def get(self, index: Any) -> None:
        self.stack.append(self._memo[int(index)])

    def collect(self, _: Any) -> None:
        """LIST, TUPLE and FROZENSET of all since the mark."""
        items = self._marked()
        self.stack.append(_extended(Numbers(), items))

    def tuple_of(self, count: int) -> None:
        if count > len(self.stack):
            raise IndexError("stack too short")
        self._spend(count)
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def tuple_marked(self, _: Any) -> None:
        items = self._marked()
        self._spend(len(items))
        self.stack.append(tuple(items))

    def append(self, _: Any) -> None:
        item = self.stack.pop()
        _extend(self.stack[-1], [item])

    def appends(self, _: Any) -> None:
        items = self._marked()
        before = len(self.stack[-1]) if isinstance(self.stack[-1], Numbers) else 0
        _extend(self.stack[-1], items)
        self._spend(len(self.stack[-1]) - before if isinstance(self.stack[-1], Numbers) else 0)

    def set_item(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _update(self.stack[-1], [key, value])

    def set_items(self, _: Any) -> None:
        items = self._marked()
        self._spend(len(items) // 2)
        _update(self.stack[-1], items)

    def dict_of(self, _: Any) -> None:
        items = self._marked()
        self._spend(len(items) // 2)
        self.stack.append({})
        _update(self.stack[-1], items)

    def named(self, argument: Any) -> None:
        """GLOBAL: `module name` in one argument."""
        self.stack.append(Name(".".join(str(argument)[:MAX_TEXT].split(" ", 1))))

    def stack_named(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(Name(f"{module}.{name}" if isinstance(name, str) and isinstance(module, str) else "?"))

    def make(self, _: Any) -> None:
        """REDUCE and NEWOBJ: a callable and its arguments."""
        args, callee = self.stack.pop(), self.stack.pop()
        self.stack.append(_object(callee, args))

    def make_with_names(self, _: Any) -> None:
        self.stack.pop()  # keyword arguments: no class of SGLang's has them
        self.make(_)

    def make_marked(self, _: Any) -> None:
        callee, *args = self._marked()
        self.stack.append(_object(callee, tuple(args)))

    def instance(self, argument: Any) -> None:
        self.named(argument)
        callee = self.stack.pop()
        self.stack.append(_object(callee, tuple(self._marked())))

    def build(self, _: Any) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Object):
            for part in state if isinstance(state, tuple) else (state,):  # __dict__, or __dict__ and __slots__
                if isinstance(part, dict):
                    self.stack[-1].fields.update(part)

    def stacked_persistent(self, _: Any) -> None:
        self.stack[-1] = Object("persistent id")


def _bounded(value: Any) -> Any:
    """A number or a text as it is kept: the beginning of a long one, without lone surrogates."""
    if isinstance(value, str):
        text = value[:MAX_TEXT]
        return text if text.isascii() else text.encode("utf-8", "replace").decode()
    return value[:MAX_TEXT] if isinstance(value, bytes | bytearray) else value


def _extend(target: Any, items: list[Any]) -> None:
    """APPEND to a list; to an object that would be a kind of list there is nothing to add."""
    if isinstance(target, Numbers):
        _extended(target, items)


def _extended(target: Numbers, items: list[Any]) -> Numbers:
    target.size += len(items)
    room = max(0, MAX_NUMBERS - len(target))
    if len(items) <= room:
        target.extend(items)
    else:
        target.extend(items[:room])
        target.extend(item for item in items[room:] if not isinstance(item, int | float))
    return target


def _update(target: Any, items: list[Any]) -> None:
    """Items of a dict, or of an object that would be a kind of dict; keys that are no text say nothing here."""
    into = target.fields if isinstance(target, Object) else target
    if len(items) % 2:
        raise ValueError("a key without a value")
    if isinstance(into, dict):
        into.update((k, v) for k, v in zip(items[::2], items[1::2], strict=True) if isinstance(k, str))


_INDIRECT = frozenset({"copyreg._reconstructor", "copyreg.__newobj__", "copy_reg._reconstructor"})


def _object(callee: Any, args: Any) -> Object:
    """What a call would make, under the name of what would be called or, below protocol 2, of the class asked for."""
    given = tuple(args) if isinstance(args, tuple | Numbers) else ()
    name = callee.name if isinstance(callee, Name) else "?"
    if name in _INDIRECT and given and isinstance(given[0], Name):
        name, given = given[0].name, given[1:]
    return Object(name, given)


_FREE = frozenset("NONE NEWTRUE NEWFALSE GET BINGET LONG_BINGET MARK POP POP_MARK DUP APPENDS SETITEMS".split())
"""Operations that make nothing new, or whose items are counted apart."""

_SILENT = frozenset({"PROTO", "FRAME", "STOP", "READONLY_BUFFER"})

_Operation = Callable[[_Machine, Any], None]


def _push(make: Callable[[], Any]) -> _Operation:
    return lambda machine, _: machine.stack.append(make())


def _take(count: int) -> _Operation:
    return lambda machine, _: machine.tuple_of(count)


_OPERATIONS: dict[str, _Operation] = {
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": _Machine.dup,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "NONE": _push(lambda: None),
    "NEWTRUE": _push(lambda: True),
    "NEWFALSE": _push(lambda: False),
    "EMPTY_LIST": _push(Numbers),
    "EMPTY_SET": _push(Numbers),
    "EMPTY_DICT": _push(dict),
    "EMPTY_TUPLE": _take(0),
    "TUPLE1": _take(1),
    "TUPLE2": _take(2),
    "TUPLE3": _take(3),
    "TUPLE": _Machine.tuple_marked,
    "LIST": _Machine.collect,
    "FROZENSET": _Machine.collect,
    "DICT": _Machine.dict_of,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "ADDITEMS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.named,
    "STACK_GLOBAL": _Machine.stack_named,
    "REDUCE": _Machine.make,
    "NEWOBJ": _Machine.make,
    "NEWOBJ_EX": _Machine.make_with_names,
    "OBJ": _Machine.make_marked,
    "INST": _Machine.instance,
    "BUILD": _Machine.build,
    "PERSID": _push(lambda: Object("persistent id")),
    "BINPERSID": _Machine.stacked_persistent,
    "EXT1": _push(lambda: Name("extension")),
    "EXT2": _push(lambda: Name("extension")),
    "EXT4": _push(lambda: Name("extension")),
    "NEXT_BUFFER": _push(lambda: Object("buffer")),
}
