"""The Markdown file and the plots of the accuracy benchmark, out of its records alone."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from models.statistics import Interval, bootstrap_mean

METRICS = ("n_f1", "l_f1_adjacent", "l_f1", "ned", "exact")
NAMES = {"n_f1": "n-F1", "l_f1_adjacent": "l-F1", "l_f1": "l-F1 gold", "ned": "NED"}
RULED = ("n_f1", "l_f1_adjacent", "ned")
BASELINES = ("retrieval", "nearest", "popularity", "sgc")
WORST_LOSS = 0.02
"""Of a mean, in the bad direction, that an interval has to exclude."""

MISSING_PLANNERS = ("gtool", "gtool without memory", "sgc")
KINDS = ("catalogue", "past")

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A set under a split, with the goals of the default planner."""

    set: str
    split: str
    goals: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.set}, {self.split}"


def _goals(n_f1: float, l_f1_adjacent: float, ned: float) -> dict[str, float]:
    return {"n_f1": n_f1, "l_f1_adjacent": l_f1_adjacent, "ned": ned}


CELLS = (
    Cell("ultratool", "own", _goals(0.88, 0.70, 0.16)),
    Cell("complexfuncbench", "by-sequence", _goals(0.70, 0.45, 0.33)),
    Cell("toollinkos", "by-sequence", _goals(0.78, 0.65, 0.25)),
    Cell("traject_sequential", "by-sequence", _goals(0.60, 0.40, 0.45)),
    Cell("bfcl_multi_turn", "by-sequence", _goals(0.75, 0.54, 0.28)),
    Cell("nestful", "by-sequence", _goals(0.65, 0.25, 0.48)),
    Cell("toole", "by-tool-set", {"n_f1": 0.67}),  # two tools whose order is not stated
    Cell("ultratool", "by-sequence", _goals(0.74, 0.40, 0.33)),
    Cell("toolbench_runs", "by-sequence", _goals(0.38, 0.10, 0.65)),
    Cell("seal_tools", "own", _goals(0.50, 0.20, 0.55)),
)


def write_report(records: Sequence[Record], out: Path) -> None:
    """Write ``accuracy.md`` and its plots into a folder."""
    if not records:
        return
    lines = ["# How good the plans are", "", *_surroundings(records)]
    table = latest(records, "table")
    lines += _table(table, out)
    lines += _ablation(latest(records, "ablation"), out)
    lines += _missing(latest(records, "missing"), out)
    lines += _sweep(latest(records, "sweep"))
    lines += _cold(latest(records, "cold"), table)
    lines += _transfer(latest(records, "transfer"), table)
    (out / "accuracy.md").write_text("\n".join(lines) + "\n")


def latest(records: Sequence[Record], study: str) -> list[Record]:
    """The last run of each kind in a study, with the settings that its last run had."""
    mine = [record for record in records if record["study"] == study]
    if not mine:
        return []
    base = mine[-1]["base"]
    found = {
        (r["set"], r["split"], r.get("variant", ""), r["seed"]): r
        for r in mine
        if r["base"] == base
    }
    return [found[key] for key in sorted(found)]


def _surroundings(records: Sequence[Record]) -> list[str]:
    """Where the numbers come from."""

    def seen(name: str) -> str:
        return "; ".join(dict.fromkeys(str(record[name]) for record in records))

    versions = records[-1]["versions"]
    tests: defaultdict[str, int] = defaultdict(int)
    for record in records:
        tests[record["study"]] += record["evaluations"]
    spent = ", ".join(f"{number} in `{study}`" for study, number in tests.items())
    return [
        "`make bench-accuracy` writes this file from `results.jsonl` beside it, one line a run.",
        "Metrics are strict: multiset F1 of tools (n-F1), of adjacent pairs (l-F1), of gold links "
        "where the set states any (l-F1 gold), normalised edit distance (NED, lower is better). "
        "Graphs are mined from the rows that are not test; rows with a tool outside the catalogue "
        "are dropped and counted.",
        "",
        f"- runs {records[0]['at'][:16]} to {records[-1]['at'][:16]} UTC, code {seen('code')}",
        f"- {', '.join(f'{name} {number}' for name, number in versions.items())}",
        f"- {seen('machine')}",
        f"- test rows were scored {sum(tests.values())} times ({spent}), baselines, peers and "
        "silenced planners included; a training chooses on its validation rows alone",
        "",
    ]


