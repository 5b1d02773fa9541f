"""Pictures of what people see of the newest night, on running servers.

    python -m tests.pages PREFECT_URL MLFLOW_URL OUT_FOLDER

Needs chromium (the variable CHROMIUM names another program) and a nightly run that has ended.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PRESETS = """
localStorage.setItem("_mlflow_model_registry_promo_modal_dismissed_v1", "true");
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
localStorage.setItem("mlflow.workflowType_v1", '"machine_learning"');
"""
"""MLflow opens with advertisements over its pages otherwise."""


def ask(url: str, body: dict) -> list[dict]:
    """The JSON answer to a POST."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def newest_night(prefect: str) -> dict:
    """The flow run to look at."""
    runs = ask(
        f"{prefect}/api/flow_runs/filter",
        {
            "flows": {"name": {"any_": ["nightly"]}},
            "flow_runs": {"state": {"type": {"any_": ["COMPLETED", "FAILED"]}}},
            "sort": "EXPECTED_START_TIME_DESC",
            "limit": 1,
        },
    )
    if not runs:
        sys.exit(f"expected a nightly run that has ended on {prefect}, there is none")
    return runs[0]


def artifacts_of(prefect: str, run_id: str) -> list[dict]:
    """Its artifacts, oldest first."""
    found = ask(
        f"{prefect}/api/artifacts/filter",
        {"artifacts": {"flow_run_id": {"any_": [run_id]}}, "sort": "CREATED_DESC"},
    )
    return [artifact for artifact in reversed(found) if artifact["key"]]


@contextmanager
def browser_page() -> Iterator[Page]:
    """A page of a browser without head."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        context.add_init_script(_PRESETS)
        page = context.new_page()
        page.set_default_timeout(20_000)
        try:
            yield page
        finally:
            browser.close()


class Camera:
    """Opens pages and keeps pictures of them, numbered in the order taken."""

    def __init__(self, page: Page, out: Path):
        self._page, self._out, self._number = page, out, 0
        out.mkdir(parents=True, exist_ok=True)

    def open(self, url: str, settle_ms: int = 2500) -> None:
        """Go there and let it draw."""
        self._page.goto(url, wait_until="load")
        self._page.wait_for_timeout(settle_ms)

    def click(self, text: str, settle_ms: int = 2000) -> None:
        """Click the tab of that name."""
        self._page.locator("li.p-tab", has_text=text).first.click()
        self._page.wait_for_timeout(settle_ms)

    def follow(self, text: str) -> None:
        """Go where the link with that text leads."""
        target = self._page.locator("a", has_text=text).last.get_attribute("href")
        if not target:
            sys.exit(f"expected a link with the text {text!r} on {self._page.url}, found none")
        self.open(target, 4000)

    def take(self, name: str, height: int = 1000) -> None:
        """Keep a picture; a page that scrolls inside needs more height to be seen whole."""
        self._page.set_viewport_size({"width": 1400, "height": height})
        self._page.wait_for_timeout(600)
        self._number += 1
        path = self._out / f"{self._number:02d}-{name}.png"
        self._page.screenshot(path=path)
        self._page.set_viewport_size({"width": 1400, "height": 1000})
        print(path)


def look(prefect: str, mlflow: str, out: Path) -> None:
    """All pictures of the newest night and of the newest version."""
    run = newest_night(prefect)
    with browser_page() as page:
        camera = Camera(page, out)
        camera.open(f"{prefect}/dashboard")
        camera.take("prefect-dashboard")
        camera.open(f"{prefect}/deployments")
        camera.take("prefect-deployments")
        camera.open(f"{prefect}/runs")
        camera.take("prefect-runs")
        camera.open(f"{prefect}/runs/flow-run/{run['id']}")
        camera.take("prefect-run-logs", 1400)
        for tab in ("Task Runs", "Artifacts", "Details"):
            camera.click(tab)
            camera.take(f"prefect-run-{tab.lower().replace(' ', '-')}", 1400)
        for artifact in artifacts_of(prefect, run["id"]):
            camera.open(f"{prefect}/artifacts/artifact/{artifact['id']}")
            camera.take(f"prefect-artifact-{artifact['key']}", 2000)
        camera.open(f"{prefect}/artifacts")
        camera.take("prefect-artifacts")
        camera.open(f"{prefect}/artifacts/key/night")
        camera.take("prefect-artifact-history", 1400)
        look_at_mlflow(camera, mlflow)
        night = next(a for a in artifacts_of(prefect, run["id"]) if a["key"] == "night")
        if "](<" in night["data"]:
            camera.open(f"{prefect}/artifacts/artifact/{night['id']}")
            camera.follow("gtool-planner")
            camera.take("linked-mlflow-version")
            camera.follow("nightly")
            camera.take("linked-prefect-run")


def look_at_mlflow(camera: Camera, mlflow: str) -> None:
    """The experiment, the newest version, its run, and the model."""
    found = json.load(
        urllib.request.urlopen(f"{mlflow}/api/2.0/mlflow/registered-models/get?name=gtool-planner")
    )["registered_model"]
    newest = max(found["latest_versions"], key=lambda version: int(version["version"]))
    experiment = json.load(
        urllib.request.urlopen(f"{mlflow}/api/2.0/mlflow/runs/get?run_id={newest['run_id']}")
    )["run"]["info"]["experiment_id"]
    camera.open(f"{mlflow}/#/experiments/{experiment}/runs", 4000)
    camera.take("mlflow-experiment")
    camera.open(f"{mlflow}/#/experiments/{experiment}/runs/{newest['run_id']}", 4000)
    camera.take("mlflow-run", 2000)
    camera.open(f"{mlflow}/#/models/gtool-planner", 4000)
    camera.take("mlflow-model", 1400)
    camera.open(f"{mlflow}/#/models/gtool-planner/versions/{newest['version']}", 4000)
    camera.take("mlflow-version", 1600)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    look(sys.argv[1].rstrip("/"), sys.argv[2].rstrip("/"), Path(sys.argv[3]))
