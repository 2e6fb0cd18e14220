# The 'paper' stack: torch 2.0.1 built for CUDA 11.8 (the build that knows sm_90), on a CUDA 11.8 base.
FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04@sha256:8f9dd0d09d3ad3900357a1cf7f887888b5b74056636cd6ef03c160c3cd4b1d95

# Where pip finds the CUDA 11.8 build of torch; empty: its default index, which holds the CUDA 11.7 build.
ARG TORCH_INDEX=""
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PYTHONNOUSERSITE=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3.11 python3.11-venv bash ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY envs/paper.txt /opt/stack/pins.txt
RUN python3.11 -m venv /opt/stack/venv \
    && /opt/stack/venv/bin/pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r /opt/stack/pins.txt
ENV PATH=/opt/stack/venv/bin:$PATH