def _table(records: list[Record], out: Path) -> list[str]:
    """The main table: goals, all planners, the rule, and what carried the plans."""
    if not records:
        return []
    by_cell: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        by_cell[record["set"], record["split"]].append(record)
    cells = [(cell, by_cell[cell.set, cell.split]) for cell in CELLS]
    cells = [(cell, runs) for cell, runs in cells if runs]
    seeds = sorted({record["seed"] for record in records})
    base = records[-1]["base"]
    changed = ", ".join(f"{name} = {value}" for name, value in base.items()) or "none"
    _plot_cells(cells, out)
    return [
        "## The default planner and its goals",
        "",
        f"Seeds {', '.join(map(str, seeds))}; means over them, ± standard deviation. Where a set "
        "ships its own split, the seeds are those of the training; elsewhere of split and training "
        f"alike. Changed settings: {changed}.",
        "",
        *_goal_table(cells),
        "",
        "![n-F1](accuracy.png)",
        "",
        "## Beside baselines and peers",
        "",
        "n-F1 / l-F1 / NED. `sgc` and `sage` are GNN4TaskPlan's selections without an LLM, "
        "`bm25-walk` walks the dependencies that the set declares and its gold was made of.",
        "",
        *_planner_table(cells),
        "",
        "## Never worse than a baseline",
        "",
        "Difference of the default planner to the best baseline of the metric "
        f"({', '.join(BASELINES)}), and to the best peer: paired 95 % bootstrap interval over the "
        "test rows of all seeds, drawn by tool sequence (by row where the set ships its split). "
        f"It holds where the interval excludes a loss of more than {WORST_LOSS}.",
        "",
        *_rule_table(cells),
        "",
        "## Which part carries the plans",
        "",
        "n-F1 / l-F1 that the trained planner loses when what one group of features says of the "
        "candidates is put to their mean at planning time; `states` is the part that GRU and graph "
        "encoder point with.",
        "",
        *_part_table(cells),
        "",
    ]


def _goal_table(cells: Sequence[tuple[Cell, list[Record]]]) -> list[str]:
    rows = []
    for cell, runs in cells:
        parts = [
            f"{statistics.fmean(run['rows'].get(part, 0) for run in runs):.0f}"
            for part in ("train", "validation", "test")
        ]
        dropped = [sum(run["dropped"].values()) for run in runs]
        unseen = statistics.fmean(run["unseen"] for run in runs)
        values = {m: [np.mean(run["planners"]["gtool"][m]) for run in runs] for m in METRICS}
        shown, met = [], 0
        for metric in RULED:
            goal = cell.goals.get(metric)
            if goal is None:
                shown.append("–")
                continue
            value = statistics.fmean(values[metric])
            good = value <= goal if metric == "ned" else value >= goal
            met += good
            shown.append(f"{spread(values[metric])} ({goal:.2f} {'met' if good else 'missed'})")
        gold = all(run["has_links"] for run in runs)
        ordered = cell.split != "by-tool-set"
        shown.append(spread(values["l_f1"]) if gold else "–")
        shown.append(spread(values["exact"]) if ordered else "–")
        rows.append(
            [
                cell.name,
                f"{runs[0]['tools']:,}",
                " / ".join(parts),
                f"{statistics.fmean(dropped):.0f}",
                f"{unseen:.0%}" if ordered else "–",
                *shown,
                f"{met} of {len(cell.goals)}",
                f"{statistics.fmean(run['train_s'] for run in runs):.0f} s",
            ]
        )
    head = ["set, split", "tools", "train / validation / test", "dropped", "unseen pairs"]
    head += [
        "n-F1 (goal)",
        "l-F1 (goal)",
        "NED (goal)",
        "l-F1 gold",
        "exact",
        "goals",
        "trained in",
    ]
    return markdown(head, rows)


