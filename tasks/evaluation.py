"""Planners measured on suites: one planner on demand, all of them in a regression report."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, get_args

from duckdb import DuckDBPyConnection

from models.errors import ModelError, NotEnoughData
from models.evaluation import PlannerResult, evaluate
from models.gate import Candidate, Decision, GatePolicy, decide_promotion
from models.metrics import Convention
from models.text import SentenceEmbedder
from models.tog import TogPlanner
from models.types import Example, Planner
from tasks.embedding import shared_embedder
from tasks.errors import NoChampion
from tasks.graphs import find, learning_data, load_graph, load_suites, present
from tasks.locks import alone
from tasks.planning import (
    MODEL_FREE,
    PLANNERS,
    get_planner,
    load_llm_version,
    load_version,
    make_baselines,
    make_tog,
)
from tasks.registry import Registry
from tasks.settings import Settings, code_version
from warehouse.connection import open_warehouse
from warehouse.identity import digest
from warehouse.reports import alias_history, last_report, note_alias, read_report, store_report
from warehouse.suites import Suite

log = logging.getLogger("toolatlas")

CONVENTIONS: tuple[str, ...] = get_args(Convention)
_SHOWN = ("n_f1", "l_f1", "l_f1_adjacent", "ned", "exact")
_TIMED = 50

RegressionProgress = Callable[[str, float], None]


def evaluate_one(
    settings: Settings,
    planner: str,
    suite: str | None = None,
    convention: Convention = "strict",
    *,
    newest: bool = False,
) -> dict[str, Any]:
    """Metrics of one planner on one suite, with intervals and the time a lone request takes.

    Args:
        settings: Of the home.
        planner: By name.
        suite: By name; default: the primary one.
        convention: Of the metrics.
        newest: Let ``gtool`` be what was trained last: nobody is promoted in a split's home.
    """
    suites = _suites(settings, suite)
    name = suite or primary_suite(settings, suites)
    found, rows = next(item for item in suites.items() if item[0].name == name)
    embed = SentenceEmbedder(settings.text_encoder)
    chosen, graph_version, model_version = get_planner(
        settings, _newest(settings, planner) if newest else planner, embed
    )
    unfit = why_unfit(chosen, rows)
    if unfit:
        return {
            "n": 0,
            "not_applicable": unfit,
            "planner": planner,
            "suite": found.name,
            "split": found.split,
            "suite_version": found.version,
            "graph_version": graph_version,
            "model_version": model_version,
        }
    result = evaluate(
        chosen,
        rows,
        convention,
        known_tools=load_graph(settings, find(settings).version, present(settings)).keys,
        time_requests=min(_TIMED, len(rows)),
        resamples=settings.resamples,
        confidence=settings.confidence,
        seed=settings.seed,
    )
    return {
        **result.to_json(),
        "planner": planner,
        "suite": found.name,
        "split": found.split,
        "suite_version": found.version,
        "graph_version": graph_version,
        "model_version": model_version,
    }


def _newest(settings: Settings, planner: str) -> str:
    """The planner, which is the challenger where it is GTool and no version is named.

    Raises:
        NoChampion: None was trained.
    """
    kind, at, _ = planner.partition("@")
    if at or kind not in PLANNERS or kind in MODEL_FREE:
        return planner
    aliases = Registry(settings).aliases()
    for alias in ("challenger", "champion"):
        if aliases[alias] is not None:
            return f"{kind}@{alias}"
    raise NoChampion(
        f"expected a version that was trained in {settings.home}, there is none: run toolatlas "
        f"train --split {settings.home.name}."
    )


class Aliases(NamedTuple):
    """Where the aliases point, and from where somebody moved which of them in MLflow."""

    now: dict[str, str | None]
    moved: dict[str, str | None]


def notice_aliases(settings: Settings, registry: Registry) -> Aliases:
    """The registry's aliases; a change that somebody else made is written into the history."""
    with alone(settings, "aliases"):
        return _notice_aliases(settings, registry)


def _notice_aliases(settings: Settings, registry: Registry) -> Aliases:
    aliases = registry.aliases()
    moved: dict[str, str | None] = {}
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        for alias, number in aliases.items():
            if note_alias(con, alias, number, "registry", "found changed in MLflow"):
                moved[alias] = alias_history(con)[0]["previous"]
        if aliases["champion"] is not None and aliases["champion"] == aliases["challenger"]:
            registry.drop_alias("challenger")
            note_alias(con, "challenger", None, "registry", "it became champion")
            aliases["challenger"] = None
    for alias in moved:
        number = aliases[alias]
        told = f"is now version {number}" if number else "was taken away"
        log.info("%s %s, changed in MLflow", alias, told)
    if "champion" in moved:
        registry.note_champion(aliases["champion"], "by hand in MLflow")
    return Aliases(aliases, moved)


