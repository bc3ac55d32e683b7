"""Hooks of the documentation site (mkdocs.yml): pages from files outside docs/, and the API reference.

ARCHITECTURE.md, CHANGELOG.md, CONTRIBUTING.md, SECURITY.md and the card of the embedded model become pages of the
site. A link to one of these files, on any page, becomes a link to that page.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from griffe import Docstring, Extension
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
CARD = "src/diffinity/models/embedded/default/README.md"
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    CARD: "model-card.md",
}
LINK = re.compile(r"(!?\[[^\]\n]*\]\()([^)\s#]+)([^)\s]*\))")
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def relinked(markdown: str, source_path: str, page: str) -> str:
    """The Markdown of a file of the repository, with links that are valid on the site.

    `source_path` is the file's path in the repository, `page` its path on the site.

    >>> relinked("[a](docs/serving.md#api) [b](https://x.org)", "SECURITY.md", "security.md")
    '[a](serving.md#api) [b](https://x.org)'
    >>> relinked("[a](../ARCHITECTURE.md)", "docs/models.md", "models.md")
    '[a](architecture.md)'
    """

    def target(match: re.Match[str]) -> str:
        prefix, link, suffix = match.groups()
        if "://" in link or link.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source_path), link))
        on_site = PAGES.get(path, path.removeprefix("docs/"))
        return f"{prefix}{posixpath.relpath(on_site, posixpath.dirname(page) or '.')}{suffix}"

    return LINK.sub(target, markdown)


def card(text: str) -> str:
    """The model card without its front matter, its picture and its list of samples.

    >>> card("---\\na: b\\n---\\n\\n# Card\\n\\n![losses](losses.png)\\n\\n## All 2 samples, unpicked\\n\\nx\\n")
    '# Card\\n'
    """
    body = FRONT_MATTER.sub("", text).split("\n## All ", 1)[0]
    return re.sub(r"!\[[^\]]*\]\([^)]*\)\n*", "", body).strip() + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    for source_path, page in PAGES.items():
        text = (ROOT / source_path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=card(text) if source_path == CARD else text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links that lead out of docs/."""
    on_site = page.file.src_uri
    source_path = next((source_path for source_path, name in PAGES.items() if name == on_site), f"docs/{on_site}")
    return plain_pipes(relinked(markdown, source_path, on_site))


def plain_pipes(markdown: str) -> str:
    r"""Tables with a plain `|` in code, as Python-Markdown reads it; GitHub needs a backslash before it.

    >>> print(plain_pipes(r"| `a \| b` | c \| d |"))
    | `a | b` | c \| d |
    """

    def row(match: re.Match[str]) -> str:
        return re.sub(r"`[^`\n]+`", lambda code: code[0].replace("\\|", "|"), match[0])

    return re.sub(r"^\|.*\|$", row, markdown, flags=re.MULTILINE)


class Doctests(Extension):  # type: ignore[misc]
    """Doctests of docstrings as blocks of code (Markdown would take `>>>` for quotations), and attributes.

    An option of `GenerationSettings` gets its default as its value and its description as its docstring. A value
    that `__init__` computes is left out.
    """

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring and the value of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
        if obj.is_attribute and obj.value is not None:
            option = default_and_meaning(str(obj.value))
            if option is not None:
                obj.value, meaning = option
                obj.docstring = Docstring(meaning, parent=obj)
            elif "class-attribute" not in obj.labels and "instance-attribute" in obj.labels:
                obj.value = None


def default_and_meaning(value: str) -> tuple[str, str] | None:
    """The default and the description in a call of `_option`; None for any other expression.

    >>> default_and_meaning('_option(2.5, "The scale.", "a number", least=0)')
    ('2.5', 'The scale.')
    >>> default_and_meaning("tuple(given)") is None
    True
    """
    call = ast.parse(value, mode="eval").body
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "_option":
        return None
    default, meaning = call.args[:2]
    return ast.unparse(default), str(ast.literal_eval(meaning))


def fenced(docstring: str) -> str:
    """A docstring with its doctests between fences.

    >>> fenced("One.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['One.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    lines, inside = [], False
    for line in [*docstring.splitlines(), ""]:
        if line.startswith(">>> ") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines).rstrip()