def _planner_table(cells: Sequence[tuple[Cell, list[Record]]]) -> list[str]:
    names = list(dict.fromkeys(n for _, runs in cells for run in runs for n in run["planners"]))
    rows = []
    for cell, runs in cells:
        row = [cell.name]
        for name in names:
            found = [run["planners"][name] for run in runs if name in run["planners"]]
            shown = [
                f"{statistics.fmean(np.mean(scores[m]) for scores in found):.3f}"
                for m in RULED
                if found and m in cell.goals
            ]
            row.append(" / ".join(shown) or "–")
        rows.append(row)
    return markdown(["set, split", *names], rows)


def _rule_table(cells: Sequence[tuple[Cell, list[Record]]]) -> list[str]:
    rows = []
    for cell, runs in cells:
        names = [name for name in runs[0]["planners"] if name != "gtool"]
        peers = [name for name in names if name not in BASELINES]
        row = [cell.name]
        holds = True
        for metric in RULED:
            if metric not in cell.goals:
                row.append("–")
                continue
            best = best_of(runs, [n for n in names if n in BASELINES], metric)
            interval = difference(runs, best, metric)
            fine = not_worse(interval, metric)
            holds &= fine
            row.append(f"{signed(interval)} {best}{'' if fine else ', **not excluded**'}")
        row.append("holds" if holds else "**does not hold**")
        if peers:
            best = best_of(runs, peers, "n_f1")
            row.append(f"{signed(difference(runs, best, 'n_f1'))} {best}")
        else:
            row.append("–")
        rows.append(row)
    ruled = [f"{NAMES[metric]} to best baseline" for metric in RULED]
    return markdown(["set, split", *ruled, "rule", "n-F1 to best peer"], rows)


def _part_table(cells: Sequence[tuple[Cell, list[Record]]]) -> list[str]:
    groups = list(dict.fromkeys(g for _, runs in cells for run in runs for g in run["silenced"]))
    rows = []
    for cell, runs in cells:
        lost: dict[str, list[float]] = {}
        for group in groups:
            lost[group] = [
                statistics.fmean(
                    np.mean(run["planners"]["gtool"][metric]) - run["silenced"][group][metric]
                    for run in runs
                )
                for metric in ("n_f1", "l_f1_adjacent")
                if metric in cell.goals
            ]
        most = max(groups, key=lambda group: lost[group][0])
        shown = [" / ".join(f"{value:+.3f}" for value in lost[group]) for group in groups]
        rows.append([cell.name, *shown, f"{most}: without it n-F1 falls by {lost[most][0]:.3f}"])
    return markdown(["set, split", *groups, "carried by"], rows)


def _by(records: Sequence[Record], *names: str) -> dict[Any, list[Record]]:
    """Records by what these fields say, in order of appearance."""
    found: defaultdict[Any, list[Record]] = defaultdict(list)
    for record in records:
        found[tuple(record[name] for name in names)].append(record)
    return dict(found)


def _shown(runs: Sequence[Record], name: str, metrics: Sequence[str] = RULED) -> str:
    """Means over seeds with their spread; a dash where no run has the planner."""
    found = [run["planners"][name] for run in runs if name in run["planners"]]
    if not found:
        return "–"
    return " / ".join(spread([np.mean(scores[metric]) for scores in found]) for metric in metrics)


