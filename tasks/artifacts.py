"""What the pages of a Prefect run show, as Markdown made of the results of the steps.

Pure functions: results in, text out. ``tasks/watching.py`` puts the text on the page.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.markdown import (
    bullets,
    count,
    decimal,
    escape,
    link,
    paragraphs,
    some,
    table,
)

_METRICS = (("n_f1", "n-F1"), ("l_f1", "l-F1"), ("ned", "NED"), ("exact", "exact"))
_LOWER_IS_BETTER = ("ned",)
_BASELINES = ("tog", "retrieval", "nearest", "popularity", "sgc")
_COUNTS = ("read", "new", "updated", "duplicate", "quarantined")
_MOST_FILES = 50
_MOST_NAMES = 20
_MOST_EDGES = 20

_RAISED = "Flow run encountered an exception: "

VERDICTS = {
    "promote": "the challenger may take the champion's place",
    "keep": "the champion stays",
    "inconclusive": "the numbers do not decide, so the champion stays",
}
"""What a verdict means."""

TERMS = (
    "*Champion*: the planner version in use. *Challenger*: the version that wants its place. "
    "*Baseline*: a planner without training that a trained one has to beat. "
    "*n-F1*: the right tools; *l-F1*: the right links between them; *exact*: the whole plan is "
    "right; higher is better. *NED*: distance between planned and right order; lower is better."
)


class Page(NamedTuple):
    """An artifact: a line of plain text for the list of artifacts, and the page itself."""

    line: str
    text: str


def short(version: str | None) -> str:
    """A graph version as people read it."""
    return f"`{version[:12]}`" if version else "none"


# --- what came in ----------------------------------------------------------------------------


def ingest(result: Mapping[str, Any]) -> Page:
    """The deliveries of a run: totals, files, what was refused or set aside."""
    files = [f for f in result["files"] if not f.get("skipped")]
    totals = result["totals"]
    rows, tools, refused = totals["trajectories"], totals["tools"], _refused(result)
    line = f"{count(rows['new'], 'new trajectory')}, {count(tools['new'], 'new tool')}"
    text = paragraphs(
        came_in(result),
        table(
            ("", *_COUNTS),
            [
                (kind, *(f"{totals[kind][name]:,}" for name in _COUNTS))
                for kind in ("trajectories", "calls", "tools")
            ],
        ),
        _files(files),
        _listed("Refused", [escape(sentence) for sentence in result["refused"]]),
        _listed("Skipped", _skipped(result)),
        _listed("Set aside in quarantine", _quarantined(files)),
        "*New*: not seen before. *Updated*: a fuller form of a known trajectory. *Duplicate*: "
        "known already, nothing was stored twice. *Quarantined*: kept with its reason; "
        "`toolatlas quarantine list` shows it.",
    )
    return Page(f"{line}, {refused} refused" if refused else line, text)


def _refused(result: Mapping[str, Any]) -> int:
    """How many of the files that were named could not be read."""
    told = " ".join(result["refused"])
    skipped = [f for f in result["files"] if f.get("skipped")]
    if len(skipped) == len(result["files"]):
        return len(skipped)
    return sum(f["path"] in told for f in skipped)


def came_in(result: Mapping[str, Any] | None) -> str:
    """What was ingested, in a sentence or two."""
    if result is None:
        return "Nothing was ingested: no paths were named (setting ingest_paths)."
    rows, tools = result["totals"]["trajectories"], result["totals"]["tools"]
    known = result["files"] and all(f.get("known") for f in result["files"])
    refused = _refused(result)
    sentences = [
        f"{count(rows['read'], 'trajectory')} read: {rows['new']:,} new, {rows['updated']:,} "
        f"updated, {rows['duplicate']:,} known before, {rows['quarantined']:,} quarantined.",
        f"{count(tools['new'], 'new tool')}.",
        "Every file was known already." if known else "",
        f"{count(refused, 'file')} refused, see `ingest`." if refused else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _files(files: Sequence[Mapping[str, Any]]) -> str:
    if not files:
        return ""
    rows = [
        (
            escape(f["path"].rsplit("/", 1)[-1]),
            escape(f["source"]),
            escape(f["format"]),
            *(f"{f['trajectories'][name]:,}" for name in ("read", "new", "updated", "duplicate")),
            f"{f['tools']['read']:,}",
            f"{f['quarantined']:,}",
        )
        for f in files[:_MOST_FILES]
    ]
    columns = ("file", "source", "format", "read", "new", "updated", "duplicate", "tools",
               "quarantined")  # fmt: skip
    more = len(files) - _MOST_FILES
    return paragraphs(
        "### Files", table(columns, rows, texts=3), f"And {more:,} more." if more > 0 else ""
    )


def _skipped(result: Mapping[str, Any]) -> list[str]:
    told = " ".join(result["refused"])
    return [
        f"{escape(f['path'].rsplit('/', 1)[-1])}: {escape(f['skipped'])}"
        for f in result["files"]
        if f.get("skipped") and f["path"] not in told
    ][:_MOST_NAMES]


def _quarantined(files: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{escape(f['path'].rsplit('/', 1)[-1])}, {count(number, 'record')}: {escape(reason)}"
        for f in files
        for reason, number in f.get("reasons", {}).items()
    ][:_MOST_NAMES]


def _listed(title: str, lines: Sequence[str]) -> str:
    return paragraphs(f"### {title}", bullets(lines)) if lines else ""


# --- the graph -------------------------------------------------------------------------------


def graph(made: Mapping[str, Any], diff: Mapping[str, Any] | None) -> Page:
    """A graph version and what changed since its parent."""
    if diff is None:
        size = f"{count(made['nodes'], 'tool')}, {count(made['edges'], 'edge')}"
        return Page(f"unchanged: {size}", graph_news(made, diff))
    tools, edges = diff["tools"], diff["edges"]
    text = paragraphs(
        graph_news(made, diff),
        table(
            ("", "added", "removed", "changed", "strengthened", "weakened"),
            [
                ("tools", *(f"{len(tools[k]):,}" for k in ("added", "removed", "changed")), "", ""),
                (
                    "edges",
                    f"{len(edges['added']):,}",
                    f"{len(edges['removed']):,}",
                    "",
                    f"{len(edges['strengthened']):,}",
                    f"{len(edges['weakened']):,}",
                ),
            ],
        ),
        *(
            paragraphs(f"### Tools {kind}", some(tools[kind], _MOST_NAMES))
            for kind in ("added", "removed", "changed")
            if tools[kind]
        ),
        paragraphs(
            "### Tools renamed",
            some([f"{old} → {new}" for old, new in tools["renamed"]], _MOST_NAMES),
        )
        if tools["renamed"]
        else "",
        *(_edges(kind, edges[kind]) for kind in ("added", "removed", "strengthened", "weakened")),
        "An *edge* says that the second tool was used after, or with a result of, the first. "
        "*Strengthened* and *weakened*: seen more or less often than before. All of it: "
        f"`toolatlas graph diff {(diff['from'] or diff['to'])[:12]} {diff['to'][:12]}`.",
    )
    line = (
        f"{count(made['nodes'], 'tool')} ({_net(tools)}), {count(made['edges'], 'edge')} "
        f"({_net(edges)})"
    )
    return Page(line, text)


def _net(changed: Mapping[str, Sequence[Any]]) -> str:
    lost = f", -{len(changed['removed']):,}" if changed["removed"] else ""
    return f"+{len(changed['added']):,}{lost}"


def graph_news(made: Mapping[str, Any], diff: Mapping[str, Any] | None) -> str:
    """The graph version in a sentence or two, and whether it is the latest."""
    held = ""
    if made.get("held"):
        held = (
            " A rollback holds an earlier version as the latest, which training and planning use: "
            "`toolatlas graph build --release` ends that."
        )
    return _changes(made, diff) + held


def _changes(made: Mapping[str, Any], diff: Mapping[str, Any] | None) -> str:
    size = f"{count(made['nodes'], 'tool')} and {count(made['edges'], 'edge')}"
    if diff is None:
        return f"Nothing changed: still version {short(made['version'])} with {size}."
    if diff["from"] is None:
        return f"The first version, {short(made['version'])}, with {size}."
    tools, edges = diff["tools"], diff["edges"]
    changes = [
        f"{count(len(names), what)} {kind}"
        for what, kind, names in (
            ("tool", "added", tools["added"]),
            ("tool", "removed", tools["removed"]),
            ("tool", "changed", tools["changed"]),
            ("edge", "added", edges["added"]),
            ("edge", "removed", edges["removed"]),
            ("edge", "strengthened", edges["strengthened"]),
            ("edge", "weakened", edges["weakened"]),
        )
        if names
    ]
    return (
        f"New version {short(made['version'])} with {size}. Since {short(diff['from'])}: "
        f"{', '.join(changes) or 'no tool and no edge differs'}."
    )


def _edges(kind: str, edges: Sequence[Sequence[Any]]) -> str:
    if not edges:
        return ""
    columns: tuple[str, ...] = ("from", "to", "kind")
    if len(edges[0]) > 3:  # with counts: first, because long names push the end out of sight
        columns = ("times seen", *columns)
        edges = sorted(edges, key=lambda e: -abs(e[4] - e[3]))
        edges = [(f"{before:,} → {now:,}", *names) for *names, before, now in edges]
    more = len(edges) - _MOST_EDGES
    return paragraphs(
        f"### Edges {kind}",
        table(
            columns,
            [[escape(cell) for cell in edge] for edge in edges[:_MOST_EDGES]],
            texts=len(columns),
        ),
        f"And {more:,} more." if more > 0 else "",
    )


# --- training --------------------------------------------------------------------------------


def training(outcome: Mapping[str, Any], pages: Mapping[str, str | None] | None) -> Page:
    """Whether a training ran, why or why not, and where its version is."""
    line = "not trained"
    if outcome["trained"]:
        line = f"version {outcome['version']}, {outcome['train_seconds']:.0f} s"
    return Page(line, paragraphs(trained(outcome), places(pages)))


def trained(outcome: Mapping[str, Any]) -> str:
    """The training in a sentence."""
    reason = escape(outcome["train_reason"])
    if not outcome["trained"]:
        return f"Not trained: {reason}."
    return (
        f"Version {escape(outcome['version'])} was trained in {outcome['train_seconds']:.0f} s: "
        f"{reason}."
    )


def places(pages: Mapping[str, str | None] | None) -> str:
    """Where a version is in MLflow, as links where MLflow has pages."""
    if pages is None:
        return ""
    version, run = f"version {pages['version']} of {pages['model']}", f"run {pages['run_id']}"
    if pages["version_url"] is None:
        return (
            f"In MLflow: {escape(version)}, {escape(run)}. MLflow is a database file here and has "
            "no page; with `make up` or the setting mlflow_uri it has."
        )
    return (
        f"In MLflow: {link(version, pages['version_url'])} (what it is, why it was or was not "
        f"promoted), {link(run, pages['run_url'])} (how its training went)."
    )


# --- comparison and decision -----------------------------------------------------------------


def planners(report: Mapping[str, Any]) -> Page:
    """Every planner on every suite, the deciding one first, and the verdict."""
    names = sorted(report["suites"], key=lambda name: name != report["suite"])
    subjects = [
        f"{label(report, planner).split(' (')[0]} {decimal(scores['n_f1'])}"
        for planner, scores in report["suites"][report["suite"]].items()
        if planner in ("gtool", "gtool-champion")
    ]
    text = paragraphs(
        verdict(report),
        *(part for name in names for part in (_title(report, name), suite(report, name))),
        f"In brackets the {_percent(report)} interval; bold: the best mean. {TERMS}",
    )
    return Page(f"n-F1: {', '.join(subjects)}" if subjects else "baselines only", text)


def _title(report: Mapping[str, Any], name: str) -> str:
    number = report.get("requests", {}).get(name)
    requests = f", {count(number, 'request')}" if number else ""
    decides = " (this suite decides)" if name == report["suite"] else ""
    return f"### {escape(name)}{requests}{decides}"


def suite(report: Mapping[str, Any], name: str) -> str:
    """The planners on one suite with their intervals."""
    by_planner = report["suites"][name]
    intervals = report.get("intervals", {}).get(name, {})
    best = {metric: _best([m[metric] for m in by_planner.values()], metric) for metric, _ in
            _METRICS}  # fmt: skip
    return table(
        ("planner", *(label for _, label in _METRICS)),
        [
            (
                escape(label(report, planner) + _sample(report, name, planner)),
                *(
                    _value(scores[metric], intervals.get(planner, {}).get(metric), best[metric])
                    for metric, _ in _METRICS
                ),
            )
            for planner, scores in sorted(
                by_planner.items(), key=lambda item: item[0] in _BASELINES
            )
        ]
        + [
            (escape(f"{label(report, planner)}: not applicable, {reason}"), "-", "-", "-", "-")
            for planner, reason in report.get("not_applicable", {}).get(name, {}).items()
        ],
    )


def _sample(report: Mapping[str, Any], suite: str, planner: str) -> str:
    """On how many requests a planner was measured, where it is not all of them."""
    measured = report.get("measured", {}).get(suite, {}).get(planner)
    if measured is None or measured == report.get("requests", {}).get(suite):
        return ""
    return f", {count(measured, 'request')}"


def _best(values: Sequence[float], metric: str) -> float | None:
    numbers = [v for v in values if v is not None and math.isfinite(v)]
    if not numbers:
        return None
    return min(numbers) if metric in _LOWER_IS_BETTER else max(numbers)


def _value(mean: float | None, interval: Sequence[float] | None, best: float | None) -> str:
    shown = f"**{decimal(mean)}**" if best is not None and mean == best else decimal(mean)
    if not interval:
        return shown
    return f"{shown} ({decimal(interval[0])}–{decimal(interval[1])})"


def label(report: Mapping[str, Any], planner: str) -> str:
    """A planner's name in the report, as people call it."""
    challenger, champion = report["challenger"], report["champion"]
    then = "" if report.get("new", True) else "then "
    if planner == "gtool" and challenger:
        return f"gtool {challenger} ({then}challenger)"
    if planner in ("gtool", "gtool-champion"):
        return f"gtool {champion} ({then if challenger else ''}champion)"
    return f"{planner} (baseline)" if planner in _BASELINES else planner


