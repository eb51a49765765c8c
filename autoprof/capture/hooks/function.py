"""Spans in the user's own code: ``span``, ``timed``, ``log_timing``, and functions named in the configuration."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
import wrapt

from ...base.process.replace import Attribute, InCompiler, Replacement
from ...errors import TargetError, nearest
from .. import recorder as recording
from ..handle import Handle
from ..marks.codes import ENTER, LEAVE, LOGGED, RESUME
from ..recorder import Recorder

_compiling = torch.compiler.is_dynamo_compiling  # folded to True in a compiled graph, which then holds no span of ours
Function = TypeVar("Function", bound=Callable[..., Any])

LONGEST_NS: Final = 10**17
"""Three years: a longer duration is an error, and would overflow the columns."""


class span:
    """Time the body of a ``with`` as a span: ``with autoprof.span("Loss/VGG"): …``; free when no session records."""

    __slots__ = ("_code", "_name", "_recorder")

    def __init__(self, name: str) -> None:
        self._name = name
        self._recorder: Recorder | None = None

    def __enter__(self) -> None:
        recorder = self._recorder = None if _compiling() else recording.active
        if recorder is not None:
            self._code = recorder.user_code(self._name)
            recorder.mark(self._code | ENTER)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder = self._recorder
        if recorder is not None:
            recorder.mark(self._code | LEAVE)


def _recording() -> bool:
    return recording.active is not None and not _compiling()


if TYPE_CHECKING:
    _Bound = wrapt.BoundFunctionWrapper[Any, Any]
    _Wrapper = wrapt.FunctionWrapper[Any, Any]
else:
    _Bound, _Wrapper = wrapt.BoundFunctionWrapper, wrapt.FunctionWrapper


class _TimedBound(_Bound):
    """A bound timed method: copied and pickled like any bound method, through its object."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return getattr(copy.deepcopy(self.__self__, memo), self.__name__)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return getattr, (self.__self__, self.__name__)


class _Timed(_Wrapper):
    """A timed function: copied and pickled like functions, by reference, which a plain proxy refuses."""

    __bound_function_wrapper__ = _TimedBound

    def __copy__(self) -> _Timed:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _Timed:
        return self

    def __reduce_ex__(self, protocol: Any) -> str:
        return str(self.__wrapped__.__qualname__)


def timed(name: str) -> Callable[[Function], Function]:
    """Time every call of a function, method, coroutine or generator as a span of this name.

    A generator's or coroutine's span is only the time it runs, not the time it is suspended; it is one call however
    often it is resumed. Signature, binding and introspection stay the function's own (wrapt).
    """

    def decorate(function: Function) -> Function:
        wrapped: Any = _Timed(function, partial(_choose(function), name), enabled=_recording)
        return wrapped  # type: ignore[no-any-return]

    return decorate


def _choose(function: Callable[..., Any]) -> Callable[..., Any]:
    inner = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.iscoroutinefunction(inner):
        return _call_coroutine
    if inspect.isasyncgenfunction(inner):
        raise TargetError(f"{inner.__qualname__} is an asynchronous generator, which cannot be timed")
    if inspect.isgeneratorfunction(inner):
        return _call_generator
    return _call


def _call(name: str, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recorder = recording.active
    if recorder is None:
        return wrapped(*args, **kwargs)
    code = recorder.user_code(name)
    recorder.mark(code | ENTER)
    try:
        return wrapped(*args, **kwargs)
    finally:
        recorder.mark(code | LEAVE)


class _Slices(Generator[Any, Any, Any]):
    """A generator or coroutine whose resumptions are spans; the first one counts as the call."""

    __slots__ = ("_inner", "_kind", "_name")

    def __init__(self, name: str, inner: Any) -> None:
        self._name = name
        self._inner = inner
        self._kind = ENTER

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        return self._run(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._run(self._inner.throw, *error)

    def close(self) -> None:
        self._inner.close()

    def _run(self, resume: Callable[..., Any], *args: Any) -> Any:
        recorder = recording.active
        if recorder is None:
            return resume(*args)
        code = recorder.user_code(self._name)
        recorder.mark(code | self._kind)
        self._kind = RESUME
        try:
            return resume(*args)
        finally:
            recorder.mark(code | LEAVE)


def _generate(slices: _Slices) -> Generator[Any, Any, Any]:
    return (yield from slices)


async def _await(slices: _Slices) -> Any:
    return await slices


def _call_generator(
    name: str, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Generator[Any, Any, Any]:
    return _generate(_Slices(name, wrapped(*args, **kwargs)))


def _call_coroutine(
    name: str, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    return _await(_Slices(name, wrapped(*args, **kwargs)))


def log_timing(name: str, ms: float) -> None:
    """Record a duration in milliseconds that was measured elsewhere.

    It becomes a row outside the step's sum: it may overlap spans that autoprof measured. Nothing happens when no
    session records.
    """
    recorder = recording.active
    if recorder is not None:
        try:
            ns = round(float(ms) * 1e6)
        except (TypeError, ValueError, OverflowError):
            ns = -1
        if 0 <= ns < LONGEST_NS:
            recorder.mark_value(recorder.user_code(name) | LOGGED, ns)
        else:
            recorder.count_failure("log_timing: not a duration")


def probe_function(path: str, name: str, where: str) -> Handle:
    """Time the function at ``package.module:qualified.name``; the handle puts the original back.

    A module that is reloaded meanwhile has a new function, which is neither timed nor changed. Raises ``TargetError``
    when the module cannot be imported, or has no such callable.
    """
    module_name, _, qualified = path.partition(":")
    try:
        owner: Any = importlib.import_module(module_name)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise TargetError(f"{where}: cannot import {module_name!r} ({type(error).__name__}: {error})") from error
    *outer, attribute = qualified.split(".")
    for part in [*outer, attribute]:
        if not hasattr(owner, part):
            raise TargetError(f"{where}: {module_name!r} has no {qualified!r}; {nearest(part, dir(owner))}")
        if part is not attribute:
            owner = getattr(owner, part)
    if not callable(getattr(owner, attribute)):
        raise TargetError(f"{where}: {path!r} is not callable; name a function, method or class")
    handle = Handle()
    place = Attribute(owner, attribute)
    replacement = Replacement(place, lambda function, _listeners: timed(name)(function), in_compiler=InCompiler.PRESENT)
    handle.add(lambda: replacement.release(handle))
    replacement.hold(handle)
    return handle