def _ablation(records: list[Record], out: Path) -> list[str]:
    if not records:
        return []
    rows = []
    for (name, split, variant), runs in _by(records, "set", "split", "variant").items():
        full = {
            r["seed"]: r
            for r in records
            if (r["set"], r["split"], r["variant"]) == (name, split, "full")
        }
        pairs = [(run, full[run["seed"]]) for run in runs if run["seed"] in full]
        change = "–"
        if pairs and variant != "full":
            gap = [_pooled([a], "gtool", "n_f1") - _pooled([b], "gtool", "n_f1") for a, b in pairs]
            change = signed(paired(np.concatenate(gap), [g for a, _ in pairs for g in a["groups"]]))
        rows.append([f"{name}, {split}", variant, _shown(runs, "gtool"), change])
    rows.sort(key=lambda row: (row[0], row[1] != "full", row[1]))
    _plot_ablation(records, out)
    return [
        "## Ablation of the graph readout",
        "",
        f"Seeds {_seeds(records)}; n-F1 / l-F1 / NED, and n-F1 minus that of `full` with its "
        "paired 95 % interval. The request memory stays in all of them.",
        "",
        *markdown(["set, split", "variant", "n-F1 / l-F1 / NED", "n-F1 to full"], rows),
        "",
        "![ablation](ablation.png)",
        "",
    ]


def _missing(records: list[Record], out: Path) -> list[str]:
    if not records:
        return []
    rows = [
        [
            f"{name}, {split}",
            f"{float(variant):.0%}",
            f"{statistics.fmean(run['edges'] for run in runs):.0f}",
            *(_shown(runs, planner, ("n_f1", "l_f1_adjacent")) for planner in MISSING_PLANNERS),
        ]
        for (name, split, variant), runs in _by(records, "set", "split", "variant").items()
    ]
    _plot_missing(records, out)
    return [
        "## Missing edges",
        "",
        f"Seeds {_seeds(records)}; n-F1 / l-F1 where a random share of the mined edges is gone "
        "from the graph, in training and in use alike. Past plans, which the memory recalls, stay; "
        "`gtool without memory` plans with those features silenced.",
        "",
        *markdown(["set, split", "gone", "edges left", *MISSING_PLANNERS], rows),
        "",
        "![missing edges](missing.png)",
        "",
    ]


def _sweep(records: list[Record]) -> list[str]:
    if not records:
        return []
    names = list(dict.fromkeys(r["variant"].split(" = ")[0] for r in records))
    rows = []
    for (variant,), runs in _by(records, "variant").items():
        aucs = [run["mdpl_auc"] for run in runs if run["mdpl_auc"] is not None]
        shown = [
            spread([run["validation"][metric] for run in runs])
            for metric in ("n_f1", "l_f1", "ned")
        ]
        default = " (default)" if runs[0]["is_default"] else ""
        rows.append([variant + default, *shown, spread(aucs) if aucs else "–"])
    rows.sort(key=lambda row: (names.index(row[0].split(" = ")[0]), float(row[0].split()[2])))
    first = records[0]
    return [
        "## Sweep of missing-dependency prediction",
        "",
        f"{first['set']}, {first['split']}, seeds {_seeds(records)}, on validation rows; "
        "`mask_rate` is the paper's rho, `mdpl_weight` lambda, `mdpl_pairs` alpha.",
        "",
        *markdown(["value", "n-F1", "l-F1", "NED", "AUC of hidden edges"], rows),
        "",
    ]


def _cold(records: list[Record], table: Sequence[Record]) -> list[str]:
    if not records:
        return []
    planners = list(dict.fromkeys(name for record in records for name in record["planners"]))
    rows = []
    for (name, split, variant), runs in _by(records, "set", "split", "variant").items():
        known = [_same_rows(run, table) for run in runs]
        trained = spread([v for v in known if v is not None]) if any(known) else "–"
        rows.append(
            [
                f"{name}, {split}",
                variant,
                f"{statistics.fmean(run['cold_tools'] for run in runs):.0f}",
                f"{statistics.fmean(len(run['ids']) for run in runs):.0f}",
                *(_shown(runs, planner, ("recall", "n_f1")) for planner in planners),
                trained,
                spread([run["rest"]["n_f1"] for run in runs]),
            ]
        )
    head = ["set, split", "cold tools are", "cold tools", "test rows that need one"]
    head += [f"{planner}: recall / n-F1" for planner in planners]
    head += ["trained on them: n-F1", "gtool on the other rows: n-F1"]
    return [
        "## Tools without a past",
        "",
        f"Seeds {_seeds(records)}. A tenth of the tools is held out: no training row and no edge "
        "has one. `listed`: the training has them in its catalogue; `added`: they join the trained "
        "planner's graph afterwards, without retraining. Recall is that of the held-out tools.",
        "",
        *markdown(head, rows),
        "",
    ]


