"""`make bench`: measure every ratio and write results/bench.json.

    python -m bcrl_bench.speed.run [NAME ...]  all of them, or those of these modules (linear, pixels, ...)

Timings on a shared machine are noisy, so each entry is a ratio of our time and a reference's, taken in the
same run.
"""

import datetime
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path

from bcrl.data.storage.folder import write_json
from bcrl_bench.repository import RESULTS, origin

OUT = RESULTS / "bench.json"


def main(names: list[str]) -> None:
    modules = sorted(
        m.name
        for m in pkgutil.iter_modules([str(Path(__file__).parent)])
        if m.name not in ("run", "reference", "clock")
    )
    record = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in names or modules:
        for entry, numbers in importlib.import_module(f"bcrl_bench.speed.{name}").measure().items():
            stamp = {
                "commit": origin()["commit"],
                "date": datetime.date.today().isoformat(),
                "threads": os.cpu_count(),
            }
            record[entry] = numbers | stamp
            times = f"ours {numbers['ours']:.4g}, reference {numbers['reference']:.4g} {numbers['unit']}"
            print(f"{entry}: {numbers['ratio']:.2f}  ({times})")
            write_json(OUT, dict(sorted(record.items())))


if __name__ == "__main__":
    main(sys.argv[1:])
