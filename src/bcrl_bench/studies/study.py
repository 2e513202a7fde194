"""What studies share: rows in a file under results/ that are kept as they come, and a method asked about a
known world.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bcrl.estimate import Estimate
from bcrl.writing import atomic_write
from bcrl_bench.asking import ask
from bcrl_bench.experiments.identity import options_of, same_options
from bcrl_bench.processes import file_lock
from bcrl_bench.repository import RESULTS

Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """Rows in results/<name>.json. What is there is not made again; processes may share a study.

    Attributes:
        name: of the file.
        command: that makes it.
        key: entries of a row that say which one it is.
        method: whose options all rows share; rows of other options are forgotten. None where rows say it
            themselves.
        about: further entries of a new file.
    """

    name: str
    command: str
    key: tuple[str, ...]
    method: Any = None
    about: Mapping[str, Any] | None = None

    def rows(self) -> list[Row]:
        """The rows that are there."""
        return list(self._read()["rows"])

    def run(
        self, wanted: Iterable[tuple[Any, ...]], make: Callable[..., Row], *, again: bool = False
    ) -> list[Row]:
        """Make the rows that are missing (with `again`, all that are wanted); `make` takes a row's key. Gives
        all rows.
        """
        for key in wanted:
            if again or key not in map(self._key, self.rows()):
                row = make(*key)
                self._keep(row)
                print(row, flush=True)
        return self.rows()

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def _keep(self, row: Row) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        with file_lock(RESULTS):
            content = self._read()
            others = [other for other in content["rows"] if self._key(other) != self._key(row)]
            content["rows"] = [*others, row]
            with atomic_write(RESULTS / f"{self.name}.json") as file:
                file.write(_text(content).encode())

    def _read(self) -> dict[str, Any]:
        path = RESULTS / f"{self.name}.json"
        options = {} if self.method is None else {"options": options_of(self.method, pixels=False)}
        fresh = {"command": self.command, **(self.about or {}), **options, "rows": []}
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else fresh
        return kept if not options or same_options(kept["options"], options["options"]) else fresh


def _text(content: Mapping[str, Any]) -> str:
    """JSON with a line for each entry and each row: it differs readably."""
    rows = ",\n".join(json.dumps(row) for row in content["rows"])
    entries = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items() if key != "rows"]
    return "{\n" + "".join(f"{entry},\n" for entry in entries) + f'"rows": [\n{rows}\n]\n' + "}\n"


def ask_world(method: Any, world: Any, dataset: Any, seed: int) -> Estimate:
    """The method's estimate of the world's target policy."""
    asked = ask(method, dataset, {"target": world.target}, discount=world.discount, seed=seed)
    return asked["target"]