def _transfer(records: list[Record], table: Sequence[Record]) -> list[str]:
    if not records:
        return []
    rows = []
    for (name, split), runs in _by(records, "set", "split").items():
        source = runs[0]["variant"].split(", ")[0]
        kinds = {kind: [r for r in runs if r["variant"].endswith(f", {kind}")] for kind in KINDS}
        own = [r for r in table if (r["set"], r["split"]) == (name, split)]
        rows.append(
            [
                f"{source} to {name}",
                *(_shown(part, "gtool") for part in kinds.values()),
                *(_shown(kinds["past"], other) for other in ("retrieval", "nearest")),
                _shown(own, "gtool"),
            ]
        )
    head = ["trained on, plans on", "catalogue alone", "with the set's past rows"]
    return [
        "## Transfer to other tools",
        "",
        f"Seeds {_seeds(records)}; n-F1 / l-F1 / NED. The weights are those of the first set. "
        "`catalogue alone`: names and descriptions of the second set; `with the set's past rows`: "
        "also its mined graph and its rows in the memory, nothing learnt from them.",
        "",
        *markdown([*head, "retrieval", "nearest", "trained on it"], rows),
        "",
    ]


def _same_rows(run: Record, table: Sequence[Record]) -> float | None:
    """n-F1 of the planner that had all evidence, on the rows of a run."""
    for other in table:
        if all(other[name] == run[name] for name in ("set", "split", "seed")):
            value = dict(zip(other["ids"], other["planners"]["gtool"]["n_f1"], strict=True))
            return statistics.fmean(value[row] for row in run["ids"])
    return None


def _seeds(records: Sequence[Record]) -> str:
    return ", ".join(map(str, sorted({record["seed"] for record in records})))


def best_of(runs: Sequence[Record], names: Iterable[str], metric: str) -> str:
    """The planner with the best mean over all runs."""
    sign = -1.0 if metric == "ned" else 1.0
    return max(names, key=lambda name: sign * float(_pooled(runs, name, metric).mean()))


def difference(runs: Sequence[Record], other: str, metric: str) -> Interval:
    """Mean of the default planner minus another's, over the rows of all runs."""
    gap = _pooled(runs, "gtool", metric) - _pooled(runs, other, metric)
    return paired(gap, [group for run in runs for group in run["groups"]])


def paired(gap: Any, groups: Sequence[str]) -> Interval:
    """Mean of differences by row with its interval.

    Whole groups are drawn: rows of one tool sequence stand or fall together, and so do the runs
    that had the same row in their test.
    """
    _, place = np.unique(groups, return_inverse=True)
    size = np.bincount(place).astype(np.float64)
    return bootstrap_mean(np.bincount(place, gap) / size, weights=size)


def not_worse(interval: Interval, metric: str) -> bool:
    """Whether an interval excludes a loss of more than ``WORST_LOSS``."""
    return interval.high < WORST_LOSS if metric == "ned" else interval.low > -WORST_LOSS


def _pooled(runs: Sequence[Record], name: str, metric: str) -> Any:
    return np.concatenate([run["planners"][name][metric] for run in runs])


