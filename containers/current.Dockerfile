# The 'current' stack: torch as pinned in envs/current.txt, with the ncu of the base image's CUDA toolkit.
FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04@sha256:ad6d59a3bbf3e82c1c849c9ac09cfc2a3e0bbb8655042fd899be6681b3fe2a85

# Where pip finds CUDA builds of torch; empty: its default index.
ARG TORCH_INDEX=""
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PYTHONNOUSERSITE=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3.11 python3.11-venv bash ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY envs/current.txt /opt/stack/pins.txt
RUN python3.11 -m venv /opt/stack/venv \
    && /opt/stack/venv/bin/pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r /opt/stack/pins.txt
ENV PATH=/opt/stack/venv/bin:$PATH
