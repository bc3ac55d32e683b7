"""`diffinity serve`: a server with OpenAI's API, and a page that shows text while it is denoised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffinity.commands.console import out
from diffinity.commands.options import DeviceOption, ModelOption, check_device
from diffinity.errors import Failure, MissingExtra

if TYPE_CHECKING:
    from diffinity.models.protocol import TextModel
    from diffinity.serve.settings import ServeSettings


def serve(
    model: ModelOption = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; by default this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65535)] = 8000,
    device: DeviceOption = "cpu",
    model_name: Annotated[str | None, typer.Option(help="Name of the model for clients.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code from the model's repository.")
    ] = False,
    ignore_prompt: Annotated[
        bool,
        typer.Option("--ignore-prompt", help="Ignore prompts if the model reads none, instead of refusing them."),
    ] = False,
    max_batch: Annotated[int, typer.Option(help="Texts that are denoised together.", min=1)] = 16,
    batch_delay: Annotated[
        float, typer.Option(help="Seconds that a request waits for others to join its batch.", min=0)
    ] = 0.01,
    max_waiting: Annotated[int, typer.Option(help="Texts that may wait; more get 429.", min=1)] = 256,
    deadline: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 120.0,
    drain: Annotated[float, typer.Option(help="Seconds to finish running requests after SIGTERM.")] = 120.0,
    max_n: Annotated[int, typer.Option(help="Texts of one request.", min=1)] = 16,
    max_tokens: Annotated[int, typer.Option(help="Tokens of one text.", min=1)] = 1024,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.", min=1)] = 1_000_000,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with one API key per line; $DIFFINITY_API_KEYS separates keys by commas."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="An allowed name in the Host header; repeatable.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the network.", min=1)] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Run as a Ray Serve deployment.")] = False,
    replicas: Annotated[
        int, typer.Option(help="With --ray: number of replicas, each with its own model.", min=1)
    ] = 1,
    address: Annotated[
        str | None, typer.Option(help="With --ray: address of the cluster, as for ray.init.")
    ] = None,
) -> None:
    """Serve a model as OpenAI's API, with a page at / that shows text being denoised.

    Example: diffinity serve --model runs/mine/model --port 8080
    """
    _check_installed()
    from diffinity.models.loading import load
    from diffinity.serve.settings import LOOPBACK, NAME, ServeSettings, read_keys

    hosts = tuple(allow_host or ())
    settings = ServeSettings(
        model_name=model_name or (Path(model).name if model else NAME),
        ignore_prompt=ignore_prompt,
        max_batch=max_batch,
        batch_delay=batch_delay,
        max_waiting=max_waiting,
        deadline=deadline,
        max_n=max_n,
        max_tokens=max_tokens,
        max_body=max_body,
        key_digests=read_keys(api_key_file),
        # On loopback, other Host names are refused, so that a hostile page can't use DNS rebinding.
        allowed_hosts=(*LOOPBACK, *hosts) if hosts or host in LOOPBACK else (),
    )
    if ray:
        from diffinity.serve.on_ray import Loading, run_on_ray

        loading = Loading(model, device, trust_remote_code)
        run_on_ray(loading, settings, host=host, port=port, replicas=replicas, address=address)
        return
    check_device(device)
    lm = load(model, device=device, trust_remote_code=trust_remote_code)
    _serve_here(lm, settings, host, port, drain, threads)


def _serve_here(
    model: TextModel, settings: ServeSettings, host: str, port: int, drain: float, threads: int | None
) -> None:
    import torch

    from diffinity.serve.app import create_app
    from diffinity.serve.server import make_server

    if threads is not None:
        torch.set_num_threads(threads)
    app = create_app(model, settings)
    server = make_server(app, host, port, read_seconds=settings.read_seconds, drain_seconds=drain)
    address = f"[{host}]" if ":" in host else host
    out.print(f"serving {settings.model_name} on http://{address}:{port}  (Ctrl-C ends)", soft_wrap=True)
    try:
        server.run()
    except SystemExit:
        raise Failure(f"the server can't listen on {host}:{port}: see the message above") from None


def _check_installed() -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            f"serve needs packages that are not installed ({error}): pip install 'diffinity[serve]'"
        ) from None
