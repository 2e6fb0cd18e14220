# The 'current_cu126' stack: the same packages as 'current', with torch built for CUDA 12.6: the newest build that has
# kernels for Volta (V100), and one that drivers from 560 on can run.
FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04@sha256:ad6d59a3bbf3e82c1c849c9ac09cfc2a3e0bbb8655042fd899be6681b3fe2a85

# Where pip finds the CUDA 12.6 build of torch; it must be given (docs/containers.md).
ARG TORCH_INDEX
COPY envs/current.txt /opt/stack/pins.txt
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PYTHONNOUSERSITE=1
# numpy needs Python 3.11, the newest that this base's distribution has.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3.11 python3.11-venv bash ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN python3.11 -m venv /opt/stack/venv \
    && /opt/stack/venv/bin/pip install --extra-index-url "$TORCH_INDEX" -r /opt/stack/pins.txt
ENV PATH=/opt/stack/venv/bin:$PATH
# Another build of torch ends the build here.
RUN python -c "import torch; found = (torch.version.cuda, 'sm_70' in torch._C._cuda_getArchFlags()); print('CUDA, sm_70:', *found); assert found == ('12.6', True)" \
    && ncu --version
