"""Tries what ./release has made, as far as this machine can: `./release --check`."""

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import guide
import oci
import try_deb
from build import CRATES, elf
from documents import LICENCES_FILE
from steps import ARCHITECTURES, Failed, Skipped, run, sha256, unpack

WHEEL_TRIAL = """
import numpy as np, sclub
policy = sclub.SclubSoft(dim=3)
films = np.array([[0.6, 0.8, 1.0], [0.0, 1.0, 1.0]])
shown = policy.recommend("anna", films)
policy.learn("anna", films[shown], reward=1.0)
results = sclub.lab.run("synthetic", ["sclub-soft", "random"], rounds=2_000)
regret = results.summary()["regret"]
assert 0 <= regret["sclub-soft"] < regret["random"], regret
print(sclub.__version__, dict(regret))
"""


# What a trial that runs servers is kept apart by, beside its mounts and its network.
OWN_PROCESSES = ["--pid", "--fork", "--kill-child"]

NOT_STATIC = "its binary is not static and the image has no libraries, so it cannot start as it is"


def need(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            raise Skipped(f"there is no {program} here")


def isolated(script: str, file: Path, *more: str) -> None:
    """Runs a trial in namespaces of its own."""
    need("unshare", "mount")
    apart = ["unshare", "--mount", "--net", *more]
    if os.getuid() != 0 or subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skipped("it needs root and namespaces")
    command = [*apart, sys.executable, "-B", Path(__file__).with_name(script), file]
    code = subprocess.run(command, env=os.environ | {"LC_ALL": "C.UTF-8"}).returncode
    if code == try_deb.NOT_POSSIBLE:
        raise Skipped("it needs control groups (cgroup2), which this machine does not allow")
    if code != 0:
        raise Failed(f"the trial of {file.name} failed")


def checksums(out: Path) -> None:
    listed = dict(reversed(line.split("  ", 1)) for line in (out / "SHA256SUMS").read_text().splitlines())
    present = {path.name for path in out.iterdir()} - {"SHA256SUMS"}
    if not listed:
        raise Failed("SHA256SUMS is empty")
    if set(listed) != present:
        raise Failed(f"SHA256SUMS and the folder differ: {sorted(set(listed) ^ present)}")
    for name, digest in listed.items():
        if sha256((out / name).read_bytes()) != digest:
            raise Failed(f"the checksum of {name} is wrong")


def crates(root: Path) -> None:
    """What cargo would publish: with licences and a page for crates.io, without large files, and without a warning."""
    need("cargo")
    for name in CRATES:
        command = ["cargo", "package", "--list", "--locked", "--allow-dirty", "--package", name]
        listed = subprocess.run(command, cwd=root, text=True, capture_output=True)
        if listed.returncode != 0 or "warning" in listed.stderr:
            raise Failed(f"{name}: {listed.stderr}")
        files = set(listed.stdout.split())
        if missing := {"README.md", "LICENSE-MIT", "LICENSE-APACHE"} - files:
            raise Failed(f"{name}: the package lacks {sorted(missing)}")
        sizes = {file: path.stat().st_size for file in files if (path := root / "crates" / name / file).exists()}
        if large := {file: size for file, size in sizes.items() if size > 1_000_000}:
            raise Failed(f"{name}: large files {large}")
        print(f"{name}: {len(files)} files, {sum(sizes.values()):,} bytes")


def runner(arch: str) -> list[str]:
    """How programs of an architecture are run here."""
    if arch == platform.machine():
        return []
    emulator = f"qemu-{arch}-static"
    if not shutil.which(emulator) and shutil.which("apt-get") and os.getuid() == 0:
        run(Path(__file__).with_name("debian-packages"), "qemu-user-static")
    need(emulator)
    return [emulator]


def archive(file: Path, arch: str) -> None:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(file) as tar:
        unpack(tar, folder)
        [binary] = Path(folder).glob("*/sclub")
        if elf(binary.read_bytes()) != (arch, True):
            raise Failed("the binary is not static")
        print(run(*runner(arch), binary, "--version", quiet=True), end="")
        played = run(*runner(arch), binary, *"run --users 50 --rounds 500 --seeds 1 --no-figure --quiet --json out.json".split(), cwd=folder)
        if "sclub-soft" not in played:
            raise Failed(f"sclub run printed: {played}")


def packed_files(file: Path, what: str = "fsys") -> dict[str, bytes]:
    """The files of a Debian package, or its control files."""
    tar = subprocess.run(["dpkg-deb", f"--{what}-tarfile", file], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as tar:
        return {member.name.removeprefix("./"): tar.extractfile(member).read() for member in tar if member.isfile()}


def same_files(file: Path, contents: dict[str, bytes]) -> None:
    """A package for another architecture differs from that of this machine, which is installed, in its binary only."""
    here, there = ARCHITECTURES[platform.machine()], run("dpkg-deb", "--field", file, "Architecture", quiet=True).strip()
    other = file.with_name(file.name.replace(there, here))
    if not other.exists():
        raise Skipped(f"there is no {other.name} to compare it with")
    if differ := {name for name, data in contents.items() ^ packed_files(other).items()} - {"usr/bin/sclub"}:
        raise Failed(f"files differ from those of {other.name}: {sorted(differ)}")
    control, others = packed_files(file, "ctrl"), packed_files(other, "ctrl")
    for files in (control, others):
        files["control"] = re.sub(rb"^(Architecture|Installed-Size): .*$", b"", files["control"], flags=re.M)
    if control != others:
        raise Failed(f"control files differ from those of {other.name}")


def package(file: Path, arch: str) -> str | None:
    need("dpkg-deb")
    about = run("dpkg-deb", "--field", file, "Architecture", quiet=True).strip()
    if about != ARCHITECTURES[arch]:
        raise Failed(f"the architecture is {about}")
    contents = packed_files(file)
    built_for, is_static = elf(contents["usr/bin/sclub"])
    if built_for != arch:
        raise Failed(f"the binary is for {built_for}")
    depends = run("dpkg-deb", "--field", file, "Depends", quiet=True).strip()
    if is_static == ("libc6" in depends):
        raise Failed(f"the binary is {'' if is_static else 'not '}static, and the package depends on {depends}")
    guide.check(contents)
    if shutil.which("lintian"):
        print(run("lintian", "--fail-on", "error", "--suppress-tags", "statically-linked-binary", file), end="")
    if arch != platform.machine():
        same_files(file, contents)
        runner(arch)
        isolated("try_chroot.py", file, *OWN_PROCESSES)
        return "ok: the command of its unit runs, by qemu; its other files are those of the package for this machine"
    need("dpkg", "adduser", "deb-systemd-helper", "openssl", "systemctl", "systemd-analyze", try_deb.SYSTEMD)
    isolated("try_deb.py", file)
    return None if is_static else f"ok, with a binary that is not static: the package depends on {depends}"


def image(file: Path, arch: str) -> str | None:
    files, version = oci.files_of(file), file.name.removeprefix("sclub-").split("-linux-")[0]
    oci.check(files, arch, version)
    print(f"{oci.check_refusals(files, arch, version)} mistakes in it are refused")
    [entry] = json.loads(files["index.json"])["manifests"]
    if shutil.which("skopeo"):
        seen = json.loads(run("skopeo", "inspect", "--override-arch", ARCHITECTURES[arch], f"oci-archive:{file}"))
        if (seen["Digest"], seen["Architecture"]) != (entry["digest"], ARCHITECTURES[arch]):
            raise Failed(f"skopeo sees {seen}")
    runner(arch)
    isolated("try_chroot.py", file, *OWN_PROCESSES)
    return None if elf(oci.program(files))[1] else f"TRIED WITH THE LIBRARIES OF THIS MACHINE: {NOT_STATIC}"


def debian_python(arch: str, system: Path) -> tuple[list[str], str]:
    """Debian's Python for another architecture, and the library that NumPy needs, unpacked into a folder. Returns how it is run, and its version."""
    need("apt-get", "dpkg-deb")
    emulator = runner(arch)
    # apt with lists and packages of its own: nothing of this machine's is read or changed but its sources.
    state, cache = system / "apt/state", system / "apt/cache"
    for folder in (state / "lists/partial", cache / "archives/partial"):
        folder.mkdir(parents=True)
    (state / "status").touch()
    debian = ARCHITECTURES[arch]
    options = [f"APT::Architecture={debian}", f"APT::Architectures::={debian}", "APT::Sandbox::User=root"]
    options += [f"Dir::State={state}", f"Dir::State::status={state}/status", f"Dir::Cache={cache}"]
    apt = ["apt-get", "-qq", *(f"--option={option}" for option in options)]
    try:
        run(*apt, "update")
        run(*apt, "install", "--yes", "--download-only", "--no-install-recommends", "python3", "libstdc++6")
    except Failed as error:
        raise Skipped(f"the sources of apt have no Python for {debian}: {error}") from None
    for file in sorted(cache.glob("archives/*.deb")):
        run("dpkg-deb", "--extract", file, system, quiet=True)
    python = [*emulator, "-L", system, system / "usr/bin/python3"]
    return python, run(*python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])", quiet=True).strip()


def wheel(file: Path, arch: str) -> None:
    with zipfile.ZipFile(file) as zipped:
        names = zipped.namelist()
        [metadata] = [zipped.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL")]
        [compiled] = [zipped.read(name) for name in names if name.endswith(".so")]
        [record] = [zipped.read(name).decode().splitlines() for name in names if name.endswith(".dist-info/RECORD")]
    if not any(name.endswith(f".dist-info/licenses/{LICENCES_FILE}") for name in names) or [line.split(",")[0] for line in record] != names:
        raise Failed("the licences of the crates in it are missing, or RECORD does not list the files")
    tags = set(re.findall(r"^Tag: (.*)$", metadata, re.M))
    if tags != {f"cp310-abi3-manylinux_2_17_{arch}", f"cp310-abi3-manylinux2014_{arch}"} or elf(compiled)[0] != arch:
        raise Failed(f"tags {tags}, compiled for {elf(compiled)[0]}")
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        pip, python, environment = [f"{folder}/bin/pip", "install", "--quiet"], [f"{folder}/bin/python"], None
        if arch != platform.machine():
            python, version = debian_python(arch, Path(folder, "system"))
            environment = os.environ | {"PYTHONPATH": f"{folder}/packages"}
            platforms = [f"--platform=manylinux_2_{minor}_{arch}" for minor in range(17, 29)]
            pip += [f"--target={folder}/packages", "--only-binary=:all:", f"--python-version={version}", f"--platform=manylinux2014_{arch}", *platforms]
        run(*pip, f"{file}[lab]")
        print(run(*python, "-c", WHEEL_TRIAL, quiet=True, cwd=folder, env=environment), end="")


def sbom(file: Path, arch: str, root: Path) -> None:
    """The components are those that cargo itself lists."""
    need("cargo")
    document = json.loads(file.read_text())
    listed = {(component["name"], component["version"]) for component in document["components"] if component["type"] == "library"}
    target = f"{arch}-unknown-linux-musl"
    tree = run("cargo", "tree", "--locked", "-p", "sclub-cli", "--target", target, "-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p}", cwd=root)
    wanted = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    wanted = {(name, version.removeprefix("v")) for name, version in wanted} - {("sclub-cli", document["metadata"]["component"]["version"])}
    if missing := wanted - listed:
        raise Failed(f"components are missing: {sorted(missing)}")
    print(f"{len(listed)} components")


def run_all(root: Path, out: Path) -> int:
    """Tries every file. A trial returns how it ended, or nothing if all is well."""
    if not (out / "SHA256SUMS").exists():
        raise Failed(f"{out} has no SHA256SUMS; run ./release first")
    trials = [("SHA256SUMS", lambda: checksums(out)), ("lists of crates", lambda: crates(root))]
    for file in sorted(out.iterdir()):
        names = [(arch, name) for arch, debian in ARCHITECTURES.items() for name in (arch, debian) if name in file.name]
        if not names:
            continue
        arch = names[0][0]
        kinds = {".tar.gz": archive, ".deb": package, ".oci.tar": image, ".whl": wheel, ".cdx.json": lambda file, arch: sbom(file, arch, root)}
        for ending, trial in kinds.items():
            if file.name.endswith(ending):
                trials.append((file.name, lambda trial=trial, file=file, arch=arch: trial(file, arch)))
    results = {}
    for name, trial in trials:
        print(f"\n== try {name}", flush=True)
        begun = time.monotonic()
        try:
            results[name] = trial() or "ok"
        except Skipped as reason:
            results[name] = f"NOT TRIED: {reason}"
        except Failed as error:
            results[name] = f"FAILED: {error}"
        results[name] += f" ({time.monotonic() - begun:.1f} s)"
    print()
    for name, result in results.items():
        print(f"{name}: {result}")
    return any(result.startswith("FAILED") for result in results.values())
