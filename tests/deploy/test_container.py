"""The container of the service, without Docker: its user, environment, entry point and check of health in
namespaces of their own, where only the volume of the catalog can be written and no network is reached."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.dockerfile import DOCKERFILE, read
from tests.photos import COUNT, save_model, save_photos

pytestmark = pytest.mark.slow

_OUTER = ("unshare", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child")
_PREPARE = r"""
ip link set lo up
mount -t tmpfs volume "$CATALOG"
mount -t tmpfs temporary "$TMPDIR"
for mounted in $(cut -d' ' -f2 /proc/self/mounts); do
    case "$mounted" in
        /dev*|/proc*|/sys*|"$CATALOG"|"$TMPDIR") ;;
        *) mount -o remount,bind,ro "$mounted" ;;
    esac
done
cd "$HOME"
exec unshare --map-user=1000 --map-group=1000 env -i "$@"
"""
# Arguments: photos, catalog, model, entry point and check of health as JSON.
_PROGRAM = """
import json, os, pathlib, subprocess, sys, time, urllib.error, urllib.request

photos, catalog, model, entry, health = sys.argv[1:]
assert os.getuid() == 1000
try:
    (pathlib.Path(photos) / "new").touch()
    raise AssertionError("the photos can be written")
except OSError as error:
    assert error.errno == 30, error  # read-only
index = ["unseen", "index", photos, catalog]
subprocess.run([*index, "--model", model, "--labels", "folders", "--no-onnx"], check=True)
first = json.loads((pathlib.Path(catalog) / "catalog.json").read_text())
subprocess.run([*index, "--skip-damaged"], check=True)
again = json.loads((pathlib.Path(catalog) / "catalog.json").read_text())
service = subprocess.Popen([*json.loads(entry), catalog])
for _ in range(120):
    if subprocess.run(json.loads(health), stderr=subprocess.DEVNULL).returncode == 0:
        break
    assert service.poll() is None, "the service ended"
    time.sleep(1)
photo = next(pathlib.Path(photos).rglob("sch*.jpg"))
address, body = "http://127.0.0.1:8000/find?k=1", photo.read_bytes()
try:
    urllib.request.urlopen(urllib.request.Request(address, body))
    raise AssertionError("answered without a token")
except urllib.error.HTTPError as error:
    assert error.code == 401, error
token = {"Authorization": "Bearer " + os.environ["UNSEEN_TOKEN"]}
answer = json.loads(urllib.request.urlopen(urllib.request.Request(address, body, token)).read())
service.terminate()
result = {"pictures": [first["pictures"], again["pictures"]], "answer": answer}
result |= {"label": str(photo.parent.relative_to(photos)), "ended": service.wait(60)}
print(json.dumps(result | {"files": sorted(os.listdir(catalog))}))
"""


def test_the_container_builds_updates_and_serves_a_catalog_in_a_volume(tmp_path: Path) -> None:
    if not shutil.which("ip") or subprocess.run([*_OUTER, "true"], check=False).returncode:
        pytest.skip("namespaces of mounts, networks and processes need unshare, ip and permission")
    target = read(DOCKERFILE.read_text(encoding="utf-8"))["serve"]
    steps = dict(target.steps)
    catalog, home = tmp_path / "catalog", tmp_path / "home"
    temporary = tmp_path / "temporary"  # as /tmp
    for directory in (catalog, home, temporary):
        directory.mkdir()
    photos, model = save_photos(tmp_path / "photos"), save_model(tmp_path / "model", 1)
    variables = dict(argument.split("=", 1) for name, argument in target.steps if name == "ENV")
    # the packages of this environment instead of /opt/venv
    variables["PATH"] = f"{Path(sys.executable).parent}:{os.defpath}"
    variables |= {"HOME": str(home), "TMPDIR": str(temporary), "UNSEEN_TOKEN": "token-of-the-container"}
    check = json.loads(steps["HEALTHCHECK"].partition(" CMD ")[2])
    arguments = map(str, (photos, catalog, model, steps["ENTRYPOINT"], json.dumps(check)))
    settings = [f"{name}={value}" for name, value in variables.items()]
    command = [*_OUTER, "sh", "-euc", _PREPARE, "sh", *settings, "python", "-c", _PROGRAM, *arguments]
    places = {"CATALOG": str(catalog), "HOME": str(home), "TMPDIR": str(temporary)}
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | places)
    assert result.returncode == 0, result.stderr
    answered = json.loads(result.stdout.splitlines()[-1])
    assert answered["pictures"] == [COUNT, COUNT]
    assert answered["answer"]["products"][0]["label"] == answered["label"]
    assert answered["ended"] in (0, -15)
    assert {"catalog.json", "index.faiss", "model", "pictures.parquet"} <= {*answered["files"]}
    assert not list(catalog.iterdir()), "the volume belongs to the container"
