"""The workload: the Med-DDPM U-Net, its diffusion, training and sampling, written from published facts."""

from gpustudy.medddpm.diffusion import Diffusion
from gpustudy.medddpm.published import load_published
from gpustudy.medddpm.unet import UNet3D

__all__ = ["Diffusion", "UNet3D", "load_published"]
