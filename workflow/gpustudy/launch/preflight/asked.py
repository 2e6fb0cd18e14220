"""What a cell of the site asks Slurm for, as sbatch's options: what the checks compare with the site's limits."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from gpustudy.base.errors import UserError
from gpustudy.launch.own import require_account
from gpustudy.launch.requests import Requests
from gpustudy.study.cells import Keys
from gpustudy.study.load import Effective


@dataclass(frozen=True)
class Asked:
    """The request of one gpu's cells at a Slurm site: all stages of a cell in one job.

    Attributes:
        gpu: name of the gpu.
        account: the account that is charged; None where none is set.
        refusal: why there is none, as a run would say it; empty where there is one.
        partition: of the job.
        minutes: of all stages together (modelled).
        memory_mb: of the largest stage; 0 where none is asked for.
        jobs: jobs that the profile keeps queued at once.
        shape: options of sbatch for nodes, cores, GPUs.
    """

    gpu: str
    account: str | None
    refusal: str
    partition: str
    minutes: int
    memory_mb: int
    jobs: int
    shape: tuple[str, ...]

    def options(self, minutes: int | None = None) -> list[str]:
        """Return the options of sbatch; ``minutes`` in place of those of a whole cell."""
        account = ["-A", self.account] if self.account else []
        memory = [f"--mem={self.memory_mb}"] if self.memory_mb else []
        return [*account, "-p", self.partition, "-t", str(minutes or self.minutes), *self.shape, *memory]


def what_is_asked(effective: Effective) -> list[Asked]:
    """Return the requests of the site's gpus, the longest first; empty where the site has no Slurm.

    Raises:
        UserError: a mistake in ``site.local.yaml``, or an account that is a placeholder.
    """
    slurm = effective.study.sites[effective.site].slurm
    if slurm is None:
        return []
    requests, keys = Requests(effective), Keys(effective)
    account, refusal = _account(effective)
    found = []
    for gpu in effective.study.sites[effective.site].gpus:
        stages = keys.stages(gpu)
        named = requests.gpus(gpu)
        shape = [f"--nodes={slurm.nodes}"] if slurm.nodes else []
        model = f"{slurm.gpu_models[gpu]}:" if gpu in slurm.gpu_models else ""
        shape += [f"--gpus={model}{named}"] if named else ["--ntasks=1"]  # as Snakemake's executor has it
        shape += [f"--cpus-per-task={requests.cores(gpu)}", *shlex.split(slurm.extra)]
        found.append(
            Asked(
                gpu=gpu,
                account=account,
                refusal=refusal,
                partition=slurm.partition,
                minutes=sum(requests.minutes(gpu, stage) for stage in stages),
                memory_mb=max(requests.memory_mb(gpu, stage) for stage in stages),
                jobs=slurm.max_queued,
                shape=tuple(shape),
            )
        )
    return sorted(found, key=lambda asked: -asked.minutes)


def _account(effective: Effective) -> tuple[str | None, str]:
    try:
        return require_account(effective.study, effective.site), ""
    except UserError as error:
        return None, str(error)
