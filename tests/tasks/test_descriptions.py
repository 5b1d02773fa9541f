from tasks.descriptions import MODEL_DESCRIPTION, run_description, version_description

FACTS = {
    "planner": "gtool-graph", "graph_version": "b" * 64, "trained_at": "2026-11-30 02:03 UTC",
    "train_reason": "the graph changed", "num_tools": "10", "num_edges": "19",
    "num_train": "150", "num_validation": "7", "code_version": "0.1.0+abc",
    "data_first": "None", "data_last": "None",
    "prefect.flow_run_id": "id-1", "prefect.flow_run_name": "nightly 2026-11-30 02:00",
    "prefect.flow_run_url": "http://p/runs/flow-run/id-1",
}  # fmt: skip
DECIDED = {"decision": "keep", "suite": "shop/test", "report": "r9", "reasons": "Worse.\nAnd <b>."}
CROWNED = {"champion_since": "2026-11-30 02:05 UTC", "champion_by": "by report r9"}


def test_a_new_version_says_what_it_was_trained_on_and_where():
    text = version_description("2", FACTS)
    assert text.startswith("Not measured yet.")
    for part in (
        "**Version 2** is a gtool-graph planner, trained on 2026-11-30 02:03 UTC.",
        "Why: the graph changed.",
        "graph version `bbbbbbbbbbbb` (10 tools, 19 edges that are not held out) and 150 training",
        "Code 0.1.0+abc.",
        "[nightly 2026-11-30 02:00](<http://p/runs/flow-run/id-1>)",
    ):
        assert part in text
    assert "data reach" not in text


def test_a_measured_version_says_why_it_was_not_promoted():
    text = version_description("2", FACTS | DECIDED)
    assert text.startswith("Not promoted (keep): the champion stays.")
    assert "**Decision: keep** (the champion stays) on suite shop/test, report r9." in text
    assert "- Worse.\n- And &lt;b&gt;." in text


def test_a_version_that_only_a_regression_measured_is_not_called_champion():
    text = version_description("2", FACTS | DECIDED | {"decision": "promote"})
    assert text.startswith("Measured: it may become champion.")


def test_champions_say_since_and_until_when():
    text = version_description("2", FACTS | DECIDED | CROWNED)
    assert text.startswith("Champion since 2026-11-30 02:05 UTC (by report r9).")
    until = {"champion_until": "2026-12-01 02:05 UTC", "replaced_by": "version 3"}
    text = version_description("2", FACTS | CROWNED | until)
    assert text.startswith("Champion until 2026-12-01 02:05 UTC, since 2026-11-30 02:05 UTC;")


def test_missing_facts_leave_their_sentence_out_and_long_ones_are_cut():
    text = version_description("2", {})
    assert "**Version 2** is a gtool-graph planner." in text
    assert "{" not in text
    assert (
        len(version_description("2", FACTS | {"decision": "keep", "reasons": "x\n" * 4000})) < 5000
    )
    assert len(MODEL_DESCRIPTION) < 5000


def test_a_run_says_whether_it_registered_a_version_and_where_prefect_has_no_page():
    lone = {k: v for k, v in FACTS.items() if k != "prefect.flow_run_url"}
    text = run_description(lone, None, None)
    assert "has not registered a version yet" in text
    assert "nightly 2026-11-30 02:00 (id id-1)" in text
    text = run_description(FACTS, "2", "http://m/#/models/gtool-planner/versions/2")
    assert text.startswith("Registered as [version 2 of gtool-planner](<http://m/#/models/")
