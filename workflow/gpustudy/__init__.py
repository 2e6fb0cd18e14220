"""gpustudy: how training a 3D diffusion model behaves on GPU generations, cell by cell."""

__version__ = "0.1.0"
