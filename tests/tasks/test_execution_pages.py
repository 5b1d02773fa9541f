"""Pages of plans, calls and executions: every step is told, and nothing in them is markup."""

from models.types import Argument, Plan
from tasks import execution_pages as pages


def test_plans_are_told_with_what_fills_each_argument():
    one = Plan(
        ("s/find", "s/mail"), ((0, 1),), 0.5, "tog",
        (
            (Argument("city", "text", "Oslo"), Argument("day", "date")),
            (Argument("hotel", "hotel", step=0), Argument("copies", "", 0)),
        ),
    )  # fmt: skip
    bare = Plan(("s/find",), (), 0.25, "gtool")
    page = pages.plan("A hotel in Oslo", [one, bare])
    assert page.line == "2 plans: find, mail"
    assert "A hotel in Oslo" in page.text
    assert "**Plan 1**, tog, score 0.500" in page.text
    assert "**Plan 2**, gtool, score 0.250" in page.text
    for told in ('city: "Oslo"; day: open', "hotel: result of step 0; copies: 0"):
        assert told in page.text.replace("\\", "").replace("&quot;", '"')


def test_a_call_is_told_by_what_goes_in_and_comes_out():
    page = pages.call("s/find", {"city": "Oslo", "n": 2}, {"hotel": "Plaza", "rooms": [1, 2]})
    assert page.line == "s/find"
    for row in ("| in | city | Oslo |", "| in | n | 2 |", "| out | hotel | Plaza |"):
        assert row in page.text
    assert "| out |   | done |" in pages.call("s/find", {}, "done").text


def test_long_values_are_cut():
    page = pages.call("s/find", {}, "x" * 10_000)
    assert len(page.text) < 2_000


def step(**told):
    return {
        "step": 0, "tool": "s/find", "status": "ok", "reused": False, "attempts": [{}],
        "error": None, "result": {"hotel": "Plaza"}, "corrections": [], **told,
    }  # fmt: skip


def executed(*steps, **told):
    result = {"status": "done", "request": "A hotel", "summary": "1 of 1 done.", "steps": steps}
    return pages.execution({**result, **told})


def test_an_execution_is_told_step_by_step():
    page = executed(
        step(),
        step(
            step=1, tool="s/mail", status="error", attempts=[{}, {}], error="refused", result=None
        ),
    )
    assert page.line == "done: A hotel"
    assert "1 of 1 done." in page.text
    assert "| 0 | s/find | ok | 1 |" in page.text.replace("\\", "")
    assert "| 1 | s/mail | error | 2 | refused |" in page.text.replace("\\", "")


def test_reused_results_and_corrections_are_told():
    page = executed(
        step(reused=True, corrections=[{"parameter": "city", "reason": "it was no city"}])
    )
    assert "ok, reused" in page.text
    assert "Step 0, city: it was no city" in page.text


def test_a_step_that_was_not_run_has_no_result():
    assert "| blocked | 1 |   |" in executed(step(status="blocked", result=None)).text
    assert "| ok | 1 | null |" in executed(step(result=None)).text


def test_the_line_of_a_page_is_plain_text():
    assert executed(request="What is\n[this]?").line == "done: What is [this]?"


def test_a_plan_by_hand_has_no_request():
    assert executed(request="").line == "done: a plan by hand"


def test_what_tools_say_is_no_markup():
    page = executed(step(result="<script>|[x](y)\n# Title"))
    assert "<script>" not in page.text
    assert "\n# Title" not in page.text
    row = next(line for line in page.text.splitlines() if "script" in line)
    assert row.replace("\\|", "").count("|") == 6
