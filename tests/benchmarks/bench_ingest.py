"""Speed of ingest against parsing the same bytes alone, in one run; never part of the tests.

Usage: python tests/benchmarks/bench_ingest.py [--trajectories 20000]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from warehouse.connection import open_warehouse
from warehouse.ingest import ingest_file


def write(path: Path, count: int) -> None:
    """Normalised trajectories of four calls with small arguments and results."""
    with path.open("w") as file:
        for i in range(count):
            steps = [
                {
                    "tool": f"tool_{(i + k) % 200}",
                    "arguments": {"q": f"value {i} {k}"},
                    "observation": f"result {i}",
                }
                for k in range(4)
            ]
            file.write(json.dumps({"id": str(i), "request": f"request {i}", "steps": steps}) + "\n")


def main() -> None:
    """Print a row per way, and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trajectories", type=int, default=20_000)
    count = parser.parse_args().trajectories
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trajectories.jsonl"
        write(path, count)
        times = {}
        started = time.perf_counter()
        for line in path.open("rb"):
            json.loads(line)
        times["json.loads alone"] = time.perf_counter() - started
        with open_warehouse(Path(folder) / "w.duckdb") as con:
            started = time.perf_counter()
            ingest_file(con, path, source="bench", delivery=1)
            times["ingest"] = time.perf_counter() - started
            path.open("a").write("\n")  # other bytes, the same records
            started = time.perf_counter()
            ingest_file(con, path, source="bench", delivery=2)
            times["ingest of known records"] = time.perf_counter() - started
            started = time.perf_counter()
            ingest_file(con, path, source="bench", delivery=3)
            times["ingest of a known file"] = time.perf_counter() - started
    print(f"{count} trajectories, {4 * count} calls")
    for name, seconds in times.items():
        speed, ratio = 4 * count / seconds, seconds / times["json.loads alone"]
        print(f"{name:26} {seconds:8.3f} s  {speed:12,.0f} calls/s  {ratio:6.2f} x json.loads")


if __name__ == "__main__":
    main()
