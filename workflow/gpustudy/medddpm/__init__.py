"""The workload: the Med-DDPM U-Net, its diffusion, training and sampling, written from published facts."""
