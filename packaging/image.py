"""The OCI image: nothing but the static binary, certificates, a user and the folder for data.

The file is an OCI layout (podman, skopeo, containerd) and has the `manifest.json` of `docker load` too. It is the same, byte by byte, for
the same binary and certificates.
"""

import gzip
import io
import json
import tarfile
import time
from pathlib import Path

from build import add, elf
from steps import ARCHITECTURES, Release, run, sha256

# Of no user of the host, as in other images without a root user.
USER = 65532
OCI = "application/vnd.oci.image"


def layer(release: Release, binary: Path) -> bytes:
    """The file system, as tar."""
    certificates = Path(run(release.tools("certifi") / "python", "-c", "import certifi; print(certifi.where())", quiet=True).strip())
    documents = release.work / "documents"
    files = [
        ("data/", None, 0o700, USER),
        ("etc/", None, 0o755, 0),
        ("etc/group", f"root:x:0:\nsclub:x:{USER}:\n".encode(), 0o644, 0),
        ("etc/passwd", f"root:x:0:0::/:/nologin\nsclub:x:{USER}:{USER}::/data:/nologin\n".encode(), 0o644, 0),
        ("etc/ssl/", None, 0o755, 0),
        ("etc/ssl/certs/", None, 0o755, 0),
        ("etc/ssl/certs/ca-certificates.crt", certificates.read_bytes(), 0o644, 0),
        ("licenses/", None, 0o755, 0),
        ("licenses/LICENSE-APACHE", (release.root / "LICENSE-APACHE").read_bytes(), 0o644, 0),
        ("licenses/LICENSE-MIT", (release.root / "LICENSE-MIT").read_bytes(), 0o644, 0),
        ("licenses/THIRD-PARTY-LICENSES.txt", (documents / "THIRD-PARTY-LICENSES.txt").read_bytes(), 0o644, 0),
        ("tmp/", None, 0o1777, 0),
        ("usr/", None, 0o755, 0),
        ("usr/bin/", None, 0o755, 0),
        ("usr/bin/sclub", binary.read_bytes(), 0o755, 0),
    ]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data, mode, owner in files:
            add(tar, name, data, release.epoch, mode, owner)
    return packed.getvalue()


def make(release: Release, arch: str, binary: Path) -> None:
    if not elf(binary.read_bytes())[1]:
        release.warn("the image cannot start anywhere: the binary is not static, and the image has no libraries. It is for `./release --check` alone; do not publish it")
    system = layer(release, binary)
    compressed = gzip.compress(system, release.level, mtime=0)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    about = {
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.title": "sclub",
        "org.opencontainers.image.version": release.version,
    }
    configuration = {
        "architecture": ARCHITECTURES[arch],
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["SCLUB_DATA=/data", "SCLUB_ADDR=0.0.0.0:8080"],
            "Entrypoint": ["/usr/bin/sclub"],
            "Cmd": ["serve"],
            "WorkingDir": "/data",
            "Volumes": {"/data": {}},
            "ExposedPorts": {"8080/tcp": {}},
            "StopSignal": "SIGTERM",
            "Labels": about,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(system)}"]},
        "history": [{"created": created, "created_by": "./release"}],
    }
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict:
        blobs[f"blobs/sha256/{sha256(data)}"] = data
        return {"mediaType": f"{OCI}.{kind}", "digest": f"sha256:{sha256(data)}", "size": len(data)}

    def text(value) -> bytes:
        return json.dumps(value, sort_keys=True).encode()

    config = blob("config.v1+json", text(configuration))
    layers = [blob("layer.v1.tar+gzip", compressed)]
    manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": layers, "annotations": about}
    reference = blob("manifest.v1+json", text(manifest)) | {
        "platform": {"architecture": ARCHITECTURES[arch], "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": release.version, "io.containerd.image.name": f"docker.io/library/sclub:{release.version}"},
    }
    path_of = lambda entry: "blobs/sha256/" + entry["digest"].removeprefix("sha256:")  # noqa: E731
    for_docker = [{"Config": path_of(config), "RepoTags": [f"sclub:{release.version}"], "Layers": [path_of(entry) for entry in layers]}]
    files = {
        "oci-layout": text({"imageLayoutVersion": "1.0.0"}),
        "index.json": text({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [reference]}),
        "manifest.json": text(for_docker),
    } | dict(sorted(blobs.items()))
    name = f"sclub-{release.version}-linux-{ARCHITECTURES[arch]}.oci.tar"
    with tarfile.open(release.out / name, "w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in ["blobs/", "blobs/sha256/"]:
            add(tar, folder, None, release.epoch, 0o755)
        for path, data in files.items():
            add(tar, path, data, release.epoch)
