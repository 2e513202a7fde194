"""Methods by name: the text of a Python call, read without running it.

    fqe      bcrl      LSPE(BellmanComplete.paper())      LSPE(BellmanComplete(dim=64, head=Head(layers=4)))

The same text is a method's repr (`short_call`), so what a report prints can be pasted into the next command.
"""

import ast
import dataclasses
import functools
import hashlib
import inspect
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bcrl import ESTIMATORS, REPRESENTATIONS
from bcrl.errors import BadInput, did_you_mean
from bcrl.options import option

if TYPE_CHECKING:
    from bcrl.estimate import Estimate
    from bcrl.question import Question
    from bcrl.training import Run

SHORT = {
    "auto": "Auto()",
    "bcrl": "LSPE(BellmanComplete())",
    "random": "LSPE(RandomFeatures())",
    "curl": "LSPE(CURL())",
    "spr": "LSPE(SPR())",
    "anchored": "Anchored(RandomFeatures())",
    "consensus": "Consensus()",
    "fqe": "FQE()",
    "is": "ImportanceSampling()",
    "dr": "DoublyRobust()",
    "dice": "FlowDICE()",
    "model": "ModelBased()",
}
# What may stand in a method's text: estimators, representations, and parts of them.
_CLASSES = ESTIMATORS | {k: v for k, v in REPRESENTATIONS.items() if k != "GivenFeatures"}
_CLASSES |= {"BehaviourCloning": "bcrl.estimators.weighting.behaviour"}
_CLASSES |= dict.fromkeys(["Dreamer", "OneStep"], "bcrl.estimators.model_based")
_CLASSES |= {"Lagrangian": "bcrl.estimators.dice.lagrangian"}
_CLASSES |= dict.fromkeys(["Head", "Pixels"], "bcrl.networks")
_CLASSES |= dict.fromkeys(["Flat", "TargetNetwork"], "bcrl.estimators.fqe")
_CLASSES |= dict.fromkeys(
    ["Bounds", "Design", "DoubleSampling", "GradientSteps", "Stopping"],
    "bcrl.representations.bellman_complete",
)


# No method has so many options; what is longer was not meant, and may be nested too deeply to be read.
_LONGEST, _SHOWN = 2_000, 100


class Estimator(Protocol):
    """A method: a frozen dataclass of hyper-parameters with this one public method."""

    def estimate(self, question: "Question", run: "Run") -> "dict[str, Estimate]": ...


def parse_method(text: str) -> Any:  # noqa: ANN401 - any estimator
    """The estimator that a short name or a call describes. Nothing but the known methods can be called."""
    source = SHORT.get(text.strip(), text.strip())
    try:
        tree = ast.parse(source, mode="eval").body if len(source) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        tree = None
    if tree is None:
        raise BadInput(f"Cannot read the method {_shown(text)}. {_hint(text[:_SHOWN])}")
    method = _build(tree, text)
    if hasattr(method, "fit"):
        raise BadInput(f"{_shown(text)} is a representation; put it inside an estimator: LSPE({source}).")
    if not hasattr(method, "estimate"):
        raise BadInput(f"{_shown(text)} is a part of a method, not a method. {_hint(text)}")
    return method


def settings_of(method: object) -> Any:  # noqa: ANN401 - JSON's own types
    """What decides a method's answer, as JSON: its fields by name, those of its parts too.

    Classes of bcrl go without their names, so that renaming one changes nothing; they differ in their fields.
    Classes of others go with theirs. Functions count by their code and what they close over,
    arrays by their bytes, anything else by its text.
    """
    if dataclasses.is_dataclass(method) and not isinstance(method, type):
        own = {f.name: settings_of(getattr(method, f.name)) for f in dataclasses.fields(method)}
        home = type(method).__module__
        return own if home.startswith("bcrl.") else own | {"class": f"{home}.{type(method).__qualname__}"}
    if isinstance(method, tuple | list):
        return [settings_of(part) for part in method]
    if method is None or isinstance(method, bool | int | float | str):
        return method
    if isinstance(method, np.ndarray):
        return hashlib.sha256(repr((method.shape, method.dtype.str)).encode() + method.tobytes()).hexdigest()
    if isinstance(method, functools.partial):
        bound = (method.func, method.args, tuple(sorted(method.keywords.items())))
        return [settings_of(part) for part in bound]
    if isinstance(method, CodeType):
        return [method.co_code.hex(), list(method.co_names), settings_of(method.co_consts)]
    code = getattr(method, "__code__", None)
    if code is None:
        return repr(method)
    cells = [cell.cell_contents for cell in getattr(method, "__closure__", None) or ()]
    inside = tuple(value for value in cells if value is not method)  # a recursive function closes over itself
    return [settings_of(part) for part in (code, inside, getattr(method, "__defaults__", None))]


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _hint(word: str) -> str:
    near = did_you_mean(word, [*SHORT, *_CLASSES])
    return f"Write a name or a call such as LSPE(BellmanComplete(dim=64)). {near}"


def _build(node: ast.expr, text: str) -> Any:  # noqa: ANN401
    if isinstance(node, ast.Name) and node.id in _CLASSES:
        return _class(node.id)()
    if not isinstance(node, ast.Call):
        name = node.id if isinstance(node, ast.Name) else text
        raise BadInput(f"Unknown method {name!r}. {_hint(name)}")
    maker = _maker(node.func, text)
    arguments = [_value(argument, text) for argument in node.args]
    names = [keyword.arg for keyword in node.keywords]
    if None in names or len(set(names)) < len(names):
        raise BadInput(f"{_shown(text)}: write every option once, by its name, as in FQE(steps=1000).")
    options = {str(keyword.arg): _value(keyword.value, text) for keyword in node.keywords}
    signature = inspect.signature(maker)
    unknown = [name for name in options if name not in signature.parameters]
    if unknown:
        raise BadInput(
            f"{_shown(text)} has no option {unknown[0]!r}. {did_you_mean(unknown[0], signature.parameters)}"
        )
    try:
        bound = signature.bind(*arguments, **options)
    except TypeError as error:
        raise BadInput(f"{_shown(text)}: {error}.") from None
    if inspect.ismethod(maker):  # a preset computes with its options before it makes the recipe
        for name, value in bound.arguments.items():
            option(ast.unparse(node.func), name, value, signature.parameters[name].annotation)
    return maker(*bound.args, **bound.kwargs)


def _maker(node: ast.expr, text: str) -> Any:  # noqa: ANN401
    if isinstance(node, ast.Name) and node.id in _CLASSES:
        return _class(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _CLASSES:
        owner = _class(node.value.id)
        presets = [name for name, value in vars(owner).items() if isinstance(value, classmethod)]
        if node.attr in presets:
            return getattr(owner, node.attr)
        raise BadInput(f"{node.value.id} has no preset {node.attr!r}. {did_you_mean(node.attr, presets)}")
    name = ast.unparse(node)
    raise BadInput(f"Unknown method {name!r}. {_hint(name)}")


def _value(node: ast.expr, text: str) -> Any:  # noqa: ANN401
    if isinstance(node, ast.Call) or (isinstance(node, ast.Name) and node.id in _CLASSES):
        return _build(node, text)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise BadInput(
            f"{_shown(text)}: {ast.unparse(node)!r} is no plain value; "
            "write numbers, text, tuples, True, False, None."
        ) from None


def _class(name: str) -> Any:  # noqa: ANN401
    return getattr(import_module(_CLASSES[name]), name)
