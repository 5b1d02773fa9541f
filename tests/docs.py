"""The generated parts of README: ``python -m tests.docs`` writes them, a test checks them."""

import ast
import re
from pathlib import Path

import typer

from flows.cli import app

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FOLDERS = ("flows", "tasks", "models", "warehouse")


def command_table() -> str:
    """Every command with its arguments and first line of help."""
    rows = ["| command | does |", "|---|---|"]
    rows += [
        f"| `{usage}` | {text} |"
        for usage, text in _commands(typer.main.get_command(app), "toolatlas")
    ]
    return "\n".join(rows)


def _commands(command, path):
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{path} {name}")
        return
    words = [path]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = (parameter.metavar or parameter.name or "").upper().strip("[]")
            name = (
                name.removesuffix("...").removesuffix("S") + "..."
                if parameter.nargs == -1
                else name
            )
            words.append(name if parameter.required else f"[{name}]")
        elif parameter.name not in ("as_json", "help"):
            flag = parameter.opts[0]
            value = "" if parameter.is_flag else f" {(parameter.metavar or parameter.name).upper()}"
            words.append(flag + value if parameter.required else f"[{flag}{value}]")
    yield " ".join(words), (command.help or "").splitlines()[0]


def file_map() -> str:
    """Every source file with the first sentence of its docstring or header."""
    lines = []
    for folder in FOLDERS:
        lines.append(f"{folder}/")
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".sql") or path.name == "__init__.py":
                continue
            name = str(path.relative_to(ROOT / folder))
            lines.append(f"  {name:<36} {_sentence(path)}")
    return "```\n" + "\n".join(lines) + "\n```"


def _sentence(path: Path) -> str:
    if path.suffix == ".sql":
        comments = []
        for line in path.read_text().splitlines():
            if not line.startswith("--"):
                break
            comments.append(line.removeprefix("--").strip())
        text = " ".join(comments)
    else:
        text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0].rstrip(".").replace("``", "")


def fragments() -> dict[str, str]:
    """Marker to text."""
    return {"commands": command_table(), "files": file_map()}


def filled(text: str) -> str:
    """README with every generated part made anew."""
    for name, content in fragments().items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda m, content=content: f"{m[1]}{content}\n{m[2]}", text)
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
