# The server as a container, from the wheel: `python -m build --wheel` (or `pip wheel --no-deps -w dist .`), then
#   docker build -t diffinity .
#   docker run --rm -p 127.0.0.1:8000:8000 -e DIFFINITY_API_KEYS=secret diffinity
FROM python:3.11-slim-bookworm AS install
COPY dist/diffinity-*.whl constraints.txt /tmp/
# On the CPU; for a GPU leave the index out and give `--device cuda` to the command.
RUN python -m venv /opt/diffinity \
 && wheel="$(ls /tmp/diffinity-*.whl)" \
 && /opt/diffinity/bin/pip install --no-cache-dir --constraint /tmp/constraints.txt \
      --extra-index-url https://download.pytorch.org/whl/cpu "${wheel}[serve]"

FROM python:3.11-slim-bookworm
RUN useradd --create-home --uid 10001 diffinity
COPY --from=install --chown=diffinity /opt/diffinity /opt/diffinity
USER 10001
WORKDIR /home/diffinity
ENV PATH=/opt/diffinity/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --start-period=120s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["diffinity", "serve", "--host", "0.0.0.0"]
