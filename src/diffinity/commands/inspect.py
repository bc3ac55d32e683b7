"""`diffinity inspect`: describes constraints: the sizes of their automata, and shortest and random texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from diffinity.commands.console import out
from diffinity.commands.options import (
    GRAMMAR_DEPTH,
    ChoiceOption,
    ConstraintOptions,
    ContainsOption,
    GrammarDepthOption,
    GrammarOption,
    LimitOption,
    NotOption,
    RegexOption,
    SchemaOption,
    SchemaOptionsOption,
    TypeOption,
    apply_limits,
    check_writable,
    write_text,
)
from diffinity.errors import InvalidArgument


def inspect(
    regex: RegexOption = None,
    json_schema: SchemaOption = None,
    schema_option: SchemaOptionsOption = None,
    grammar: GrammarOption = None,
    grammar_depth: GrammarDepthOption = GRAMMAR_DEPTH,
    choice: ChoiceOption = None,
    type_name: TypeOption = None,
    contains: ContainsOption = None,
    not_regex: NotOption = None,
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json to align with.")] = None,
    framing: Annotated[str, typer.Option(help="exact, eos, eos_strict or search.")] = "eos",
    samples: Annotated[int, typer.Option(help="Number of random texts.", min=0)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the random texts.", min=0)] = 0,
    svg: Annotated[Path | None, typer.Option(help="Write a picture of the byte automaton.")] = None,
    paper_counts: Annotated[bool, typer.Option(help="Also count transitions as the paper's code does.")] = False,
    limit: LimitOption = None,
) -> None:
    """Describe constraints: states, classes, transitions, the shortest text and random texts.

    Example: diffinity inspect --json-schema order.json --svg order.svg
    """
    from diffinity.alignment import FRAMINGS, Vocabulary
    from diffinity.inspection import inspect as inspect_constraint
    from diffinity.models.pretrained import read_tokenizer

    if framing not in FRAMINGS:
        raise InvalidArgument(f"--framing must be one of {', '.join(FRAMINGS)}, but is {framing!r}")
    apply_limits(limit)
    if svg is not None:
        check_writable(svg)
    constraint = ConstraintOptions(
        regex, json_schema, choice, type_name, contains, not_regex, grammar, grammar_depth, schema_option
    ).constraint()
    if constraint is None:
        raise InvalidArgument(
            "give a constraint: --regex, --json-schema, --grammar, --choice, --type, --contains or --not-regex"
        )
    vocabulary = Vocabulary.from_tokenizer(read_tokenizer(tokenizer)) if tokenizer else None
    inspection = inspect_constraint(
        constraint,
        vocabulary,
        framing=framing,
        samples=samples,
        seed=seed,
        paper_counts=paper_counts,
    )
    table = Table(show_header=False)
    table.add_row(
        "byte automaton", f"{inspection.byte_states:,} states, {inspection.byte_classes} classes of bytes"
    )
    table.add_row("texts", "finitely many" if inspection.finite else "infinitely many")
    if inspection.tokens is not None:
        automaton = inspection.tokens
        table.add_row(
            "token automaton", f"{automaton.n_states:,} states, {automaton.n_classes:,} classes of tokens"
        )
        table.add_row("transitions", f"{automaton.n_transitions:,}")
        if inspection.paper_transitions is not None:
            table.add_row("as the paper's code counts", f"{inspection.paper_transitions:,}")
        shortest = inspection.shortest_tokens
        table.add_row("fewest tokens", "no sequence" if shortest is None else str(len(shortest)))
    table.add_row(
        "shortest", "no text at all" if inspection.shortest is None else escape(repr(inspection.shortest.decode()))
    )
    for text in inspection.samples:
        table.add_row("random", escape(repr(text.decode())))
    out.print(table)
    if svg is not None:
        write_text(svg, constraint.dfa().to_svg())
        out.print(f"wrote {svg}", soft_wrap=True)
