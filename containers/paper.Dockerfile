# The 'paper' stack: torch 2.0.1 built for CUDA 11.8 (the build that knows sm_90; PyPI's is for CUDA 11.7 and does not),
# its cuDNN replaced by 8.9.2, and the Nsight Compute of CUDA 12.9, which the paper names and which still knows Volta.
FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04@sha256:8f9dd0d09d3ad3900357a1cf7f887888b5b74056636cd6ef03c160c3cd4b1d95

# Where pip finds the CUDA 11.8 build of torch; it must be given (docs/containers.md).
ARG TORCH_INDEX
COPY envs/paper.txt /opt/stack/pins.txt
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PYTHONNOUSERSITE=1
# The base has the ncu of CUDA 11.8, which is older: the one from NVIDIA's package repository goes first on PATH.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3.10 python3.10-venv bash ca-certificates cuda-nsight-compute-12-9 \
    && rm -rf /var/lib/apt/lists/* \
    && ln -sf "$(ls -d /opt/nvidia/nsight-compute/* | sort -V | tail -n 1)/ncu" /usr/local/bin/ncu
RUN python3.10 -m venv /opt/stack/venv \
    && /opt/stack/venv/bin/pip install --extra-index-url "$TORCH_INDEX" -r /opt/stack/pins.txt
# This build of torch loads the cuDNN that lies beside its own libraries.
RUN /opt/stack/venv/bin/pip install --no-deps --target /opt/stack/cudnn nvidia-cudnn-cu11==8.9.2.26 \
    && cp -f /opt/stack/cudnn/nvidia/cudnn/lib/libcudnn*.so.8 /opt/stack/venv/lib/python3.10/site-packages/torch/lib/ \
    && rm -rf /opt/stack/cudnn
ENV PATH=/opt/stack/venv/bin:$PATH
# Another build of torch or another cuDNN ends the build here.
RUN python -c "import torch; found = (torch.version.cuda, torch.backends.cudnn.version(), 'sm_90' in torch._C._cuda_getArchFlags()); print('CUDA, cuDNN, sm_90:', *found); assert found == ('11.8', 8902, True)" \
    && ncu --version
