"""Downloads against a server on this machine: resumed, verified, refused."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import socket
import tarfile
from collections import namedtuple
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest
import torch

from diffinity.errors import CheckpointError, DownloadError, InvalidArgument
from diffinity.models import transfer as transfer_module
from diffinity.models.archive import MEMBERS, unpack
from diffinity.models.download import RELEASES, Release, RemoteFile, download, fetch_release, read_sums
from diffinity.models.loading import load
from diffinity.models.plaid import PlaidConfig
from diffinity.models.plaid_import import PARTS
from diffinity.models.plaid_lm import PlaidLM
from tests.models.file_server import FileServer, etag, serve
from tests.models.plaid_fixture import small_tokenizer

BODY = bytes(range(256)) * 4000  # about 1 MB: more than a socket buffers
USAGE = namedtuple("USAGE", "total used free")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_module, "BACKOFF_SECONDS", (0.0, 0.0, 0.0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serve() as state:
        state.files = {"w.gz.00": BODY, "w.gz.01": b"the rest", "tokenizer.json": b"{}"}
        yield state


def release_on(server: FileServer, *, listing: str | None = None) -> Release:
    names = sorted(name for name in server.files if name.startswith("w.gz"))
    return Release(
        "small",
        tuple(RemoteFile(server.url(name)) for name in names),
        RemoteFile(server.url("tokenizer.json")),
        server.url(listing) if listing else None,
    )


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_all_files_arrive_and_their_checksums_are_recorded(server: FileServer, tmp_path: Path) -> None:
    folder = download(release_on(server), tmp_path / "new")
    assert folder == tmp_path / "new"
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "SHA256SUMS"} == server.files
    assert read_sums(folder / "SHA256SUMS") == {name: sha256(body) for name, body in server.files.items()}


def test_progress_counts_up_to_the_size_of_each_file(server: FileServer, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    download(release_on(server), tmp_path, progress=lambda *news: seen.append(news))
    assert {total for name, _, total in seen if name == "w.gz.00"} == {len(BODY)}
    counts = [done for name, done, _ in seen if name == "w.gz.00"]
    assert counts == sorted(counts)
    assert counts[-1] == len(BODY)
    assert ("tokenizer.json", 2, 2) in seen


def test_a_cut_connection_is_retried_from_where_it_broke(server: FileServer, tmp_path: Path) -> None:
    server.cuts["w.gz.00"] = [300_000, 100_000]
    download(release_on(server), tmp_path)
    assert (tmp_path / "w.gz.00").read_bytes() == BODY
    assert server.transfers("w.gz.00") == [
        (None, None),
        ("bytes=300000-", etag(BODY)),
        ("bytes=400000-", etag(BODY)),
    ]


def test_after_four_cuts_the_error_says_what_arrived_and_the_next_run_resumes(
    server: FileServer, tmp_path: Path
) -> None:
    server.cuts["w.gz.00"] = [100, 100, 100, 100]
    with pytest.raises(DownloadError, match=r"w\.gz\.00: .*400 bytes of 1\.0 MB .*the same command resumes"):
        download(release_on(server), tmp_path)
    assert (tmp_path / "w.gz.00.part").read_bytes() == BODY[:400]
    server.log.clear()
    download(release_on(server), tmp_path)
    assert server.transfers("w.gz.00") == [("bytes=400-", etag(BODY))]
    assert (tmp_path / "w.gz.00").read_bytes() == BODY
    assert not list(tmp_path.glob("*.part*"))


def test_an_interrupt_keeps_what_arrived(server: FileServer, tmp_path: Path) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(release_on(server), tmp_path, progress=interrupt)
    kept = (tmp_path / "w.gz.00.part").read_bytes()
    assert kept
    assert BODY.startswith(kept)
    server.log.clear()
    download(release_on(server), tmp_path)
    assert server.transfers("w.gz.00") == [(f"bytes={len(kept)}-", etag(BODY))]


def test_a_server_without_ranges_starts_again_from_zero(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts["w.gz.00"] = [300_000]
    download(release_on(server), tmp_path)
    assert len(server.transfers("w.gz.00")) == 2
    assert (tmp_path / "w.gz.00").read_bytes() == BODY


@pytest.mark.parametrize("etags", [True, False])
def test_a_file_that_changed_between_runs_is_never_mixed(server: FileServer, tmp_path: Path, etags: bool) -> None:
    server.etags = etags
    server.cuts["w.gz.00"] = [100, 100, 100, 100]
    with pytest.raises(DownloadError):
        download(release_on(server), tmp_path)
    server.files["w.gz.00"] = b"other" * 100 if etags else b"short"  # without ETag, only a size can give it away
    download(release_on(server), tmp_path)
    assert (tmp_path / "w.gz.00").read_bytes() == server.files["w.gz.00"]


@pytest.mark.parametrize("if_ranges", [True, False])
def test_a_file_that_changes_during_a_run_is_never_mixed(
    server: FileServer, tmp_path: Path, if_ranges: bool
) -> None:
    server.if_ranges = if_ranges
    server.cuts["w.gz.00"] = [100]
    changed = BODY[::-1]

    def change(name: str, done: int, total: int) -> None:
        server.files["w.gz.00"] = changed

    download(release_on(server), tmp_path, progress=change)
    assert (tmp_path / "w.gz.00").read_bytes() == changed


def test_a_file_that_changes_its_size_during_a_run_is_refused(server: FileServer, tmp_path: Path) -> None:
    server.cuts["w.gz.00"] = [100]

    def change(name: str, done: int, total: int) -> None:
        server.files["w.gz.00"] = BODY + b"more"

    with pytest.raises(DownloadError, match="first offered 1,024,000 bytes and now sends 1,024,004"):
        download(release_on(server), tmp_path, progress=change)


def test_a_part_of_an_older_version_is_discarded(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "w.gz.00.part").write_bytes(BODY[::-1])
    (tmp_path / "w.gz.00.part.validator").write_text(etag(BODY[::-1]))
    download(release_on(server), tmp_path)
    assert (tmp_path / "w.gz.00").read_bytes() == BODY


def test_a_part_that_is_too_long_is_discarded(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "w.gz.00.part").write_bytes(BODY + b"more")
    download(release_on(server), tmp_path)
    assert (tmp_path / "w.gz.00").read_bytes() == BODY
    assert server.transfers("w.gz.00") == [(None, None)]


def test_a_part_that_is_complete_is_not_fetched_again(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "w.gz.00.part").write_bytes(BODY)
    download(release_on(server), tmp_path)
    assert server.transfers("w.gz.00") == []
    assert (tmp_path / "w.gz.00").read_bytes() == BODY


def test_an_unsatisfiable_range_starts_again(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "w.gz.00.part").write_bytes(BODY[:500])
    server.statuses["w.gz.00"] = [416]
    download(release_on(server), tmp_path)
    assert server.transfers("w.gz.00") == [("bytes=500-", None), (None, None)]
    assert (tmp_path / "w.gz.00").read_bytes() == BODY


def test_an_empty_file_is_fetched(server: FileServer, tmp_path: Path) -> None:
    server.files["tokenizer.json"] = b""
    assert (download(release_on(server), tmp_path) / "tokenizer.json").read_bytes() == b""


def test_complete_files_are_verified_without_the_server(server: FileServer, tmp_path: Path) -> None:
    release = release_on(server, listing="listing")
    download(release, tmp_path)
    server.log.clear()
    download(release, tmp_path)
    assert server.log == []


def test_a_missing_file_is_named_with_404(server: FileServer, tmp_path: Path) -> None:
    release = release_on(server)
    del server.files["w.gz.01"]
    with pytest.raises(DownloadError, match=r"w\.gz\.01 could not be fetched: .*no such file \(HTTP 404\)"):
        download(release, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_server_error_is_retried(server: FileServer, tmp_path: Path) -> None:
    server.statuses["w.gz.00"] = [500, 503]
    download(release_on(server), tmp_path)
    assert (tmp_path / "w.gz.00").read_bytes() == BODY


def test_a_lasting_server_error_ends_in_one_sentence(server: FileServer, tmp_path: Path) -> None:
    server.statuses["w.gz.00"] = [500] * 4
    with pytest.raises(DownloadError, match=r"w\.gz\.00: the server answered 500, 4 times"):
        download(release_on(server), tmp_path)


def test_a_forbidden_file_is_not_retried(server: FileServer, tmp_path: Path) -> None:
    server.statuses["w.gz.00"] = [403]
    with pytest.raises(DownloadError, match=r"the server forbids it \(HTTP 403\)"):
        download(release_on(server), tmp_path)
    assert len(server.transfers("w.gz.00")) == 1


def test_a_server_that_hides_the_size_is_refused(server: FileServer, tmp_path: Path) -> None:
    server.ranges = server.sizes = False
    with pytest.raises(DownloadError, match="does not say how large"):
        download(release_on(server), tmp_path)


def test_no_server_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/w.gz.00"
    with pytest.raises(DownloadError, match=r"w\.gz\.00 could not be reached: Connection refused$"):
        download(Release("small", (RemoteFile(url),), RemoteFile(url)), tmp_path)


def test_a_redirect_from_https_to_http_is_refused() -> None:
    handler = transfer_module._NoDowngrade()
    request = Request("https://example.org/a")
    with pytest.raises(URLError, match="refused"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), "http://example.org/a")
    followed = handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), "https://example.com/a")
    assert followed is not None
    assert followed.full_url == "https://example.com/a"


def test_a_wrong_checksum_is_refused_and_the_file_removed(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(
        DownloadError, match=r"w\.gz\.01 has the wrong checksum.* that was given says 0000.*removed"
    ):
        download(release_on(server), tmp_path, checksums={"w.gz.01": 64 * "0"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["SHA256SUMS", "w.gz.00"]


def test_the_right_checksum_is_taken_in_upper_case_too(server: FileServer, tmp_path: Path) -> None:
    download(release_on(server), tmp_path, checksums={"w.gz.00": sha256(BODY).upper()})
    assert (tmp_path / "w.gz.00").is_file()


@pytest.mark.parametrize(
    ("checksums", "message"),
    [({"w.gz.07": 64 * "0"}, "not a file of small"), ({"w.gz.00": "abc"}, "64 hexadecimal digits")],
)
def test_checksums_that_cannot_match_are_refused_beforehand(
    server: FileServer, tmp_path: Path, checksums: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        download(release_on(server), tmp_path, checksums=checksums)
    assert server.log == []


def test_a_file_that_changed_on_disk_is_refused_by_the_record(server: FileServer, tmp_path: Path) -> None:
    download(release_on(server), tmp_path)
    (tmp_path / "w.gz.00").write_bytes(BODY[:-1] + b"x")
    with pytest.raises(DownloadError, match=r"w\.gz\.00 has the wrong checksum.*SHA256SUMS.*removed"):
        download(release_on(server), tmp_path)
    assert not (tmp_path / "w.gz.00").exists()
    download(release_on(server), tmp_path)
    assert (tmp_path / "w.gz.00").read_bytes() == BODY


def test_a_file_that_changed_on_the_server_is_refused_by_the_record(server: FileServer, tmp_path: Path) -> None:
    download(release_on(server), tmp_path)
    (tmp_path / "w.gz.00").unlink()
    server.files["w.gz.00"] = BODY[::-1]
    with pytest.raises(DownloadError, match=r"w\.gz\.00 has the wrong checksum.*SHA256SUMS"):
        download(release_on(server), tmp_path)
    assert not list(tmp_path.glob("w.gz.00*"))


def test_a_damaged_record_is_named(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text("hello\n")
    with pytest.raises(DownloadError, match=r"SHA256SUMS, line 1"):
        download(release_on(server), tmp_path)


def listing(**asset: object) -> bytes:
    return json.dumps({"assets": [{"name": "w.gz.00", **asset}]}).encode()


def test_a_digest_that_the_release_page_publishes_is_used(server: FileServer, tmp_path: Path) -> None:
    server.files["listing"] = listing(size=len(BODY), digest=f"sha256:{64 * '0'}")
    with pytest.raises(DownloadError, match=r"w\.gz\.00 has the wrong checksum.*the release's page says 000"):
        download(release_on(server, listing="listing"), tmp_path)
    server.files["listing"] = listing(size=len(BODY), digest=f"sha256:{sha256(BODY)}")
    download(release_on(server, listing="listing"), tmp_path)
    assert (tmp_path / "w.gz.00").is_file()


def test_a_size_that_the_release_page_contradicts_is_refused(server: FileServer, tmp_path: Path) -> None:
    server.files["listing"] = listing(size=7, digest=None)
    with pytest.raises(DownloadError, match=r"offers 1,024,000 bytes, but the release's page says 7"):
        download(release_on(server, listing="listing"), tmp_path)
    assert server.transfers("w.gz.00") == []


@pytest.mark.parametrize("page", [b"<html>", b"[]", b'{"assets": [1]}', b'{"assets": null}', None])
def test_a_release_page_that_cannot_be_read_does_not_matter(
    server: FileServer, tmp_path: Path, page: bytes | None
) -> None:
    release = release_on(server, listing="listing")
    if page is not None:
        server.files["listing"] = page
    download(release, tmp_path)
    assert server.log[0][0] == "listing"
    assert (tmp_path / "w.gz.00").read_bytes() == BODY


def test_too_little_disk_is_said_before_anything_is_fetched(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = len(BODY) + len(b"the rest")
    needed = archive + len(b"{}") + (2 + 2) * archive
    monkeypatch.setattr(shutil, "disk_usage", lambda path: USAGE(10**12, 0, needed - 1))
    with pytest.raises(
        DownloadError, match=r"needs 0\.01 GB to fetch, unpack and import, but .* has 0\.01 GB free"
    ):
        download(release_on(server), tmp_path)
    assert [asked for _, asked, _ in server.log] == ["bytes=0-0"] * 3
    monkeypatch.setattr(shutil, "disk_usage", lambda path: USAGE(10**12, 0, needed))
    download(release_on(server), tmp_path)


def test_what_has_arrived_is_not_counted_as_needed(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w.gz.00.part").write_bytes(BODY[:1000])
    archive = len(BODY) + len(b"the rest")
    needed = archive - 1000 + len(b"{}") + (2 + 2) * archive
    monkeypatch.setattr(shutil, "disk_usage", lambda path: USAGE(10**12, 0, needed))
    download(release_on(server), tmp_path)


def test_an_unknown_release_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no release 'plaid-9b'; known: plaid-1b"):
        fetch_release("plaid-9b", tmp_path / "out")


def test_plaid_1b_is_three_parts_and_a_tokenizer() -> None:
    release = RELEASES["plaid-1b"]
    assert [part.name for part in release.parts] == [f"plaid1b_weights.tar.gz.{n}" for n in ("00", "01", "02")]
    assert release.tokenizer.name == "owt2_tokenizer.json"
    assert all(file.url.startswith("https://") for file in release.files)


def test_a_folder_that_holds_a_model_is_not_overwritten(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="is there already"):
        fetch_release(release_on(server), tmp_path)
    assert server.log == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://example.org/", "https://example.org/.."])
def test_a_remote_file_is_an_http_address_with_a_name(url: str) -> None:
    with pytest.raises(InvalidArgument):
        RemoteFile(url)


@pytest.fixture
def published(server: FileServer, tmp_path: Path) -> PlaidLM:
    """A small PLAID with random weights, on the server in the layout of the published one."""
    torch.manual_seed(0)
    model = PlaidLM.create(
        PlaidConfig(vocab_size=40, dim=16, n_blocks=2, n_heads=2, embed_dim=4), small_tokenizer(40)
    )
    for parameter in model.modules.parameters():
        parameter.data.normal_(std=0.3)
    source = tmp_path / "plaid1b_weights"
    source.mkdir()
    for part in PARTS:
        torch.save(getattr(model.modules, part).state_dict(), source / f"{part}.pt")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(source, "plaid1b_weights")
    shutil.rmtree(source)
    third = len(packed.getvalue()) // 3
    server.files = {
        "w.gz.00": packed.getvalue()[:third],
        "w.gz.01": packed.getvalue()[third : 2 * third],
        "w.gz.02": packed.getvalue()[2 * third :],
        "tokenizer.json": model.tokenizer.to_str().encode(),
    }
    return model


def test_a_fetched_model_computes_what_the_published_one_does(
    server: FileServer, tmp_path: Path, published: PlaidLM
) -> None:
    server.cuts["w.gz.01"] = [50]
    out = fetch_release(release_on(server), tmp_path / "model")
    model = load(out)
    assert isinstance(model, PlaidLM)
    z, selfcond, noise_level = torch.randn(2, 5, 4), torch.randn(2, 5, 4), torch.tensor([-2.0, 1.0])
    assert torch.equal(model.denoise(z, noise_level, selfcond), published.denoise(z, noise_level, selfcond))
    assert torch.equal(
        model.noise_level(torch.tensor([0.2, 0.9])), published.noise_level(torch.tensor([0.2, 0.9]))
    )
    assert model.tokenizer.to_str() == published.tokenizer.to_str()
    assert sha256(server.files["w.gz.02"]) in (out / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_parts_are_kept_when_asked(server: FileServer, tmp_path: Path, published: PlaidLM) -> None:
    fetch_release(release_on(server), tmp_path / "model", keep_parts=True)
    kept = tmp_path / "model.download"
    assert {path.name for path in kept.iterdir()} == {*server.files, "SHA256SUMS", "weights"}
    assert {path.name for path in (kept / "weights").iterdir()} == set(MEMBERS)


def test_a_truncated_archive_is_refused(server: FileServer, tmp_path: Path, published: PlaidLM) -> None:
    server.files["w.gz.02"] = server.files["w.gz.02"][:-100]
    with pytest.raises(CheckpointError, match=r"w\.gz\.00 is damaged .*nothing was unpacked.*SHA256SUMS"):
        fetch_release(release_on(server), tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "model.download" / "weights").exists()


def test_parts_in_the_wrong_order_are_refused(server: FileServer, tmp_path: Path, published: PlaidLM) -> None:
    folder = download(release_on(server), tmp_path / "parts")
    with pytest.raises(CheckpointError):
        unpack([folder / name for name in ("w.gz.00", "w.gz.02", "w.gz.01")], tmp_path / "weights")
    assert list((tmp_path / "weights").iterdir()) == []


def test_a_full_disk_while_unpacking_keeps_the_downloads(
    server: FileServer, tmp_path: Path, published: PlaidLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PlaidLM, "save_pretrained", full)
    with pytest.raises(DownloadError, match=r"No space left on device; the downloaded files are kept"):
        fetch_release(release_on(server), tmp_path / "model")
    assert {path.name for path in (tmp_path / "model.download").iterdir()} == {*server.files, "SHA256SUMS"}