def signed(interval: Interval) -> str:
    """A difference with its interval."""
    return f"{interval.mean:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds."""
    mean = f"{statistics.fmean(values):.3f}"
    return f"{mean} ±{statistics.stdev(values):.3f}" if len(values) > 1 else mean


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _plot_cells(cells: Sequence[tuple[Cell, list[Record]]], out: Path) -> None:
    """The default planner's n-F1 beside the best baseline and the goal."""
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.42 * len(cells)))
    height = np.arange(len(cells))[::-1]
    best, ours, goal = [], [], []
    for cell, runs in cells:
        names = [name for name in runs[0]["planners"] if name in BASELINES]
        best.append(_pooled(runs, best_of(runs, names, "n_f1"), "n_f1").mean())
        ours.append(_pooled(runs, "gtool", "n_f1").mean())
        goal.append(cell.goals["n_f1"])
    axes.hlines(height, best, ours, color="0.75", linewidth=2, zorder=1)
    axes.scatter(best, height, color="0.45", label="best baseline", zorder=2)
    axes.scatter(ours, height, color="#1f5fa8", label="gtool", zorder=3)
    axes.scatter(goal, height, color="#c0392b", marker="|", s=160, label="goal", zorder=2)
    axes.set_yticks(height, [cell.name for cell, _ in cells])
    axes.set_xlim(0, 1)
    axes.set_xlabel("n-F1 on test rows")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    save(figure, out / "accuracy")


def _plot_ablation(records: Sequence[Record], out: Path) -> None:
    """n-F1 of each variant, one panel a set; a bar ends at one standard deviation over seeds."""
    sets = _by(records, "set", "split")
    figure, panels = plt.subplots(1, len(sets), figsize=(5 * len(sets), 2.6), squeeze=False)
    for axes, ((name, split), mine) in zip(panels[0], sets.items(), strict=True):
        variants = sorted(_by(mine, "variant").items(), key=lambda one: one[0] != ("full",))
        values = [[np.mean(r["planners"]["gtool"]["n_f1"]) for r in runs] for _, runs in variants]
        place = np.arange(len(variants))[::-1]
        mean, deviation = [np.mean(v) for v in values], [np.std(v) for v in values]
        axes.errorbar(mean, place, xerr=deviation, fmt="o", color="#1f5fa8", capsize=3)
        axes.set_yticks(place, [variant.replace("_", " ") for (variant,), _ in variants])
        axes.set_title(f"{name}, {split}", fontsize=10)
        axes.set_xlabel("n-F1 on test rows")
    figure.tight_layout()
    save(figure, out / "ablation")


def _plot_missing(records: Sequence[Record], out: Path) -> None:
    """n-F1 and l-F1 by the share of edges gone, one panel a set and metric."""
    sets = _by(records, "set", "split")
    figure, panels = plt.subplots(2, len(sets), figsize=(5 * len(sets), 5.5), squeeze=False)
    colours = dict(zip(MISSING_PLANNERS, ("#1f5fa8", "#7fb0de", "0.5"), strict=True))
    for column, ((name, split), mine) in enumerate(sets.items()):
        for axes, metric in zip(panels[:, column], ("n_f1", "l_f1_adjacent"), strict=True):
            for planner, colour in colours.items():
                points = [
                    (float(gone), [np.mean(run["planners"][planner][metric]) for run in runs])
                    for (gone,), runs in _by(mine, "variant").items()
                ]
                x, mean = [100 * p for p, _ in points], [np.mean(v) for _, v in points]
                deviation = [np.std(v) for _, v in points]
                style = {"color": colour, "label": planner, "capsize": 3}
                axes.errorbar(x, mean, yerr=deviation, marker="o", **style)
            axes.set_ylabel(f"{NAMES[metric]} on test rows")
            axes.set_ylim(bottom=0)
        panels[0, column].set_title(f"{name}, {split}", fontsize=10)
        panels[1, column].set_xlabel("mined edges gone, %")
    panels[0, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.tight_layout()
    save(figure, out / "missing")


def save(figure: Any, path: Path) -> None:
    """As PNG and SVG, the same bytes for the same numbers."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
    with matplotlib.rc_context({"svg.hashsalt": path.name}):
        for kind in ("png", "svg"):
            figure.savefig(
                path.with_suffix(f".{kind}"),
                bbox_inches="tight",
                dpi=150,
                metadata={"Date": None} if kind == "svg" else None,
            )
    plt.close(figure)
