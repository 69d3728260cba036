# An image with the command `pydantic-deep`. The tests do not build it: docs/guides/deploy.md.
FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels .

FROM python:3.13-slim
COPY --from=build /wheels/ /source/constraints.txt /tmp/wheels/
RUN pip install --no-cache-dir --constraint /tmp/wheels/constraints.txt \
        "$(echo /tmp/wheels/*.whl)[anthropic,blobs,cli,google,logfire,openai,postgres,server]" \
    && rm -r /tmp/wheels \
    && useradd --uid 10001 --create-home agents
USER agents
WORKDIR /app
ENV PYDANTIC_DEEP_SERVER_HOST=0.0.0.0 \
    PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=5)"]
ENTRYPOINT ["pydantic-deep"]
CMD ["serve"]