def _percent(report: Mapping[str, Any]) -> str:
    return f"{100 * report.get('policy', {}).get('confidence', 0.95):g} %"


def verdict(report: Mapping[str, Any]) -> str:
    """The decision with its reasons."""
    word = report["decision"]
    said = f"**Decision: {escape(word)}** ({VERDICTS.get(word, 'see the reasons')})."
    if not report.get("new", True):
        said = (
            "Nothing was measured: data, graph, versions and code are those of the last report. "
            f"Its decision was **{escape(word)}**, because:"
        )
    return paragraphs(
        said,
        bullets(escape(reason, longest=1000) for reason in report["reasons"]),
    )


def decision(report: Mapping[str, Any], promotion: Mapping[str, Any]) -> Page:
    """The decision, and who is champion and who was."""
    text = paragraphs(
        champion(report, promotion),
        verdict(report),
        f"Report `{escape(report['id'])}` on graph {short(report['graph_version'])}; "
        f"challenger: {_version(report['challenger'])}, champion it was compared with: "
        f"{_version(report['champion'])}.",
    )
    word = report["decision"] if report.get("new", True) else "no news"
    return Page(f"{word}; champion: {_version(promotion['champion'])}", text)


def champion(report: Mapping[str, Any], promotion: Mapping[str, Any]) -> str:
    """Who is champion now, and who was."""
    if promotion["promoted"]:
        return (
            f"**{_version(promotion['champion']).capitalize()} is champion now** "
            f"(before: {_version(promotion['previous'])})."
        )
    if promotion["champion"] is None and "champion" not in report.get("moved_by_hand", {}):
        return "**There is no champion yet.**"
    stays = _stays(report, promotion)
    return f"**{stays[0].upper()}{stays[1:]}.**"


