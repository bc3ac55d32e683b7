"""`diffinity corpus`: the documents that the embedded models are trained on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from diffinity.commands.console import err, out
from diffinity.errors import InvalidArgument

app = typer.Typer(
    help="Documents to train on: from public sources, and structured text of our own.", no_args_is_help=True
)


@app.command()
def build(
    sources: Annotated[
        list[str],
        typer.Argument(help="Sources with their files or folders: tatoeba=eng_sentences.tsv star=dialogues/ …"),
    ],
    out_file: Annotated[Path, typer.Option("--out", help="The corpus file to write (JSON lines).")] = Path(
        "corpus.jsonl"
    ),
    rarest_word: Annotated[
        int | None, typer.Option(help="Leave out English documents with a word that occurs less often.", min=1)
    ] = None,
    rarest_triple: Annotated[
        int | None,
        typer.Option(help="Leave out sentences with three words in a row that occur less often.", min=1),
    ] = None,
) -> None:
    """Turn public text into training documents: cleaned, cut to length, without repetitions.

    Sources: tatoeba, commonvoice, storybooks, ebooks, star, taskmaster, corpora, schemastore; `diffinity corpus
    sources` describes them.

    Example: diffinity corpus build tatoeba=eng_sentences.tsv commonvoice=sentences.txt --out corpus.jsonl
    """
    from diffinity.training.corpus.public.build import RAREST_TRIPLE, RAREST_WORD, Document, write_documents

    paths: dict[str, str | Path] = {}
    for entry in sources:
        name, separator, path = entry.partition("=")
        if not separator or not path:
            raise InvalidArgument(f"a source is NAME=PATH, such as tatoeba=eng_sentences.tsv, not {entry!r}")
        paths[name] = path
    counts_so_far: Counter[str] = Counter()
    with err.status("reading") as status:

        def count_document(document: Document) -> None:
            counts_so_far[document.source] += 1
            if counts_so_far.total() % 10_000 == 0:
                status.update(f"{counts_so_far.total():,} documents written")

        counts = write_documents(
            paths, out_file, rarest_word or RAREST_WORD, rarest_triple or RAREST_TRIPLE, count_document
        )
    out.print(f"wrote {out_file}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))


@app.command()
def sources() -> None:
    """List the public sources that `build` reads, with licence and attribution.

    Example: diffinity corpus sources
    """
    from diffinity.training.corpus.public.readers import SOURCES

    for source in SOURCES.values():
        out.print(
            f"{source.name:<12} {source.form:<10} {source.licence:<13} {source.attribution}", highlight=False
        )


@app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(help="A corpus file from `build`; without it, only structured text.")
    ] = None,
    documents: Annotated[int, typer.Option(help="Number of documents.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="The same seed shows the same documents.", min=0)] = 0,
) -> None:
    """Print documents as training draws them, as JSON lines.

    Example: diffinity corpus show corpus.jsonl --documents 5
    """
    from diffinity.training.corpus.public.build import read_documents
    from diffinity.training.data import DocumentSource, GeneratedCorpus, first_documents
    from diffinity.training.mixture import MixedCorpus

    corpus: DocumentSource = GeneratedCorpus(seed)
    if file is not None:
        corpus = MixedCorpus([document for document in read_documents(file) if not document.held_out], seed)
    for text in first_documents(corpus, documents):
        print(json.dumps({"text": text}, ensure_ascii=False))
