"""A Slurm on this machine, on loopback: munged, slurmctld, slurmd; one node, two CPUs and a GPU
that is none.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path

PROGRAMS = [
    "setpriv",
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "squeue",
    "scontrol",
    "scancel",
    "sinfo",
]
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin"
ENDS_WITH_US = ("setpriv", "--pdeathsig", "TERM")  # what it starts is ended when the test dies
PATIENCE = 60  # seconds until a daemon must have answered

# Loopback alone, no cgroups, no accounting database: finished jobs stay in the controller's memory
# and in jobs.log.
SLURM_CONF = """
ClusterName=fa-audit-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskProlog={folder}/bin/prolog
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,sched_interval=5
MinJobAge=86400
ReturnToService=2
JobRequeue=0
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=16000 Gres=gpu:fake:1
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
GRES_CONF = "AutoDetect=off\nNodeName={host} Name=gpu Type=fake File=/dev/null\n"
# What Slurm calls GPU 0 must not be the first GPU of a machine that has some.
PROLOG = '#!/bin/sh\n[ -z "$CUDA_VISIBLE_DEVICES" ] || echo export CUDA_VISIBLE_DEVICES=99$CUDA_VISIBLE_DEVICES\n'
GPU = "990"
ACCOUNTS = "#!/bin/sh\necho my_group\n"  # what sacctmgr would say, with accounting
# The executor hides every SLURM_* variable from srun, which elsewhere finds its configuration in
# /etc.
SRUN = '#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {srun} "$@"\n'


class Cluster:
    """What a running Slurm is asked.

    Attributes:
        environment: this process's, for commands that talk to this Slurm and to no other.
    """

    def __init__(self, folder):
        self.folder = folder
        foreign = ("SLURM", "SBATCH", "SRUN", "SQUEUE", "SINFO", "SCANCEL", "SNAKEMAKE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        own = {
            "SLURM_CONF": f"{folder}/slurm.conf",
            "PATH": f"{folder}/bin:{SEARCHED}",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self.environment = clean | own

    def ask(self, *command):
        """The output of one of Slurm's commands."""
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def jobs(self):
        """Every submission so far as ``{field: value}``, in order."""
        shown = self.ask("scontrol", "--oneliner", "show", "job")
        lines = re.findall("^JobId=.*", shown, re.MULTILINE)
        jobs = [dict(re.findall(r"(\S+?)=(.*?)(?=\s+\S+?=|\s*$)", line)) for line in lines]
        return sorted(jobs, key=lambda job: int(job["JobId"]))

    def cancel_all(self):
        """End every job: a step's process would outlive slurmd."""
        self.ask("scancel", "--user", getuser())
        _wait(lambda: not self.ask("squeue", "--noheader"), self, "cancelled jobs")

    def alive(self):
        """Whether the controller answers and the node takes jobs."""
        try:
            return "idle" in self.ask("sinfo", "--noheader", "--format=%T")
        except subprocess.CalledProcessError:
            return False


def missing():
    """The programs of Slurm that are not on this machine."""
    return [name for name in PROGRAMS if not shutil.which(name, path=SEARCHED)]


@contextmanager
def running_cluster():
    """Start a Slurm, give it as `Cluster`, and stop what was started, whatever happened meanwhile."""
    with ExitStack() as stack:
        # Not pytest's folder: a socket's name must be short and munged wants every folder above it
        # to be searchable.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fa-audit-slurm-")))
        folder.chmod(0o755)
        cluster = Cluster(folder)
        _configure(folder)
        stack.enter_context(_daemon(cluster, *_munged(folder)))
        _wait(lambda: (folder / "munge.socket").exists(), cluster, "munged")
        stack.enter_context(_daemon(cluster, "slurmctld", "-D"))
        stack.enter_context(
            _daemon(cluster, "slurmd", "-D", "-N", socket.gethostname().split(".")[0])
        )
        _wait(cluster.alive, cluster, "slurmctld, slurmd")
        stack.callback(cluster.cancel_all)
        yield cluster


def _configure(folder):
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    host = socket.gethostname().split(".")[0]
    values = {"folder": folder, "host": host, "user": getuser()}
    ports = dict(zip(("controller_port", "node_port"), _free_ports(2)))
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**values, **ports))
    (folder / "gres.conf").write_text(GRES_CONF.format(**values))
    (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
    (folder / "bin").mkdir()
    srun = SRUN.format(folder=folder, srun=shutil.which("srun", path=SEARCHED))
    for name, text in {"prolog": PROLOG, "srun": srun, "sacctmgr": ACCOUNTS}.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)


def _free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _munged(folder):
    command = ["munged", "--foreground", f"--socket={folder}/munge.socket"]
    for name in ("key", "pid", "log", "seed"):
        command.append(f"--{name}-file={folder}/munge.{name}")
    return command


@contextmanager
def _daemon(cluster, *command):
    """A daemon in a session of its own, so that Ctrl-C reaches the test first; ended with the block
    or the test.
    """
    with (cluster.folder / f"{command[0]}.out").open("w") as said:
        process = subprocess.Popen(
            [*ENDS_WITH_US, *command], env=cluster.environment,
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(condition, cluster, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(
                f"{path.name}: {path.read_text()[-2000:]}"
                for path in cluster.folder.glob("*.[ol]*")
            )
            raise RuntimeError(f"no answer from {what} within {PATIENCE} s\n{logs}")
        time.sleep(0.1)
