"""Imports point one way: a room imports its own floor or a lower one, no circle is closed, bcrl knows no
bench.

Every way of importing counts: at the top, inside functions, under TYPE_CHECKING, and modules named by a
    string.
"""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "bcrl"
# A room is a file or a folder of src/bcrl. __init__ is the public face and may name everything.
FLOORS = {
    "errors": 0,
    "opening": 0,
    "sealed": 0,
    "conform": 0,
    "writing": 0,
    "salts": 0,
    "options": 0,
    "progress": 0,
    "display": 0,
    "data": 1,
    "policies": 2,
    "estimate": 3,
    "comparison": 3,
    "question": 3,
    "doctor": 3,
    "linear": 4,
    "inference": 5,
    "networks": 6,
    "training": 6,
    "representations": 6,
    "estimators": 7,
    "saved": 7,
    "report": 8,
    "methods": 8,
    "cohorts": 8,
    "scale": 8,
    "next_steps": 9,
    "evaluation": 9,
    "commands": 10,
    "cli": 10,
}
_MODULE = re.compile(r"bcrl(_bench)?(\.\w+)+")


def imports(path: Path) -> set[str]:
    """Modules of bcrl and bcrl_bench that a file names: in any import, or as the whole of a string."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            found.add(node.value)
    return {name for name in found if name.split(".")[0] in ("bcrl", "bcrl_bench")}


def room_of(path: Path, source: Path) -> str:
    return path.relative_to(source).parts[0].removesuffix(".py")


def room_graph(source: Path) -> dict[str, set[tuple[str, str, str]]]:
    """For each room: (other room, file, module named) of everything that it imports from others."""
    graph: dict[str, set[tuple[str, str, str]]] = {}
    for path in sorted(source.rglob("*.py")):
        room = room_of(path, source)
        if room == "__init__":
            continue
        for name in imports(path):
            first, other = name.split(".")[:2]
            if first == "bcrl" and other in FLOORS and other != room:
                graph.setdefault(room, set()).add((other, str(path.relative_to(source)), name))
    return graph


def upward(source: Path) -> list[str]:
    """Every import that points to a higher floor, as text."""
    return sorted(
        f"{file} (floor {FLOORS[room]}) imports {name} (floor {FLOORS[other]})"
        for room, edges in room_graph(source).items()
        for other, file, name in edges
        if FLOORS[other] > FLOORS[room]
    )


def circles(source: Path) -> list[str]:
    """Rooms that reach themselves through imports."""
    graph = {room: {other for other, _, _ in edges} for room, edges in room_graph(source).items()}

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        queue = list(graph.get(start, ()))
        while queue:
            name = queue.pop()
            if name not in seen:
                seen.add(name)
                queue += graph.get(name, ())
        return seen

    return sorted(room for room in graph if room in reach(room))


def test_every_room_has_a_floor_and_every_floor_a_room():
    assert {room_of(path, SOURCE) for path in SOURCE.rglob("*.py")} - {"__init__"} == set(FLOORS)


def test_imports_point_one_way():
    assert upward(SOURCE) == []


def test_no_circles_among_rooms():
    assert circles(SOURCE) == []


def test_the_library_knows_no_bench():
    named = {
        (path.name, name)
        for path in SOURCE.rglob("*.py")
        for name in imports(path)
        if name.startswith("bcrl_bench")
    }
    assert named == set()


def test_files_that_import_each_other_are_found():
    """Within a room too, at the top of the files."""
    graph = {}
    for path in SOURCE.rglob("*.py"):
        name = "bcrl." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        top = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ImportFrom) and n.module]
        graph[name.removesuffix(".__init__")] = {n.module for n in top if n.module.startswith("bcrl.")}
    for name in graph:
        seen, queue = set(), list(graph[name])
        while queue:
            one = queue.pop()
            if one not in seen:
                seen.add(one)
                queue += graph.get(one, ())
        assert name not in seen, name


WAYS = {
    "lazy": "def f():\n    from bcrl.estimators.lspe.method import LSPE\n    return LSPE\n",
    "typing": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import bcrl.estimators.lspe.method\n",
    "string": "from importlib import import_module\nHOME = 'bcrl.estimators.lspe.method'\n",
    "from bcrl": "from bcrl import estimators\n",
}


def test_planted_upward_imports_are_found(tmp_path):
    for number, text in enumerate(WAYS.values()):
        (tmp_path / str(number) / "linear").mkdir(parents=True)
        (tmp_path / str(number) / "linear" / "planted.py").write_text(text)
        (found,) = upward(tmp_path / str(number))
        assert found.startswith("linear/planted.py (floor 4) imports bcrl.estimators")


def test_a_planted_circle_is_found(tmp_path):
    (tmp_path / "linear").mkdir()
    (tmp_path / "linear" / "a.py").write_text("from bcrl.inference.b import x\n")
    (tmp_path / "inference").mkdir()
    (tmp_path / "inference" / "b.py").write_text("def f():\n    from bcrl.linear.a import y\n    return y\n")
    assert circles(tmp_path) == ["inference", "linear"]
