"""Run the commands shown in docs/command-line.md and write their outputs under them.

    python scripts/command_line_examples.py [--check]

A block that begins with `$ ` is a list of commands with their output. They run in order, in one temporary folder.
Commands that need a network, a cluster, a server or jq are left alone. `<!-- run: COMMAND -->` runs a command
that the page does not show. A file that is shown with `cat` before it exists is created as shown.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "command-line.md"
BLOCK = re.compile(r"^<!-- run: (?P<hidden>.*?) -->$|^```\n(?P<shown>\$ .*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = ("pip install", "--ray", "diffinity serve", " | jq ")
FILES = re.compile(r"^`(?P<name>[\w.]+)` is.*?^```json\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)


def updated(page: str, run: Callable[[str], str]) -> str:
    """The page with the outputs of its commands; `run` returns the output of a command.

    >>> print(updated("```\\n$ echo a\\nold\\n$ pip install x\\nkept\\n```", lambda command: command.upper()))
    ```
    $ echo a
    ECHO A
    $ pip install x
    kept
    ```
    """

    def block(match: re.Match[str]) -> str:
        if match["hidden"] is not None:
            run(match["hidden"])
            return match[0]
        parts = re.split(r"^\$ (.*)\n", match["shown"], flags=re.MULTILINE)[1:]
        entries = []
        for command, old in zip(parts[::2], parts[1::2], strict=True):
            created = creates(command)
            if created is not None and not created.exists():
                created.write_text(old.strip("\n") + "\n", encoding="utf-8")
                new = old
            elif any(word in command for word in NOT_RUN):
                new = old
            else:
                new = run(command).strip("\n") + "\n"
            entries.append(f"$ {command}\n{new.strip(chr(10))}".rstrip() + "\n")
        gap = "\n" if "\n\n$ " in match["shown"] else ""
        return "```\n" + gap.join(entries) + "```"

    return BLOCK.sub(block, page)


def comparable(page: str) -> str:
    """A page without the parts that may differ: fingerprints of models, and the last digits of numbers.

    >>> comparable('{"model": "b8870cca72b4c0db", "log_p_text": [-230.2585092994043]}')
    '{"model": "…", "log_p_text": [-230.2585…]}'
    """
    return re.sub(r"(\.\d{4})\d+", r"\1…", re.sub(r'"model": "[0-9a-f]{16}"', '"model": "…"', page))


def creates(command: str) -> Path | None:
    """The file that `cat` shows.

    >>> creates("cat requests.jsonl"), creates("ls")
    (PosixPath('requests.jsonl'), None)
    """
    words = shlex.split(command)
    return Path(words[1]) if words[0] == "cat" and len(words) == 2 else None


def run(command: str) -> str:
    """The output of a command, without a new process: `diffinity …`, `cat FILE` or `sed s/A/B/ FILE`."""
    name, *arguments = shlex.split(command)
    if name == "diffinity":
        from typer.testing import CliRunner

        from diffinity.cli import app

        return CliRunner().invoke(app, arguments).output
    if name == "cat":
        return Path(arguments[0]).read_text(encoding="utf-8")
    if name == "sed":  # changes the file in place
        _, old, new, _ = arguments[0].split("/")
        path = Path(arguments[1])
        path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
        return ""
    raise SystemExit(f"error: docs/command-line.md has a command that this script does not know: {command}")


@contextmanager
def working_folder(page: str) -> Iterator[None]:
    """Change to a temporary folder with the files that the page names; output is 100 columns wide."""
    old_folder, columns = Path.cwd(), os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["COLUMNS"] = "100"
        try:
            shutil.copy(ROOT / "examples" / "sentences.txt", ".")
            for name, text in FILES.findall(page):
                Path(name).write_text(text, encoding="utf-8")
            yield
        finally:
            os.chdir(old_folder)
            if columns is None:
                del os.environ["COLUMNS"]
            else:
                os.environ["COLUMNS"] = columns


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if an output differs")
    options = parser.parse_args()
    old_page = PAGE.read_text(encoding="utf-8")
    with working_folder(old_page):
        new_page = updated(old_page, run)
    if not options.check:
        PAGE.write_text(new_page, encoding="utf-8")
    elif comparable(new_page) != comparable(old_page):
        old_lines, new_lines = comparable(old_page).splitlines(), comparable(new_page).splitlines()
        changed = difflib.unified_diff(old_lines, new_lines, "page", "now", lineterm="", n=0)
        raise SystemExit("error: outputs in docs/command-line.md are out of date:\n" + "\n".join(changed))


if __name__ == "__main__":
    main()