def regress(
    settings: Settings,
    *,
    challenger: str | None = None,
    progress: RegressionProgress | None = None,
) -> dict[str, Any]:
    """Champion, challenger and baselines on every suite, and the gate's decision.

    The same comparison is made once: its report is kept and comes back.

    Args:
        settings: Policy, primary suite and where everything lies.
        challenger: A version number in place of the one under the alias.
        progress: Told each planner and suite before it is measured, and the share that is done.

    Raises:
        NotEnoughData: There is no suite yet.
    """
    with alone(settings, "regress"):
        return _regress(settings, challenger, progress)


def _regress(
    settings: Settings, challenger: str | None, progress: RegressionProgress | None
) -> dict[str, Any]:
    """The comparison, one at a time in a home."""
    registry = Registry(settings)
    aliases, moved = notice_aliases(settings, registry)
    challenger = challenger or aliases["challenger"]
    champion = aliases["champion"]
    if challenger == champion:
        challenger = None
    suites = _suites(settings)
    primary = primary_suite(settings, suites)
    graph = find(settings)
    policy = _policy(settings)
    basis = digest(
        sorted((suite.name, suite.content_id) for suite in suites),
        [graph.version, graph.examples_id, primary, asdict(policy), settings.text_encoder],
        [settings.llm, settings.max_llm_requests],
        [settings.tog_scorer, settings.tog_decomposer, settings.chat_url, settings.chat_model],
        code_version(),
    )
    report_id = digest(basis, champion, challenger)[:16]
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        known = read_report(con, report_id) or _report_of_champion(con, basis, champion, challenger)
    if known:
        log.info("report %s stands: nothing changed since it was made", known["id"])
        return {**known, "new": False, "moved_by_hand": moved}
    planners = _contenders(settings, registry, champion, challenger)
    results, unfit = _measure(planners, suites, settings, progress)
    decision = _decide(results, champion, challenger, primary, policy)
    report = {
        "id": report_id,
        "basis": basis,
        **decision.to_json(),
        "suite": primary,
        "metrics": results_json(results)[primary],
        "suites": results_json(results),
        "intervals": {
            suite: {name: result.to_json()["ci"] for name, result in by_planner.items()}
            for suite, by_planner in results.items()
        },
        "requests": {suite.name: len(rows) for suite, rows in suites.items()},
        "measured": {
            suite: {name: result.n for name, result in by_planner.items()}
            for suite, by_planner in results.items()
        },
        "not_applicable": unfit,
        "suite_versions": {suite.name: suite.version for suite in suites},
        "champion": champion,
        "challenger": challenger,
        "graph_version": graph.version,
        "code_version": code_version(),
        "policy": asdict(policy),
    }
    # MLflow first: a run that is killed in between writes the same there again.
    _log_to_mlflow(registry, report)
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        store_report(con, report)
    return {**report, "new": True, "moved_by_hand": moved}


def _suites(settings: Settings, name: str | None = None) -> dict[Suite, list[Example]]:
    """The suites with their rows, or the one of a name.

    Raises:
        NotEnoughData: There is none.
    """
    suites = load_suites(settings, (name,) if name else ())
    if not suites:
        raise NotEnoughData(
            "expected a suite to measure planners on, there is none: a source needs at least "
            f"{settings.min_suite_rows} held-out trajectories (setting min_suite_rows); "
            "ingest more and run toolatlas nightly."
        )
    return suites


def _report_of_champion(
    con: DuckDBPyConnection, basis: str, champion: str | None, challenger: str | None
) -> dict[str, Any] | None:
    """The report that made the champion, while nothing has changed since and nobody challenges."""
    last = last_report(con)
    if last and challenger is None and last["basis"] == basis and last["challenger"] == champion:
        return last if last["decision"] == "promote" else None
    return None


def primary_suite(settings: Settings, suites: dict[Suite, list[Example]]) -> str:
    """The suite of the setting, or the largest.

    Raises:
        NotEnoughData: The setting names a suite that does not exist.
    """
    names = [suite.name for suite in suites]
    if settings.primary_suite is None:
        return names[0]
    if settings.primary_suite not in names:
        raise NotEnoughData(
            f"expected the setting primary_suite to name one of {', '.join(names)}, "
            f"got {settings.primary_suite!r}."
        )
    return settings.primary_suite


def _policy(settings: Settings) -> GatePolicy:
    return GatePolicy(
        margin=settings.margin,
        minimum_gain=settings.min_gain,
        confidence=settings.confidence,
        resamples=settings.resamples,
        seed=settings.seed,
    )


def _contenders(
    settings: Settings, registry: Registry, champion: str | None, challenger: str | None
) -> dict[str, Planner]:
    """Planners by their name in the report: ``gtool`` is the version under test."""
    now = present(settings)
    data = learning_data(settings, now)
    graph = load_graph(settings, data.graph.version, now)
    embed = shared_embedder(settings)
    planners: dict[str, Planner] = {}
    subject = challenger or champion
    if subject:
        planners["gtool"] = load_version(registry, subject, embed, graph, now.renamed)
        try:
            spoken = load_llm_version(settings, registry, subject, embed, graph, now.renamed)
        except ModelError as error:  # it takes no part in the decision
            log.warning("gtool-llm of version %s is left out of the report: %s", subject, error)
            spoken = None
        if spoken:
            planners["gtool-llm"] = spoken
    if champion and challenger:
        planners["gtool-champion"] = load_version(registry, champion, embed, graph, now.renamed)
    tog = make_tog(settings, now, data, graph, embed)
    return planners | {"tog": tog} | make_baselines(graph, data.examples, embed)


