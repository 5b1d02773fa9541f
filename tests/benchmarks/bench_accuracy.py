"""How good the default planner is, beside baselines and peers, on real sets of trajectories.

python tests/benchmarks/bench_accuracy.py [--out FOLDER] [--sets NAME ...] [--seeds 0 1 2]
    [--table] [--ablation] [--missing] [--sweep] [--cold] [--transfer]

Without any of the last it is ``--table``: trains GTool's graph readout once for each set, split and
seed, scores it and all others on the test rows, and once more with the features of each group
silenced. The other studies are the paper's ablation table, its missing-edge curve, a sweep of rho,
lambda and alpha, tools held out of training, and plans on another set than the one trained on.

Every finished run is one line of FOLDER/results.jsonl and is not done again; FOLDER/accuracy.md and
the plots beside it are written anew after each, so an interrupted benchmark goes on where it
stopped. A change of the sources or of the settings makes new runs.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from accuracy_report import CELLS, write_report
from accuracy_runs import Bench
from accuracy_studies import (
    run_ablation,
    run_cold,
    run_missing,
    run_sweep,
    run_table,
    run_transfer,
)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
STUDIES = ("table", "ablation", "missing", "sweep", "cold", "transfer")
MISSING = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]


def setting(text: str) -> tuple[str, Any]:
    """A field of GToolConfig with its value, JSON or a plain word."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(cell.set for cell in CELLS))
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the sets")
    parser.add_argument("--out", type=Path, default=Path("build/accuracy"), help="of results")
    parser.add_argument("--sets", nargs="+", choices=names, default=names)
    splits = list(dict.fromkeys(cell.split for cell in CELLS))
    parser.add_argument("--splits", nargs="+", choices=splits, default=splits, help="of --table")
    for study in STUDIES:
        parser.add_argument(f"--{study}", action="store_true")
    parser.add_argument("--gone", nargs="+", type=float, default=MISSING, help="of --missing, 0..1")
    parser.add_argument("--pair", nargs=2, choices=names, default=["ultratool", "toollinkos"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1, help="more only lose time on busy cores")
    parser.add_argument("--epochs", type=int, help="of each training")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="GToolConfig")
    args = parser.parse_args()
    settings = dict(setting(text) for text in args.set)
    if args.epochs:
        settings["epochs"] = args.epochs
    bench = Bench(args.out, args.data, settings, args.threads)
    wanted = [study for study in STUDIES if getattr(args, study)] or ["table"]
    for seed in args.seeds:
        if "table" in wanted:
            run_table(bench, args.sets, args.splits, seed)
        if "ablation" in wanted:
            run_ablation(bench, args.sets, seed)
        if "missing" in wanted:
            run_missing(bench, args.sets, seed, args.gone)
        if "sweep" in wanted:
            run_sweep(bench, args.sets, seed)
        if "cold" in wanted:
            run_cold(bench, args.sets, seed)
        if "transfer" in wanted:
            run_transfer(bench, tuple(args.pair), seed)
    write_report(bench.records, bench.out)


if __name__ == "__main__":
    main()
