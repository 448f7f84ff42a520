# The service alone, installed from hash-checked locks. Build: docker build -t rollway .
FROM python:3.13-slim AS build
# For what is compiled; it stays behind in this stage.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /src
RUN python -m venv /opt/rollway
COPY requirements/service.lock requirements/build.lock requirements/
RUN /opt/rollway/bin/pip install --no-cache-dir --require-hashes -r requirements/service.lock -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY client/pyproject.toml client/LICENSE client/
COPY client/src client/src
COPY app app
COPY storage storage
COPY schemas schemas
RUN /opt/rollway/bin/pip install --no-cache-dir --no-deps --no-build-isolation ./client .

FROM python:3.13-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/rollway rollway
COPY --from=build /opt/rollway /opt/rollway
ENV PATH=/opt/rollway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ROLLWAY_DATA_DIR=/var/lib/rollway/data
USER rollway
VOLUME /var/lib/rollway
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["rollway"]
CMD ["serve"]
