"""The page in a real browser: it answers to clicks and keys, and asks nothing of the network."""

import os
from pathlib import Path

import pytest

from tasks.pictures import diff_picture, render_page
from tests.versions import changes, planted, small

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no browser at {CHROMIUM}"),
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page; afterwards nothing was logged as wrong and nothing was asked for."""
    said, asked, contexts = [], [], []

    def open_page(text, **options):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def text_of(page, selector):
    return " ".join(page.inner_text(selector).split())


def position(page, name):
    """Where a tool stands in the window."""
    return page.evaluate(
        """name => {
          const data = JSON.parse(document.getElementById("data").textContent);
          const at = cy.getElementById("n" + data.nodes.name.indexOf(name)).renderedPosition();
          const box = document.getElementById("graph").getBoundingClientRect();
          return [at.x + box.x, at.y + box.y];
        }""",
        name,
    )


def render(frames, **arguments):
    return render_page("Tool graph 0943", {"version": "0943"}, *frames, **arguments)


def test_search_jumps_to_a_tool_and_its_neighbours(show):
    page = show(render(planted(120, 300, 4)))
    page.keyboard.press("/")
    page.keyboard.type("tool_7_")
    page.keyboard.press("Enter")
    assert text_of(page, "#details h2").startswith("tool_7_of")
    assert page.evaluate("cy.nodes('.chosen').length") == 1
    assert page.evaluate("cy.nodes('.faded').length") > 0
    assert page.evaluate("cy.nodes().not('.faded').length") == page.evaluate(
        "cy.nodes('.chosen').closedNeighborhood('node').length"
    )
    neighbour = page.locator("#details .go").first
    name = neighbour.inner_text().partition("/")[2]
    neighbour.click()
    assert text_of(page, "#details h2") == name
    page.keyboard.press("Escape")
    assert text_of(page, "#details h2") == "Nothing chosen"


def test_a_click_on_an_arrow_tells_its_evidence(show):
    page = show(render(small(), trajectories={("s/a", "s/b", "adjacent"): ["run-17"]}))
    (ax, ay), (bx, by) = position(page, "b"), position(page, "c")
    page.mouse.click((ax + bx) / 2, (ay + by) / 2)
    evidence = text_of(page, "#details")
    assert "b → c" in evidence
    assert "second tool failed 4" in evidence
    assert "warning" in evidence
    page.mouse.click(*position(page, "a"))
    assert "succeeded 9" in text_of(page, "#details")
    page.locator("#details button.count").first.click()
    evidence = text_of(page, "#details")
    assert "held out for tests 2" in evidence
    assert "first seen 2024-03-01 last seen 2024-03-10" in evidence
    assert "run-17" in evidence


def arrows(page):
    return page.evaluate("cy.edges().not('.off').length")


def test_filters_by_kind_standing_time_and_count(show):
    page = show(render(small()))
    assert arrows(page) == 4
    page.get_by_label("declared").uncheck()
    assert arrows(page) == 3
    page.get_by_label("warning").uncheck()
    assert arrows(page) == 2
    page.locator("#from").fill("5")
    assert arrows(page) == 1
    page.get_by_label("without a date").uncheck()
    assert arrows(page) == 1
    page.locator("#least").fill("3")
    page.keyboard.press("Tab")
    assert arrows(page) == 0
    assert "0 of 4 arrows" in text_of(page, "#status")
    page.get_by_text("Reset filters").click()
    page.wait_for_function("cy.edges().not('.off').length === 4")


def test_namespaces_can_be_left_out(show):
    page = show(render(planted(60, 150, 3)))
    page.get_by_role("button", name="none", exact=True).click()
    assert page.evaluate("cy.nodes().not('.off').length") == 0
    page.get_by_label("space_1").check()
    shown = page.evaluate("cy.nodes().not('.off').length")
    assert 0 < shown < 60
    assert f"{shown} of 60 tools" in text_of(page, "#status")


def test_the_diff_shows_changes_alone(show):
    diff = changes(
        tools={"added": ["s/b"], "removed": ["s/old"]},
        edges={"added": [["s/a", "s/b", "adjacent"]], "removed": [["s/old", "s/a", "adjacent"]]},
    )
    page = show(render(small(), diff=diff))
    assert arrows(page) == 5
    page.get_by_label("only changes").check()
    assert arrows(page) == 2
    assert page.evaluate("cy.nodes().not('.off').length") == 3
    page.get_by_label("only changes").uncheck()
    page.get_by_label("colour by change").uncheck()
    assert arrows(page) == 4
    assert page.evaluate("cy.nodes().not('.off').length") == 4


def test_types_are_a_layer_of_their_own(show):
    links = [("s/a", "image", "output"), ("s/b", "image", "input")]
    page = show(render(small(), resources=links))
    assert page.evaluate("cy.nodes('.resource').length") == 0
    page.get_by_label("show types").check()
    assert page.evaluate("cy.nodes('.resource').not('.off').length") == 1
    page.get_by_label("show types").uncheck()
    assert page.evaluate("cy.nodes('.resource').not('.off').length") == 0


def test_two_thousand_tools_start_with_the_strongest_arrows_and_offer_all(show):
    page = show(render(planted(2000, 10_000, 25)))
    assert 0 < arrows(page) <= 1500
    assert "choose more" in text_of(page, "#status")
    page.locator("#most").select_option("0")
    assert arrows(page) > 9000
    assert "without heads" in text_of(page, "#status")


@pytest.mark.parametrize("name", ["</script><script>document.title='x'</script>", "<img src=x>"])
def test_a_hostile_name_is_shown_as_it_is(show, name):
    page = show(render(small(names=(name, "b", "c", "d"))))
    page.locator("#details .go").first.click()
    assert page.inner_text("#details h2") == name
    assert page.title() == "Tool graph 0943"
    assert page.locator("img").count() == 0


def test_dark_and_narrow_windows_show_everything(show):
    page = show(render(small()), color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate("document.getElementById('graph').clientWidth") > 380


def test_keys_move_and_zoom_the_picture(show):
    page = show(render(small()))
    page.locator("#graph").focus()
    before = page.evaluate("[cy.zoom(), cy.pan().x]")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("cy.pan().x") == before[1] + 60
    page.keyboard.press("+")
    assert page.evaluate("cy.zoom()") > before[0]
    page.keyboard.press("0")
    assert page.evaluate("cy.zoom()") == pytest.approx(before[0])


def test_the_image_of_changes_is_drawn_by_a_browser(browser, tmp_path):
    svg = diff_picture(changes(tools={"added": ["s/<new>"]}))
    path = tmp_path / "changes.svg"
    path.write_text(svg, encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.locator("svg text", has_text="<new>").count() == 1
    page.close()