def _stays(report: Mapping[str, Any], promotion: Mapping[str, Any]) -> str:
    """That the champion stays, or that somebody moved the alias in MLflow."""
    now, moved = promotion["champion"], report.get("moved_by_hand", {})
    if "champion" in moved:
        before = f"before: {_version(moved['champion'])}"
        gone = "the champion was taken away"
        return f"{f'{_version(now)} is champion' if now else gone}, by hand in MLflow ({before})"
    return f"{_version(now)} stays champion" if now else "there is still no champion"


def _version(number: str | None) -> str:
    return f"version {escape(number)}" if number else "none"


# --- the night -------------------------------------------------------------------------------


def brief(result: Mapping[str, Any]) -> str:
    """The night in a few words: a list of artifacts shows about forty letters."""
    now = result["promotion"]["champion"]
    stays = f"{_version(now)} stays champion" if now else "no champion yet"
    if "champion" in result["report"].get("moved_by_hand", {}):
        return f"{_version(now).capitalize() if now else 'No'} champion by hand, see inside"
    if result["promotion"]["promoted"]:
        return f"{_version(now).capitalize()} is champion now"
    if result["trained"]:
        return f"Version {result['version']} not promoted, {stays}"
    return f"{'Not trained' if _news(result) else 'Nothing new'}, {stays}"


