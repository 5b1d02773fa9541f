"""What the MLflow pages say of a version, in sentences made of its tags and its run's parameters.

Pure functions. A fact that is missing leaves its sentence out.
"""

from collections.abc import Mapping

from tasks.artifacts import TERMS, VERDICTS
from tasks.markdown import bullets, escape, link, paragraphs

MODEL_DESCRIPTION = (
    "GTool planners of Toolatlas: a request in, ranked plans of tools out.\n\n"
    "Every training registers a version here. The alias **champion** is the version that "
    "`toolatlas plan` uses; **challenger** is the newest version that wants its place. Every "
    "night both are measured on the frozen suites, and the gate decides: *promote* moves the "
    "alias champion, *keep* and *inconclusive* do not. The description of a version says what it "
    "was trained on, where, and why it was or was not promoted. An alias moved by hand here is "
    "respected by the next night.\n\n"
    "Load one with `mlflow.pyfunc.load_model('models:/gtool-planner@champion')` and give it a "
    "data frame with the column `request`."
)

EXPERIMENT_DESCRIPTION = (
    "Trainings of Toolatlas: a run's description says why, on what and by which Prefect run it was "
    "trained, and what became of it."
)

_LONGEST = 4900
"""MLflow keeps 5,000 characters of a version's description."""


def version_description(number: str, facts: Mapping[str, str]) -> str:
    """A version: trained when, on what, why, where; decision and reign.

    Args:
        number: Its number.
        facts: Parameters and tags of its run, its own tags, and ``trained_at``.
    """
    return paragraphs(
        _state(facts), _training(number, facts), _made_by(facts), _decision(facts), TERMS
    )[:_LONGEST]


def run_description(facts: Mapping[str, str], number: str | None, url: str | None) -> str:
    """A training run: the same, or that it has not registered a version yet."""
    if number is None:
        told = _sentence("Training of {planner} on graph version {graph}", _named(facts))
        return paragraphs(f"{told}; it has not registered a version yet.", _made_by(facts))
    registered = f"Registered as {link(f'version {number} of gtool-planner', url)}."
    return paragraphs(registered, version_description(number, facts))[:_LONGEST]


def _named(facts: Mapping[str, str]) -> dict[str, str]:
    return {
        "planner": escape(facts.get("planner", "gtool-graph")),
        "graph": f"`{facts.get('graph_version', 'unknown')[:12]}`",
    }


def _sentence(pattern: str, facts: Mapping[str, str]) -> str:
    """The pattern filled in; empty when a fact is missing."""
    try:
        return pattern.format_map(facts)
    except KeyError:
        return ""


def _training(number: str, facts: Mapping[str, str]) -> str:
    plain = {name: escape(value) for name, value in facts.items()} | _named(facts)
    sentences = [
        _sentence(f"**Version {escape(number)}** is a {{planner}} planner", plain)
        + _sentence(", trained on {trained_at}", plain)
        + ".",
        _sentence("Why: {train_reason}.", plain),
        _sentence(
            "It learnt graph version {graph} ({num_tools} tools, {num_edges} edges that are not "
            "held out) and {num_train} training rows; {num_validation} more chose the epoch.",
            plain,
        ),
        _sentence("The data reach from {data_first} to {data_last} (UTC).", plain)
        if facts.get("data_first") not in (None, "None")
        else "",
        _sentence("Code {code_version}.", plain),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _made_by(facts: Mapping[str, str]) -> str:
    if "prefect.flow_run_id" not in facts:
        return ""
    name = facts.get("prefect.flow_run_name", facts["prefect.flow_run_id"])
    url = facts.get("prefect.flow_run_url")
    lone = "" if url else f" (id {escape(facts['prefect.flow_run_id'])})"
    return f"Made by the Prefect run {link(name, url)}{lone}."


def _decision(facts: Mapping[str, str]) -> str:
    word = facts.get("decision")
    if word is None:
        return "The next regression compares it with the champion and decides."
    about = f" on suite {escape(facts['suite'])}" if "suite" in facts else ""
    report = f", report {escape(facts['report'])}" if "report" in facts else ""
    reasons = facts.get("reasons") or facts.get("reason") or ""
    return paragraphs(
        f"**Decision: {escape(word)}** ({VERDICTS.get(word, 'see the reasons')}){about}{report}.",
        bullets(escape(reason, longest=1000) for reason in reasons.splitlines()),
    )


def _state(facts: Mapping[str, str]) -> str:
    """Where the version stands, plainly: lists of versions show only how this begins."""
    plain = {name: escape(value) for name, value in facts.items()}
    if "champion_until" in facts:
        return _sentence(
            "Champion until {champion_until}, since {champion_since}; then replaced by "
            "{replaced_by}.",
            plain,
        )
    if "champion_since" in facts:
        return _sentence("Champion since {champion_since} ({champion_by}).", plain)
    if "decision" not in facts:
        return "Not measured yet."
    if facts["decision"] == "promote":
        return "Measured: it may become champion."
    why = VERDICTS.get(facts["decision"], "see the reasons")
    return f"Not promoted ({plain['decision']}): {why}."
