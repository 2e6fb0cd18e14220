"""Answers of a real Slurm 22.05.8, recorded on a one-node cluster, and one of TACC's form from its documentation."""

from __future__ import annotations

from gpustudy.launch.tools import Answer

UP = "Slurmctld(primary) at login1 is UP\n"
NO_CONFIGURATION = Answer(
    1,
    err="scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
    "scontrol: error: fetch_config: DNS SRV lookup failed\n"
    "scontrol: error: _establish_config_source: failed to fetch config\n"
    "scontrol: fatal: Could not establish a configuration source\n",
)
PARTITION = (
    "PartitionName=gpu-shared AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=00:30:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=vm PriorityJobFactor=1 PriorityTier=10 "
    "RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=8 TotalNodes=1 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerCPU=1000 MaxMemPerNode=UNLIMITED "
    "TRES=cpu=8,mem=12000M,node=1,billing=8,gres/gpu=4,gres/gpu:v100=4\n"
)
NO_PARTITION = Answer(1, "Partition gpu-shared not found\n")
ASSOCIATIONS = "abc123||\nroot||\n"
TAKEN = Answer(
    0, err="sbatch: Job 1 to start at 2026-11-29T21:55:00 using 1 processors on nodes vm in partition gpu-shared\n"
)
NO_NODE = Answer(1, err="allocation failure: Requested node configuration is not available\n")
TACC_REFUSES = Answer(
    1,
    err="sbatch: error: --> Verifying no --gres/--gpus option (gres:gpu:1)...FAILED\n"
    "allocation failure: Unspecified error\n",
)
TACC_BANNER = """\
-----------------------------------------------------------------
          Welcome to the Stampede3 Supercomputer
-----------------------------------------------------------------
No reservation for this job
--> Verifying valid submit host (login1)...OK
--> Verifying valid jobname...OK
--> Verifying access to desired queue (h100)...OK
--> Checking available allocation (abc123)...OK
"""

SITE = {
    "scontrol ping": UP,
    "sinfo --version": "slurm-wlm 22.05.8\n",
    "env -u SLURM_CONF scontrol ping": UP,
    "sacctmgr -n -P show assoc": ASSOCIATIONS,
    "scontrol show partition gpu-shared": PARTITION,
    "sbatch --test-only": TAKEN,
    "apptainer --version": "apptainer version 1.4.5\n",
}
"""A site where all is well."""