def _measure(
    planners: dict[str, Planner],
    suites: dict[Suite, list[Example]],
    settings: Settings,
    progress: RegressionProgress | None,
) -> tuple[dict[str, dict[str, PlannerResult]], dict[str, dict[str, str]]]:
    """Results by suite and planner; beside them, why a planner is not applicable to a suite."""
    results: dict[str, dict[str, PlannerResult]] = {}
    unfit: dict[str, dict[str, str]] = {}
    done, total = 0, len(planners) * sum(map(len, suites.values()))
    for suite, rows in suites.items():
        results[suite.name] = {}
        for name, planner in planners.items():
            reason = why_unfit(planner, rows)
            if reason:
                unfit.setdefault(suite.name, {})[name] = reason
                continue
            asked = _sample(rows, settings.max_llm_requests) if name == "gtool-llm" else rows
            if progress:
                progress(f"{name} on {suite.name}, {len(asked)} requests", done / max(total, 1))
            results[suite.name][name] = evaluate(
                planner,
                asked,
                resamples=settings.resamples,
                confidence=settings.confidence,
                seed=settings.seed,
            )
            done += len(asked)
    return results, unfit


def why_unfit(planner: Planner, rows: Sequence[Example]) -> str | None:
    """Why a planner cannot be measured on a suite; None where it can.

    A search needs something to search on. Where the catalogues of a suite carry no types, no names
    that join and no likely edges, it is not applicable, which is no score of 0.
    """
    if not isinstance(planner, TogPlanner):
        return None
    namespaces = sorted({key.split("/", 1)[0] for row in rows for key in row.tools})
    if planner.searches(namespaces):
        return None
    return (
        f"the catalogue of {', '.join(namespaces)} has no types, no results that fill parameters "
        "and no likely edges to search on"
    )


def _sample(rows: list[Example], most: int | None) -> list[Example]:
    """At most so many rows, evenly spread over all."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[i * len(rows) // most] for i in range(most)]


def results_json(
    results: dict[str, dict[str, PlannerResult]],
) -> dict[str, dict[str, dict[str, float]]]:
    """Suite to planner to metrics."""
    return {
        suite: {
            name: {metric: result.metrics[metric] for metric in _SHOWN}
            for name, result in by_planner.items()
        }
        for suite, by_planner in results.items()
    }


def _decide(
    results: dict[str, dict[str, PlannerResult]],
    champion: str | None,
    challenger: str | None,
    primary: str,
    policy: GatePolicy,
) -> Decision:
    def candidate(planner: str, name: str) -> Candidate:
        scores = {suite: by[planner].scores for suite, by in results.items() if planner in by}
        return Candidate(name, scores)

    subject = challenger or champion
    if subject is None:
        told = "There is neither a champion nor a challenger to measure."
        return Decision("inconclusive", (told,), primary, ())
    if challenger is None:
        told = f"gtool {champion} stays champion: there is no challenger to compare it with."
        return Decision("keep", (told,), primary, ())
    baselines = [candidate(name, name) for name in results[primary] if "gtool" not in name]
    decision = decide_promotion(
        candidate("gtool", f"gtool {challenger}"),
        candidate("gtool-champion", f"gtool {champion}") if champion else None,
        baselines,
        policy,
        primary=primary,
    )
    behind = _behind(results, f"gtool {challenger}", primary, policy.margin)
    return replace(decision, reasons=(*decision.reasons, *behind))


def _behind(
    results: dict[str, dict[str, PlannerResult]], name: str, primary: str, margin: float
) -> list[str]:
    """A sentence for each other suite on which a baseline plans better than the subject."""
    sentences = []
    for suite, by_planner in results.items():
        scores = {planner: result.metrics["n_f1"] for planner, result in by_planner.items()}
        best = max((p for p in scores if "gtool" not in p), key=lambda p: scores[p])
        if suite != primary and scores[best] > scores["gtool"] + margin:
            sentences.append(
                f"On {suite} {best} plans better than {name}: n-F1 {scores[best]:.3f} against "
                f"{scores['gtool']:.3f}."
            )
    return sentences


def _log_to_mlflow(registry: Registry, report: dict[str, Any]) -> None:
    """The report beside the challenger it decides about; a champion keeps what made it champion."""
    number = report["challenger"]
    if number is None:
        return
    version = registry.version(number)
    metrics = {
        f"{suite}/{metric}": by_planner["gtool"][metric]
        for suite, by_planner in report["suites"].items()
        for metric in _SHOWN
    }
    registry.log_summary(str(version.run_id), metrics)
    registry.log_report(str(version.run_id), report, report["id"])
    registry.tag_version(
        number,
        {
            "suite": report["suite"],
            "report": report["id"],
            "decision": report["decision"],
            "reasons": "\n".join(report["reasons"])[:4000],
        },
    )
