"""Nothing connects to a network unless a user requests it: the stages, the search of a catalog and its
service run in a namespace without any network, not even loopback. Their outputs contain neither secrets of
the environment nor folders of the machine.

Ray needs loopback: a training of two workers and a sweep run in a namespace whose packets to other machines
go to an interface that records them."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNSHARE = ["unshare", "--map-root-user", "--net"]
PROGRAM = """
import errno, os, socket, sys
from pathlib import Path
from tests.torture.operations import PREPARATION, required, write_project
from tests.torture.uploads import Service, valid_request

for address in ("192.0.2.1", "127.0.0.1"):
    with socket.socket() as probe:
        try:
            probe.connect((address, 9))
        except OSError as error:
            assert error.errno == errno.ENETUNREACH, error
        else:
            raise AssertionError(f"{address} can be reached")
project = Path(sys.argv[1])
write_project(project)
os.chdir(project)
for operation in required(["report", "catalog find"]):
    if operation.name in PREPARATION:
        PREPARATION[operation.name](project)
    operation.run()
    assert all((project / output).exists() for output in operation.outputs)
    print("ran", operation.name)
Service(project / "data/catalog")(valid_request(next((project / "photos").iterdir()).read_bytes()))
print("ran service")
"""
# `record`: a link whose other end receives every packet to another machine.
CLUSTER = """
import json, os, socket, subprocess, sys
from pathlib import Path

for command in (
    "link set lo up",
    "link add out type veth peer name record",
    "link set out addrgenmode none",
    "link set record addrgenmode none",
    "addr add 192.0.2.1/24 dev out",
    "link set out up",
    "link set record up",
    "neigh add 192.0.2.254 lladdr 02:00:00:00:00:01 dev out nud permanent",
    "route add default via 192.0.2.254 dev out",
):
    subprocess.run(["ip", *command.split()], check=True)
recorder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
recorder.bind(("record", 0))
recorder.setblocking(False)


def recorded():
    packets = []
    while True:
        try:
            packets.append(recorder.recv(65535)[14:].hex())  # without the addresses of the link
        except BlockingIOError:
            return packets


def run(*command):
    subprocess.run([sys.executable, "-m", *command], check=True, cwd=os.environ["CODE"], env=os.environ)


root = Path(sys.argv[1])
from tests.torture.cluster_training import SEGMENTS
from tests.torture.gated_training import SEGMENT, open_until
from tests.torture.operations import write_project
from tests.training.jobs import write_tiny_set
write_tiny_set(root / "two workers")
open_until(root / "two workers", SEGMENT * SEGMENTS)
run("tests.torture.cluster_training", str(root / "two workers"))
result = {"training": recorded()}

project = root / "sweep"
write_project(project, several=True)
os.chdir(project)
from unseen.stages import ingest, resolve, sweep
resolve.run()
ingest.run("parts")
recorded_before = recorded()
sweep.run("parts", "ms")
result["sweep"] = recorded_before + recorded()

loopback = [line.split() for line in Path("/proc/net/dev").read_text().splitlines() if " lo:" in line]
result["loopback packets"] = int(loopback[0][2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    control.sendto(b"x", ("198.51.100.7", 9))
result["control"] = recorded()
(root / "result.json").write_text(json.dumps(result))
"""
STAGES = ["resolve", "ingest", "train", "export", "evaluate", "analyze", "report"]
# PyTorch asks for the name of the address of its own store, and only that leaves the machine.
OWN_NAME = "1.2.0.192.in-addr.arpa"
SECRET = "s3cr3t-of-the-environment"


def permitted() -> bool:
    """Whether this user may create a network namespace."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A project in which everything ran without a network, and the process that ran it."""
    if not permitted():
        pytest.skip("no permission to create a network namespace")
    project = tmp_path_factory.mktemp("offline")
    secrets = dict.fromkeys(("UNSEEN_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "RAY_AUTH_TOKEN"), SECRET)
    process = subprocess.run(
        [*UNSHARE, sys.executable, "-c", PROGRAM, str(project)],
        cwd=ROOT,
        env=os.environ | secrets,
        capture_output=True,
        text=True,
        check=False,
    )
    return project, process


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stages_search_and_service_need_no_network(
    offline: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, process = offline
    assert process.returncode == 0, process.stderr
    ran = [line.removeprefix("ran ") for line in process.stdout.splitlines() if line.startswith("ran ")]
    assert sorted(ran) == sorted([*STAGES, "catalog build", "catalog find", "service"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_outputs_contain_no_secret_and_no_folder_of_the_machine(
    offline: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    project, process = offline
    contents = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert len(contents) > 30
    assert SECRET not in process.stdout + process.stderr
    for path, content in contents.items():
        assert SECRET.encode() not in content, path
        if path != project / "data/catalog/catalog.json":  # it names the folder of the photos
            assert str(project).encode() not in content, path


def asked_name(packet: str) -> str:
    """The name that an IPv4 packet asks a name server for; otherwise where it goes."""
    octets = bytes.fromhex(packet)
    destination, port = socket.inet_ntoa(octets[16:20]), int.from_bytes(octets[22:24])
    if (octets[9], port) != (socket.IPPROTO_UDP, 53):
        return f"{destination}:{port}"
    labels, rest = [], octets[40:]  # behind the headers of IP, UDP and DNS
    while rest[0]:
        labels.append(rest[1 : 1 + rest[0]].decode())
        rest = rest[1 + rest[0] :]
    return ".".join(labels)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_cluster_of_two_workers_and_a_sweep_use_loopback_only(tmp_path: Path) -> None:
    links = [*UNSHARE, "ip", "link", "add", "out", "type", "veth", "peer", "name", "record"]
    if not permitted() or not shutil.which("ip") or subprocess.run(links, check=False).returncode:
        pytest.skip("no permission to create a network namespace with two links")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="uo-") as short:  # sockets have short paths
        process = subprocess.run(
            [*UNSHARE, sys.executable, "-c", CLUSTER, str(tmp_path)],
            cwd=ROOT,
            env=environment | {"CODE": str(ROOT), "RAY_TMPDIR": short, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(map(asked_name, result["training"])) <= {OWN_NAME}
    assert result["sweep"] == []
    assert result["loopback packets"] > 1000
    assert len(result["control"]) == 1
    assert bytes.fromhex(result["control"][0])[16:20] == socket.inet_aton("198.51.100.7"), "it is recorded"
    assert (tmp_path / "two workers/data/history/tiny/baseline/0.csv").exists()
    assert (tmp_path / "sweep/data/sweep/parts/ms/trials.csv").exists()