def _news(result: Mapping[str, Any]) -> bool:
    came = (result["ingested"] or {}).get("totals", {}).get("trajectories", {})
    return bool(result["diff"] or came.get("new") or came.get("updated"))


def headline(result: Mapping[str, Any]) -> str:
    """The night in one sentence."""
    promotion, number = result["promotion"], result["version"]
    now = promotion["champion"]
    stays = _stays(result["report"], promotion)
    if promotion["promoted"] and result["trained"]:
        place = promotion["previous"]
        instead = f" in place of version {escape(place)}" if place else ", the first one"
        return f"Version {escape(now)} was trained and is champion now{instead}."
    if promotion["promoted"]:
        return f"Nothing was trained; {_version(now)} is champion now."
    if result["trained"]:
        return f"Version {escape(number)} was trained but not promoted: {stays}."
    if not _news(result):
        return f"Nothing new came in and nothing was trained: {stays}."
    return f"Nothing was trained: {stays}."


def tags(result: Mapping[str, Any]) -> list[str]:
    """Tags for lists of runs: whether something was trained, decided and promoted."""
    return [
        "trained" if result["trained"] else "not trained",
        f"decision {result['decision']}" if result["report"]["new"] else "nothing to decide",
        *(["promoted"] if result["promotion"]["promoted"] else []),
    ]


