"""Build the wheel and the sdist, check both, and use the wheel in a fresh environment.

    make release-check

Checks the metadata (`twine check`), the sizes, the files that must be inside, and that the installed package
generates text which satisfies its constraint. All versions are those of constraints.txt.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 35_000_000  # bytes of a file that is published
IN_WHEEL = (
    "diffinity/py.typed",
    "diffinity/trace_page.html",
    "diffinity/serve/page.html",
    "diffinity/models/embedded/default/model.safetensors",
    "diffinity/models/embedded/default/tokenizer.json",
)
IN_SDIST = (
    "README.md",
    "LICENSE",
    "CITATION.cff",
    "constraints.txt",
    "Makefile",
    "tests/test_docs.py",
    "docs/index.md",
)
PATTERN = r"(?:I|We) [a-z ]+ (?:every|on) Monday\."
SMOKE = f"""
import re, diffinity as dy
texts = [g.text for g in dy.generate(dy.load(), dy.Regex({PATTERN!r}), n=2, length=20, num_inference_steps=8)]
assert all(re.fullmatch({PATTERN!r}, text) for text in texts), texts
print(dy.__version__, dy.__file__, *texts, sep="\\n")
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The output of a command; the check ends with an error if the command fails."""
    environment = {
        **os.environ,
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    environment.pop("PYTHONPATH", None)  # the installed package, not the checkout
    process = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise SystemExit(f"error: {' '.join(map(str, command))} failed\n{process.stdout}{process.stderr}")
    return process.stdout


def check_files(path: Path) -> None:
    """Check the size of a file to be published, and that it contains the required files."""
    size = path.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"error: {path.name} has {size:,} bytes; at most {LARGEST:,} are allowed")
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
        missing = [name for name in IN_WHEEL if name not in names]
        extra = sorted({name.split("/")[0] for name in names if not re.match(r"diffinity[/-]", name)})
        if extra:
            raise SystemExit(f"error: {path.name} would install more than the package: {', '.join(extra)}")
    else:
        with tarfile.open(path) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        missing = [name for name in IN_SDIST if name not in names]
    if missing:
        raise SystemExit(f"error: {path.name} lacks {', '.join(missing)}")
    print(f"{path.name}: {size / 1e6:.1f} MB")


def main() -> None:
    """Build, check, install, use."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
        files = sorted((folder / "dist").iterdir())
        print(run(sys.executable, "-m", "twine", "check", "--strict", *files).strip())
        for path in files:
            check_files(path)
        (wheel,) = (folder / "dist").glob("*.whl")
        venv.create(folder / "fresh", with_pip=True)
        python = folder / "fresh" / "bin" / "python"
        run(python, "-m", "pip", "install", "-q", wheel)
        run(python, "-m", "pip", "check")
        print(run(python, "-c", SMOKE, cwd=folder).strip())
        program = folder / "fresh" / "bin" / "diffinity"
        options = ("--choice", "yes", "--choice", "no", "--length", "8", "--steps", "4")
        answer = run(program, "generate", *options, cwd=folder).strip()
        if answer not in ("yes", "no"):
            raise SystemExit(f"error: the installed command line wrote {answer!r}")
    print(f"the release is sound ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
