"""Imports point one way: a file imports its own floor or a lower one, and no circle is closed."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "bcrl"
# The first prefix that fits gives the floor; __init__ is the public face and may name everything.
FLOORS = {
    "errors": 0,
    "salts": 0,
    "printing": 0,
    "writing": 0,
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
    "evaluation": 9,
    "scale": 9,
    "commands": 10,
    "cli": 10,
}


def imports(path: Path) -> set[str]:
    """Modules of bcrl that a file imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= (
                {node.module} if node.module != "bcrl" else {f"bcrl.{alias.name}" for alias in node.names}
            )
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("bcrl.")}


def upward(source: Path) -> list[str]:
    """Every import that points to a higher floor, as text."""
    wrong = []
    for path in sorted(source.rglob("*.py")):
        room = path.relative_to(source).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for name in sorted(imports(path)):
            other = name.split(".")[1]
            if other in FLOORS and FLOORS[other] > FLOORS[room]:
                wrong.append(
                    f"{path.relative_to(source)} (floor {FLOORS[room]}) imports {name} (floor {FLOORS[other]})"
                )
    return wrong


def circles(source: Path) -> list[str]:
    """Files that reach themselves through imports at module level."""
    graph: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        name = "bcrl." + ".".join(path.relative_to(source).with_suffix("").parts)
        top = {
            n.module
            for n in ast.parse(path.read_text()).body
            if isinstance(n, ast.ImportFrom) and n.module and n.module.startswith("bcrl.")
        }
        graph[name.removesuffix(".__init__")] = top

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        queue = list(graph.get(start, ()))
        while queue:
            name = queue.pop()
            if name not in seen:
                seen.add(name)
                queue += graph.get(name, ())
        return seen

    return sorted(name for name in graph if name in reach(name))


def test_every_room_has_a_floor():
    rooms = {p.relative_to(SOURCE).parts[0].removesuffix(".py") for p in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms <= set(FLOORS)


def test_imports_point_one_way():
    assert upward(SOURCE) == []


def test_no_circles():
    assert circles(SOURCE) == []


def test_a_planted_upward_import_is_found(tmp_path):
    (tmp_path / "linear").mkdir()
    (tmp_path / "linear" / "planted.py").write_text(
        "def f():\n    from bcrl.estimators.lspe.method import LSPE\n    return LSPE\n"
    )
    assert upward(tmp_path) == ["linear/planted.py (floor 4) imports bcrl.estimators.lspe.method (floor 7)"]


def test_a_planted_circle_is_found(tmp_path):
    (tmp_path / "a.py").write_text("from bcrl.b import x\n")
    (tmp_path / "b.py").write_text("from bcrl.a import y\n")
    assert circles(tmp_path) == ["bcrl.a", "bcrl.b"]
