# The 'current' stack: torch as pinned in envs/current.txt, in its default build (CUDA 13, from Turing to Blackwell), with
# the Nsight Compute of the base's CUDA toolkit.
FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04@sha256:ad6d59a3bbf3e82c1c849c9ac09cfc2a3e0bbb8655042fd899be6681b3fe2a85

# Where pip also looks for torch; empty: its own index alone.
ARG TORCH_INDEX=""
COPY envs/current.txt /opt/stack/pins.txt
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PYTHONNOUSERSITE=1
# numpy needs Python 3.11, the newest that this base's distribution has.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3.11 python3.11-venv bash ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN python3.11 -m venv /opt/stack/venv \
    && /opt/stack/venv/bin/pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r /opt/stack/pins.txt
ENV PATH=/opt/stack/venv/bin:$PATH
# Another build of torch ends the build here.
RUN python -c "import torch; found = (torch.version.cuda.split('.')[0], 'sm_100' in torch._C._cuda_getArchFlags()); print('CUDA, sm_100:', *found); assert found == ('13', True)" \
    && ncu --version
