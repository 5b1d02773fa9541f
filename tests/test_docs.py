import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import FOLDERS, README, ROOT, _commands, _sentence, app, filled


def test_readme_shows_the_commands_and_files_there_are():
    text = README.read_text()
    assert "<!-- commands -->" in text
    assert "<!-- files -->" in text
    assert filled(text) == text, "run: python -m tests.docs"


def test_every_source_file_says_what_it_is():
    silent = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sql") and path.name != "__init__.py" and not _sentence(path)
    ]
    assert silent == []


def test_commands_named_in_readme_exist():
    import typer

    known = {
        usage.split(" [")[0].split(" --")[0]
        for usage, _ in _commands(typer.main.get_command(app), "toolatlas")
    }
    words = {" ".join(k.split()[1:]) for k in known}
    named = re.findall(
        r"toolatlas ((?:[a-z]+)(?: (?:list|show|retry|sync|build|diff|refresh)\b)?)",
        README.read_text(),
    )
    firsts = {w.split()[0] for w in words}
    for name in named:
        assert name.split()[0] in firsts, name
    targets = set(re.findall(r"make ([a-z-]+)", README.read_text()))
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_import_contracts_hold():
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("word", ["/work/", "/root/", "pypi.org/simple"])
def test_no_machine_path_is_in_the_project(word):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    if not listed:
        pytest.skip("not a git checkout")
    found = [
        name
        for name in listed.splitlines()
        if name != "tests/test_docs.py" and word in (ROOT / name).read_text(errors="replace")
    ]
    assert found == []


@pytest.mark.parametrize("name", ["demo", "accuracy"])
def test_readme_shows_measured_figures(name):
    shown = re.search(rf"<!-- {name} -->(.*?)<!-- /{name} -->", README.read_text(), re.DOTALL)[1]
    assert "gtool" in shown
    assert "nearest" in shown
