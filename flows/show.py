"""What a person sees: tables and sentences on standard output, made of what ``--json`` prints."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 120
_METRICS = (("n_f1", "n-F1"), ("l_f1", "l-F1"), ("ned", "NED"), ("exact", "exact"))


def _out() -> Console:
    """Standard output; a pipe has no width of its own, so it gets enough for the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [[_cell(value) for value in row] for row in rows]
    for i, column in enumerate(columns):
        numeric = bool(cells) and all(_is_number(row[i]) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    out = _out()
    out.print(Text(title, style="bold"))
    out.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("-", "").replace("%", "").isdigit() or text == "-"


def _say(text: str) -> None:
    _out().print(Text(text))


def record(value: Mapping[str, Any]) -> None:
    """Any flat object, a line a field."""
    for name, item in value.items():
        _say(f"{name}: {_cell(item)}")


def ingest(value: Mapping[str, Any]) -> None:
    """Files read, with counts, then what each format lacked."""
    read = [f for f in value["files"] if not f.get("skipped")]
    _table(
        "Read",
        ("file", "format", "trajectories", "new", "updated", "duplicate", "calls", "statuses",
         "tools", "set aside"),
        [
            (
                f["path"].rsplit("/", 1)[-1], f["format"], f["trajectories"]["read"],
                f["trajectories"]["new"], f["trajectories"]["updated"],
                f["trajectories"]["duplicate"], f["calls"]["read"],
                ", ".join(f"{count} {status}" for status, count in f["statuses"].items()),
                f["tools"]["read"], f["quarantined"],
            )
            for f in read
        ],
    )  # fmt: skip
    lacks: dict[tuple[str, str], list[str]] = {}
    for file in read:
        if file["losses"]:
            name = file["path"].rsplit("/", 1)[-1]
            lacks.setdefault((file["format"], ", ".join(file["losses"])), []).append(name)
    for (format, losses), files in lacks.items():
        _say(f"{format} without {losses}: {_some(files)}")
    for file in value["files"]:
        if file.get("skipped"):
            _say(f"skipped {file['path'].rsplit('/', 1)[-1]}: {file['skipped']}")
    redacted = sum(file.get("redacted", 0) for file in read)
    if redacted:
        _say(f"secrets were taken out of {redacted} texts")


def quarantine(value: Mapping[str, Any]) -> None:
    """Quarantined records."""
    _table(
        "Quarantine",
        ("id", "source", "place", "format", "reason"),
        [
            (r["id"], r["source"], r["place"], r["format"], r["reason"])
            for r in value["quarantined"]
        ],
    )


def sync(value: Mapping[str, Any]) -> None:
    """What a catalogue sync changed."""
    _say(
        f"{value['namespace']}: {value['tools']} tools, added {len(value['added'])}, removed "
        f"{len(value['removed'])}"
    )
    for kind in ("returned", "deprecated"):
        if value[kind]:
            _say(f"{kind}: {_some(value[kind])}")
    for kind, names in value["changed"].items():
        if names:
            _say(f"changed {kind}: {len(names)}, {_some(names)}")
    for old, new in value["renamed"]:
        _say(f"{old} has the contract of {new}: perhaps a rename")
    for note in value["notes"]:
        _say(note)


def catalogue_diff(value: Mapping[str, Any]) -> None:
    """Two states of catalogues compared."""
    _say(f"from {value['from']} to {value['to']}")
    for kind in ("added", "removed", "deprecated"):
        if value[kind]:
            _say(f"{kind}: {len(value[kind])}, {_some(value[kind])}")
    for kind, names in value["changed"].items():
        if names:
            _say(f"changed {kind}: {len(names)}, {_some(names)}")
    if value["likely_renames"]:
        _table(
            "Likely renames (toolatlas catalogue rename OLD NEW makes one)",
            ("old", "new", "score", "evidence"),
            [
                (
                    r["old"],
                    r["new"],
                    r["score"],
                    ", ".join(
                        name if likeness is True else f"{name} {likeness:.2f}"
                        for name, likeness in r["evidence"].items()
                        if likeness
                    ),
                )
                for r in value["likely_renames"]
            ],
        )


def renamed(value: Mapping[str, Any]) -> None:
    """A rename made or taken back."""
    if value["undone"]:
        _say(f"{value['new']} is itself again, no longer {value['old']}")
    else:
        _say(f"{value['old']} now stands for {value['new']}")
    _say(f"goes along: {value['calls']} calls, {value['suite_rows']} gold plans")


def tools(value: Mapping[str, Any]) -> None:
    """The catalogue."""
    _table(
        "Tools",
        ("tool", "status", "calls", "failed", "nearest listed"),
        [
            (
                f"{t['namespace']}/{t['name']}",
                t["status"],
                t["calls"],
                t["failed"],
                t.get("nearest"),
            )
            for t in value["tools"]
        ],
    )
    for name in value["ambiguous"]:
        _say(
            f"ambiguous: {name['namespace']}/{name['name']} ({name['calls']} calls) fits "
            f"{', '.join(name['fits'])}"
        )
    for alias in value["likely_aliases"]:
        _say(f"likely one tool in {alias['namespace']}: {', '.join(alias['names'])}")
    for alias in value["renamed"]:
        _say(f"{alias['old']} now stands for {alias['new']}")


def graph(value: Mapping[str, Any]) -> None:
    """A graph version in one line."""
    news = "new version" if value["new"] else "nothing changed, same version"
    if value["held"]:
        news = f"not the latest, since a rollback holds another: {news}"
    _say(f"{news} {value['version'][:12]}: {value['nodes']} tools, {value['edges']} edges")


def graphs(value: Mapping[str, Any]) -> None:
    """All versions."""
    _table(
        "Graph versions",
        ("version", "parent", "tools", "edges", "trajectories", "data up to", "built at (UTC)", ""),
        [
            (
                v["version"][:12], v["parent"] and v["parent"][:12], v["nodes"], v["edges"],
                v["mark"]["trajectories"], v["mark"]["last"], v["built_at"][:19],
                "latest, held" if v["held"] else "latest" if v["is_latest"] else "",
            )
            for v in value["versions"]
        ],
    )  # fmt: skip


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"


def diff(value: Mapping[str, Any]) -> None:
    """What changed between two versions."""
    tools, edges = value["tools"], value["edges"]
    _say(
        f"tools: {len(tools['added'])} added, {len(tools['removed'])} removed, "
        f"{len(tools['changed'])} changed"
    )
    for kind in ("added", "removed", "changed"):
        if tools[kind]:
            _say(f"  {kind}: {_some(tools[kind])}")
    if tools["renamed"]:
        _say(f"  renamed: {_some([f'{old} -> {new}' for old, new in tools['renamed']])}")
    _say(
        f"edges: {len(edges['added'])} added, {len(edges['removed'])} removed, "
        f"{len(edges['strengthened'])} strengthened, {len(edges['weakened'])} weakened"
    )
    for kind in ("added", "removed"):
        if edges[kind]:
            _say(f"  {kind}: {_some([f'{e[0]} -> {e[1]}' for e in edges[kind]])}")


def suites(value: Mapping[str, Any]) -> None:
    """Suites and what they lack."""
    _table(
        "Suites",
        ("suite", "version", "requests", "later held-out rows"),
        [(s["suite"], s["version"], s["rows"], s["waiting"]) for s in value["suites"]],
    )


def suite(value: Mapping[str, Any]) -> None:
    """One suite."""
    _table(
        f"{value['suite']} version {value['version']}",
        ("request", "gold plan"),
        [(r["request"][:100], [t.split("/", 1)[1] for t in r["tools"]]) for r in value["requests"]],
    )


def trained(value: Mapping[str, Any]) -> None:
    """Whether a training ran, and why."""
    if value["trained"]:
        took = f"trained version {value['version']} in {value['train_seconds']:.0f} s"
        _say(f"{took}: {value['train_reason']}")
    else:
        _say(f"not trained: {value['train_reason']}")


def evaluation(value: Mapping[str, Any]) -> None:
    """One planner on one suite."""
    if "not_applicable" in value:
        _say(f"{value['planner']} on {value['suite']}: not applicable, {value['not_applicable']}.")
        return
    _table(
        f"{value['planner']} on {value['suite']}, {value['n']} requests, {value['convention']}",
        ("metric", "mean", "interval"),
        [
            (label, value[name], "{:.3f} to {:.3f}".format(*value["ci"][name]))
            for name, label in _METRICS
        ],
    )
    took = value["ms_per_request"]
    if took:
        _say(f"one request: {took['p50']:.1f} ms in the middle, {took['p95']:.1f} ms at 95 %")


def planners(title: str, by_planner: Mapping[str, Mapping[str, float]]) -> None:
    """Planners side by side."""
    _table(
        title,
        ("planner", *(label for _, label in _METRICS)),
        [(name, *(scores[key] for key, _ in _METRICS)) for name, scores in by_planner.items()],
    )


def report(value: Mapping[str, Any]) -> None:
    """A regression report."""
    for name, by_planner in value["suites"].items():
        mark = ", decides" if name == value["suite"] else ""
        count = value.get("requests", {}).get(name)
        planners(f"{name}{f', {count} requests' if count else ''}{mark}", by_planner)
        for planner, n in value.get("measured", {}).get(name, {}).items():
            if n != count:
                _say(f"{planner} was measured on {n} of the {count} requests.")
        for planner, reason in value.get("not_applicable", {}).get(name, {}).items():
            _say(f"{planner}: not applicable, {reason}.")
    _say("n-F1, l-F1, exact: higher is better. NED: lower is better.")
    decision(value)


def decision(value: Mapping[str, Any]) -> None:
    """The verdict with its reasons."""
    _say(f"Decision: {value['decision']}")
    for reason in value["reasons"]:
        _say(f"  - {reason}")


def promotion(value: Mapping[str, Any]) -> None:
    """What happened to the champion."""
    if value.get("report"):
        decision(value["report"])
    if value["promoted"]:
        _say(f"version {value['champion']} is champion (before: {value['previous'] or 'none'})")
    else:
        _say(f"champion stays: {value['champion'] or 'none'}")


def plans(value: Mapping[str, Any]) -> None:
    """Ranked plans."""
    _table(
        "Plans",
        ("rank", "tools", "links", "score"),
        [
            (
                rank,
                " -> ".join(p["tools"]),
                "; ".join(f"{p['tools'][s]} -> {p['tools'][t]}" for s, t in p["links"]),
                p["score"],
            )
            for rank, p in enumerate(value["plans"], start=1)
        ],
    )
    model = f"model version {value['model_version']}, " if value["model_version"] else ""
    _say(f"{model}graph {value['graph_version'][:12]}; {value['ms']['plan']:.0f} ms")


def night(value: Mapping[str, Any]) -> None:
    """What one night did."""
    if value["ingested"]:
        rows = value["ingested"]["totals"]["trajectories"]
        tools = value["ingested"]["totals"]["tools"]
        _say(
            f"ingest: {rows['read']} trajectories read, {rows['new']} new, {rows['duplicate']} "
            f"known; {tools['new']} new tools"
        )
    graph(value["graph"])
    if value["diff"] and value["diff"]["from"]:
        diff(value["diff"])
    for made in value["suites"]:
        _say(f"suite {made['suite']} version {made['version']}: {made['rows']} requests frozen")
    trained(value)
    report(value["report"])
    promotion({**value["promotion"], "report": None})


def status(value: Mapping[str, Any]) -> None:
    """Where things stand."""
    version = value["graph"]["version"]
    _say(
        f"{value['trajectories']} trajectories, {value['calls']} calls, {value['tools']} tools, "
        f"{value['quarantined']} quarantined"
    )
    if version:
        size = value["graph"]
        _say(f"graph {version[:12]}: {size['nodes']} tools, {size['edges']} edges")
        if size["held_since"]:
            _say("a rollback holds it as the latest: toolatlas graph build --release ends that")
    else:
        _say("no graph version yet: run toolatlas nightly")
    for name, service in value["services"].items():
        where = f" at {service['address']}" if service["address"] else ""
        _say(f"{name} {'runs' if service['running'] else 'does not run: make up'}{where}")
    models = value["models"]
    _say(f"champion: {models['champion'] or 'none'}, challenger: {models['challenger'] or 'none'}")
    if value["last_report"]:
        report(value["last_report"])


def _came(changed: Mapping[str, Any] | None) -> str:
    """A graph diff in a table's cell."""
    if changed is None:
        return "unchanged"
    tools, edges = changed["tools"]["added"], changed["edges"]["added"]
    return f"+{len(tools)} tools, +{len(edges)} edges"


def demo(value: Mapping[str, Any]) -> None:
    """Both nights, the planners, the decision, and what to try next."""
    rows = []
    for number, made in enumerate(value["nights"], start=1):
        total = made["ingested"]["totals"]
        rows.append(
            (
                f"night {number}",
                total["trajectories"]["new"],
                total["tools"]["new"],
                made["graph"]["version"][:12],
                _came(made["diff"]),
                f"version {made['version']}, {made['train_seconds']:.0f} s"
                if made["trained"]
                else "no",
                made["decision"],
                made["promotion"]["champion"],
            )
        )
    _table(
        "Two nights on ComplexFuncBench and NESTFUL",
        ("", "new trajectories", "new tools", "graph", "graph diff", "trained", "decision",
         "champion"),
        rows,
    )  # fmt: skip
    last = value["nights"][-1]
    if not any(made["trained"] or made["diff"] for made in value["nights"]):
        _say(
            "Nothing new: no new rows, the same graph version, no training. The last report stands."
        )
    report(last["report"])
    promotion({**last["promotion"], "report": None})
    _say(f"\nTook {value['seconds']:.0f} s. Next:")
    for command in value["next"]:
        _say(f"  {command}")


def dry_run(value: Mapping[str, Any]) -> None:
    """What an execution would do."""
    rows = []
    for step in value["steps"]:
        verdict = "yes" if step["would_run"] else f"no: {step['why_not']}"
        rows.append((step["step"], step["tool"], _inputs(step["arguments"]), verdict))
    _table("Would execute", ("step", "tool", "arguments", "runs"), rows)
    _unplanned(value)


def _unplanned(value: Mapping[str, Any]) -> None:
    for text in value["unplanned"]:
        _say(f"No tool was found for: {text}")


def _inputs(arguments: Sequence[Mapping[str, Any]]) -> str:
    told = []
    for argument in arguments:
        given = json.dumps(argument.get("value"), ensure_ascii=False)
        if argument.get("step") is not None:
            given = f"result of step {argument['step']}"
        told.append(f"{argument['name']}: {given}")
    return "; ".join(told)


def execution(value: Mapping[str, Any]) -> None:
    """What an execution did."""
    rows = [
        (
            step["step"],
            step["tool"],
            step["status"],
            str(step["error"] or json.dumps(step["result"], ensure_ascii=False))[:200],
        )
        for step in value["steps"]
    ]
    _table(f"Execution {value['id']}", ("step", "tool", "status", "result"), rows)
    _say(value["summary"])
    _unplanned(value)
