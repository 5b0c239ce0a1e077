# The load test as an image, for compose.yaml: the server's own Python and what the scripts need beside it. Context: scripts/.
FROM torchserve-byoc:cpu
COPY requirements.txt /opt/load/
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=pipconf,target=/etc/pip.conf \
    /opt/byoc/venv/bin/python -m pip install --no-deps --require-hashes --disable-pip-version-check -r /opt/load/requirements.txt
COPY checkout.py load_test.py /opt/load/
COPY loading /opt/load/loading
HEALTHCHECK NONE
ENTRYPOINT ["/opt/byoc/venv/bin/python", "/opt/load/load_test.py"]
CMD ["--help"]
