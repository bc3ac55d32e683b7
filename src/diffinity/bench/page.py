"""The report as an HTML page: tables, plots, some samples of every system, links to files with all samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from diffinity.bench.layout import Table
from diffinity.bench.plots import Plot
from diffinity.bench.store import SampleRow
from diffinity.bench.summary import Results, case_label

EXCERPT = 3  # samples of a constraint on the page

STYLE = """
:root { color-scheme: light; --line: #d9dde3; --soft: #f5f7fa; --good: #1b7a3d; --bad: #b3261e; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2430; margin: 0 auto; max-width: 84rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 2px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: right; vertical-align: top;
  white-space: nowrap; }
th { background: var(--soft); vertical-align: bottom; white-space: normal; min-width: 4rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
th:first-child { background: var(--soft); }
td.words, th.words { text-align: left; }
th.paper { min-width: 7rem; } td.paper { white-space: normal; }
.interval { display: block; color: #6a7484; font-size: .72rem; }
.paper { background: #fff8e6; }
p.note { font-size: .85rem; color: #4a5464; max-width: 60rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: .9rem; }
dt { color: #4a5464; } dd { margin: 0; overflow-wrap: anywhere; }
code, pre { font: .85em/1.45 ui-monospace, monospace; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { font-size: .85rem; color: #4a5464; }
details { margin: .2rem 0; } details p { margin: .3rem 0 0 1.2rem; } summary { cursor: pointer; }
nav ul { columns: 2 20rem; font-size: .95rem; }
ol.samples { list-style: none; padding: 0; margin: .3rem 0 .6rem 1.2rem; }
ol.samples li { border-left: 3px solid; padding: .1rem .6rem; margin: .25rem 0; background: var(--soft);
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; }
li.valid { border-color: var(--good) !important; } li.invalid { border-color: var(--bad) !important; }
li.none { border-color: #8a94a6 !important; }
.mark { font-weight: 600; } .valid .mark { color: var(--good); } .invalid .mark { color: var(--bad); }
.source { color: #4a5464; font-size: .8rem; overflow-wrap: anywhere; margin: .2rem 0 0 1.2rem; }
"""


def page(title: str, body: Iterable[str]) -> str:
    """A whole document from the parts of its body, which must be escaped already.

    >>> "<title>A &lt; B</title>" in page("A < B", ["<p>text</p>"])
    True
    """
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        # No scripts, pictures or fonts are loaded, so the text of a sample can't run code.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>\n"
    )
    return head + "\n".join(body) + "\n</body></html>\n"


def text(value: object) -> str:
    """A value as text of a page; characters that UTF-8 can't encode become a replacement character.

    >>> text('<b onclick="x">')
    '&lt;b onclick=&quot;x&quot;&gt;'
    """
    return escape(str(value).encode("utf-8", "replace").decode())


def heading(level: int, title: str) -> str:
    """A heading that can be linked to.

    >>> heading(2, "a < b")
    '<h2 id="a-b">a &lt; b</h2>'
    """
    return f'<h{level} id="{anchor(title)}">{text(title)}</h{level}>'


def anchor(title: str) -> str:
    """The name of a heading in links.

    >>> anchor("json (json-additions)")
    'json-json-additions'
    """
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def contents(titles: Iterable[str]) -> str:
    """A list of links to the headings of a page.

    >>> contents(["Summary"])
    '<nav><ul><li><a href="#summary">Summary</a></li></ul></nav>'
    """
    items = "".join(f'<li><a href="#{anchor(title)}">{text(title)}</a></li>' for title in titles)
    return f"<nav><ul>{items}</ul></nav>"


def table(content: Table) -> str:
    """A table with its title and notes; the columns and rows of the paper's numbers are marked.

    >>> "<td>2<" in table(Table("", ("a", "b"), (("x", "2 [1, 3]"),)))
    True
    """
    paper = {i for i, name in enumerate(content.columns) if "paper (" in name}

    def cell(tag: str, i: int, entry: str, row_is_paper: bool = False) -> str:
        classes = ["paper"] if i in paper or row_is_paper else []
        classes += ["words"] if i in content.text_columns else []
        mark = f' class="{" ".join(classes)}"' if classes else ""
        # An interval goes below its estimate, so that tables stay narrow.
        value, bracket, interval = entry.partition(" [") if tag == "td" and i else (entry, "", "")
        interval_html = f'<span class="interval">[{text(interval)}</span>' if bracket else ""
        return f"<{tag}{mark}>{text(value)}{interval_html}</{tag}>"

    rows = ["<tr>" + "".join(cell("th", i, entry) for i, entry in enumerate(content.columns)) + "</tr>"]
    for row in content.rows:
        published = row[0].startswith("paper (")
        rows.append("<tr>" + "".join(cell("td", i, entry, published) for i, entry in enumerate(row)) + "</tr>")
    notes = "".join(f'<p class="note">{_code(note)}</p>' for note in content.notes)
    title = f"<h3>{text(content.title)}</h3>" if content.title else ""
    return f'{title}<div class="scroll"><table>{"".join(rows)}</table></div>{notes}'


def figure(plot: Plot) -> str:
    """A plot with its caption; its SVG is our own and is inserted unchanged.

    >>> figure(Plot("empty", "No & thing.", "<svg></svg>"))
    '<figure><svg></svg><figcaption>No &amp; thing.</figcaption></figure>'
    """
    return f"<figure>{plot.svg}<figcaption>{text(plot.caption)}</figcaption></figure>"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """The facts of a run: names and values.

    >>> facts([("seed", "`0`")])
    '<dl><dt>seed</dt><dd><code>0</code></dd></dl>'
    """
    rows = "".join(f"<dt>{text(name)}</dt><dd>{_code(value)}</dd>" for name, value in pairs)
    return f"<dl>{rows}</dl>"


def samples(results: Results, file: str) -> Iterator[str]:
    """Some samples of every system, folded: the first case of every category. `file` has all samples.

    >>> from diffinity.bench.summary import example
    >>> "".join(samples(example(), "run-samples.jsonl.gz")).count('<li class="valid">')
    4
    """
    yield "<h3>Samples</h3>"
    yield (
        f'<p>All samples: <a href="{text(file)}">{text(file)}</a> '
        "(JSON lines: the constraints, then the samples). "
        f"Below are the first {EXCERPT} of the first constraint of each category.</p>"
    )
    cases = results.run.cases
    first_case = {
        category: next(c.id for c in cases.values() if c.category == category) for category in results.categories
    }
    for system in results.run.systems:
        by_case = results.rows(system)
        counted = [row.valid for lines in by_case.values() for row in lines if row.outcome == "sample"]
        total = f"{sum(map(bool, counted))} of {len(counted)} valid"
        yield f"<details><summary><b>{text(system)}</b>: {total}</summary>"
        for case in first_case.values():
            lines = by_case.get(case, [])
            n_valid = sum(bool(row.valid) for row in lines)
            yield f"<p>{text(case_label(cases[case]))}: {n_valid} of {len(lines)} valid</p>"
            yield f'<p class="source"><code>{text(cases[case].source)}</code></p><ol class="samples">'
            yield from (_sample(row) for row in lines[:EXCERPT])
            yield "</ol>"
        yield "</details>"


def _sample(row: SampleRow) -> str:
    if row.outcome != "sample":
        return f'<li class="none"><span class="mark">{text(row.outcome)}</span> {text(row.reason or "")}</li>'
    kind, mark = ("valid", "✓ valid") if row.valid else ("invalid", "✗ invalid")
    return f'<li class="{kind}"><span class="mark">{mark}</span> {text(row.text or "")}</li>'


def _code(markup: str) -> str:
    """Text in which parts between backticks are code."""
    parts = markup.split("`")
    return "".join(f"<code>{text(part)}</code>" if i % 2 else text(part) for i, part in enumerate(parts))