def night(result: Mapping[str, Any], title: str, pages: Mapping[str, str | None] | None) -> Page:
    """The whole night on one page, for somebody who sees it for the first time."""
    report, promotion = result["report"], result["promotion"]
    name = report["suite"]
    came = result["ingested"]
    added = result["diff"]["tools"]["added"] if result["diff"] else []
    grown = result["diff"] and result["diff"]["from"] and added
    text = paragraphs(
        f"# {escape(title)}",
        f"**{headline(result)}**",
        paragraphs("## What came in", came_in(came)),
        paragraphs(
            "## What changed in the tool graph",
            graph_news(result["graph"], result["diff"]),
            f"New tools: {some(added, 10)}." if grown else "",
        ),
        _listed("Frozen for regression", [_frozen(made) for made in result["suites"]]),
        paragraphs("## What was trained, and why", trained(result), places(pages)),
        paragraphs(
            "## How it compares" if report.get("new", True) else "## How it compared last time",
            _title(report, name),
            suite(report, name),
            _others(report),
        ),
        paragraphs("## What was decided", champion(report, promotion), verdict(report)),
        paragraphs(
            "## More",
            f"The other artifacts of this run say more: {'`ingest` (files), ' * bool(came)}`graph` "
            "(tools and edges that changed), `training`, `planners` (all suites), `decision`. The "
            "tab Logs has every step with its time.",
            f"{TERMS} In brackets the {_percent(report)} interval.",
        ),
    )
    return Page(brief(result), text)


def _frozen(made: Mapping[str, Any]) -> str:
    return (
        f"{escape(made['suite'])} version {made['version']}: {count(made['rows'], 'request')} that "
        "are never learnt from"
    )


def _others(report: Mapping[str, Any]) -> str:
    others = [name for name in report["suites"] if name != report["suite"]]
    return f"Also measured on {some(others, 10)}: see `planners`." if others else ""


def failed_night(title: str, message: str) -> Page:
    """What the page of a night that failed says first."""
    text = paragraphs(
        f"# {escape(title)}",
        f"**The night failed.** {escape(message.removeprefix(_RAISED), longest=1000)}",
        "What was done before stays done, and is in the other artifacts of this run; the next "
        "night goes on from there. The tab Logs has every step up to the failure. "
        "`toolatlas status` says where things stand.",
    )
    return Page("The night failed.", text)
