# syntax=docker/dockerfile:1
# One image for every process of ours, one more with a browser for crawl nodes (docker-compose.yml says which of them a
# container is), and one that is the whole platform, to try it.

FROM python:3.14-slim-trixie AS build
RUN pip install --no-cache-dir "uv>=0.9,<1"
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/var/cache/uv
WORKDIR /app
# what changes seldom comes first: a change of ours rebuilds only the last two layers
COPY pyproject.toml uv.lock ./
COPY client/pyproject.toml client/
# what is not in every image: `--build-arg EXTRAS="--extra sqs --extra otel"`
ARG EXTRAS=""
RUN --mount=type=cache,target=/var/cache/uv uv sync --locked --no-dev --no-install-project \
    --no-install-package discoverybot-client $EXTRAS
COPY README.md LICENSE scrapy.cfg scrapyd.conf celery_app.py ./
COPY gateway gateway
COPY crawler crawler
COPY embedded embedded
COPY client client
RUN --mount=type=cache,target=/var/cache/uv uv sync --locked --no-dev $EXTRAS

FROM python:3.14-slim-trixie AS runtime
LABEL org.opencontainers.image.title="DiscoveryBot" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.3.0"
# eggs are other people's code: no root, and nothing of ours that they could write to
RUN useradd --system --uid 10001 --home-dir /data --no-create-home discoverybot \
    && install --directory --owner=discoverybot --group=discoverybot --mode=0750 /data /files
COPY --from=build /app /app
ENV PATH="/app/.venv/bin:$PATH" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 DISCOVERYBOT_HOME=/data
USER discoverybot
# scrapyd.conf, scrapy.cfg and celery_app.py are found in the working directory
WORKDIR /app
VOLUME /data

# the whole platform in one container: `docker run -p 8001:8001 …` prints an admin's key and the console's address
FROM runtime AS laptop
ENV GATEWAY_HOST=0.0.0.0
EXPOSE 8001
CMD ["discoverybot", "up"]

# renders pages; two thirds of a gigabyte that only nodes need
FROM runtime AS node
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium fonts-liberation fonts-noto-cjk \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=cache,target=/var/cache/uv \
    UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/var/cache/uv \
    uv sync --locked --no-dev --inexact --no-install-project \
    --no-install-package discoverybot-client --extra render
USER discoverybot
EXPOSE 6800
CMD ["scrapyd", "--pidfile="]

# last, so that it is what a build without a target makes
FROM runtime AS scheduler
EXPOSE 8001
CMD ["python", "-m", "gateway.web"]
