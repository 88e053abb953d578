"""What an image must be to be read by podman, skopeo, containerd and `docker load`: every part is where the others say, and is what they say."""

import gzip
import io
import json
import tarfile
from pathlib import Path

from steps import ARCHITECTURES, Failed, sha256

OCI = "application/vnd.oci.image"


def need(is_right: bool, what: str) -> None:
    if not is_right:
        raise Failed(f"the image: {what}")


def files_of(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        members = tar.getmembers()
        names = [member.name for member in members]
        need(len(set(names)) == len(names), "two files have the same name")
        return {member.name: tar.extractfile(member).read() for member in members if member.isfile()}


def program(files: dict[str, bytes]) -> bytes:
    """The program that a right image starts."""
    [docker] = json.loads(files["manifest.json"])
    name = json.loads(files[docker["Config"]])["config"]["Entrypoint"][0].lstrip("/")
    for layer in docker["Layers"]:
        with tarfile.open(fileobj=io.BytesIO(files[layer])) as tar:
            if name in tar.getnames():
                return tar.extractfile(name).read()
    raise Failed(f"the image: there is no {name}")


def check(files: dict[str, bytes], arch: str, version: str) -> None:
    """Fails unless an image for an architecture, of a version, is right."""
    try:
        follow(files, arch, version)
    except (KeyError, TypeError, ValueError, EOFError, gzip.BadGzipFile) as error:
        raise Failed(f"the image: {type(error).__name__}: {error}") from None


def follow(files: dict[str, bytes], arch: str, version: str) -> None:
    """Follows index.json to the manifest, the configuration and the layers, and the list of `docker load` to the same ones."""
    left = set(files)

    def read(name: str) -> bytes:
        need(name in files, f"there is no {name}")
        left.discard(name)
        return files[name]

    def blob(entry: dict, kind: str) -> bytes:
        need(entry["mediaType"] == f"{OCI}.{kind}", f"{entry['mediaType']} in place of {OCI}.{kind}")
        algorithm, digest = entry["digest"].split(":")
        data = read(f"blobs/{algorithm}/{digest}")
        need(algorithm == "sha256" and sha256(data) == digest, f"the digest of the {kind} is wrong")
        need(len(data) == entry["size"], f"the size of the {kind} is wrong")
        return data

    path = lambda entry: "blobs/" + entry["digest"].replace(":", "/")  # noqa: E731
    system = {"architecture": ARCHITECTURES[arch], "os": "linux"}
    need(json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}, "the version of the layout is wrong")
    index = json.loads(read("index.json"))
    need((index["schemaVersion"], index["mediaType"]) == (2, f"{OCI}.index.v1+json"), "index.json is of another kind")
    need(len(index["manifests"]) == 1, "there is more than one manifest")
    [reference] = index["manifests"]
    need(reference["platform"] == system, f"the index is for {reference['platform']}")
    names = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/sclub:{version}"}
    need(reference["annotations"] == names, f"the index names {reference['annotations']}")
    manifest = json.loads(blob(reference, "manifest.v1+json"))
    need((manifest["schemaVersion"], manifest["mediaType"]) == (2, f"{OCI}.manifest.v1+json"), "the manifest is of another kind")
    config = json.loads(blob(manifest["config"], "config.v1+json"))
    need({name: config[name] for name in system} == system, f"the configuration is for {config['architecture']}, {config['os']}")
    need(config["rootfs"]["type"] == "layers", "the configuration has no layers")
    layers = [gzip.decompress(blob(entry, "layer.v1.tar+gzip")) for entry in manifest["layers"]]
    need(len(layers) > 0, "there are no layers")
    need([f"sha256:{sha256(layer)}" for layer in layers] == config["rootfs"]["diff_ids"], "diff_ids are not those of the layers")
    of_layers = [one for one in config["history"] if not one.get("empty_layer")]
    need(len(of_layers) == len(layers), "the history has another number of layers")
    for_docker = {"Config": path(manifest["config"]), "RepoTags": [f"sclub:{version}"], "Layers": [path(entry) for entry in manifest["layers"]]}
    need(json.loads(read("manifest.json")) == [for_docker], "manifest.json, for `docker load`, is about something else")
    need(not left, f"nothing leads to {sorted(left)}")


def check_refusals(files: dict[str, bytes], arch: str, version: str) -> int:
    """Puts mistakes into a right image, each of which must be refused. Returns their number."""
    index = json.loads(files["index.json"])
    at = lambda entry: "blobs/sha256/" + entry["digest"].removeprefix("sha256:")  # noqa: E731
    manifest = json.loads(files[at(index["manifests"][0])])
    config = json.loads(files[at(manifest["config"])])
    other = "arm64" if ARCHITECTURES[arch] == "amd64" else "amd64"

    def built(change) -> dict[str, bytes]:
        """The image with a change, after which all digests and sizes that the change leaves alone are made right again."""
        text = lambda value: json.dumps(value, sort_keys=True).encode()  # noqa: E731
        parts = json.loads(json.dumps({"layout": {"imageLayoutVersion": "1.0.0"}, "index": index, "manifest": manifest, "config": config}))
        layers = [files[at(entry)] for entry in manifest["layers"]]
        made: dict[str, bytes] = {}

        def store(entry: dict, data: bytes) -> None:
            made[f"blobs/sha256/{sha256(data)}"] = data
            entry |= {"digest": f"sha256:{sha256(data)}", "size": len(data)}

        parts["docker"] = json.loads(files["manifest.json"])
        for when in ("layers", "config", "manifest", "index"):
            change(when, parts, layers)
            if when == "layers":
                for entry, layer in zip(parts["manifest"]["layers"], layers):
                    store(entry, layer)
            if when == "config":
                store(parts["manifest"]["config"], text(parts["config"]))
                parts["docker"][0] |= {"Config": at(parts["manifest"]["config"]), "Layers": [at(entry) for entry in parts["manifest"]["layers"]]}
            if when == "manifest":
                store(parts["index"]["manifests"][0], text(parts["manifest"]))
        change("end", parts, layers)
        return {"oci-layout": text(parts["layout"]), "index.json": text(parts["index"]), "manifest.json": text(parts["docker"])} | made

    def put(when: str, path: str, value):
        """A change of one value, before the step after which it counts."""
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]

        def change(now: str, parts: dict, _) -> None:
            if now == when:
                for step in steps:
                    parts = parts[step]
                parts[last] = value

        return change

    def of_layers(edit):
        return lambda now, parts, layers: edit(layers) if now == "layers" else None

    digest = "sha256:" + "0" * 64
    mistakes = {
        "another layer": of_layers(lambda layers: layers.__setitem__(0, gzip.compress(b"other", 1))),
        "no version of the layout": put("layers", "layout", {}),
        "diff_ids": put("config", "config.rootfs.diff_ids", [digest]),
        "no diff_ids": put("config", "config.rootfs.diff_ids", []),
        "the architecture of the configuration": put("config", "config.architecture", other),
        "the system of the configuration": put("config", "config.os", "windows"),
        "no history": put("config", "config.history", []),
        "the kind of the configuration": put("manifest", "manifest.config.mediaType", "text/plain"),
        "the digest of the configuration": put("manifest", "manifest.config.digest", digest),
        "the size of the configuration": put("manifest", "manifest.config.size", 1),
        "the digest of a layer": put("manifest", "manifest.layers.0.digest", digest),
        "the size of a layer": put("manifest", "manifest.layers.0.size", 1),
        "the kind of a layer": put("manifest", "manifest.layers.0.mediaType", f"{OCI}.layer.v1.tar"),
        "no layers": put("manifest", "manifest.layers", []),
        "the version of the manifest": put("manifest", "manifest.schemaVersion", 1),
        "the kind of the manifest": put("manifest", "manifest.mediaType", "text/plain"),
        "the digest of the manifest": put("index", "index.manifests.0.digest", digest),
        "the digest of another blob": put("index", "index.manifests.0.digest", manifest["config"]["digest"]),
        "no digest": put("index", "index.manifests.0", {"mediaType": f"{OCI}.manifest.v1+json"}),
        "the size of the manifest": put("index", "index.manifests.0.size", 1),
        "the kind of the index": put("index", "index.mediaType", "text/plain"),
        "the architecture of the index": put("index", "index.manifests.0.platform.architecture", other),
        "the tag of the index": put("index", "index.manifests.0.annotations", {}),
        "no manifest": put("index", "index.manifests", []),
        "the tag of docker": put("end", "docker.0.RepoTags", ["sclub:latest"]),
        "the configuration of docker": put("end", "docker.0.Config", "blobs/sha256/0"),
        "the layers of docker": put("end", "docker.0.Layers", []),
    }
    check(built(lambda *_: None), arch, version)
    images = {name: built(change) for name, change in mistakes.items()}
    images["a changed byte"] = {name: data[:-1] + b"\0" if name == at(manifest["layers"][0]) else data for name, data in files.items()}
    images["a blob that nothing leads to"] = files | {"blobs/sha256/" + sha256(b""): b""}
    for name in files:
        images[f"without {name}"] = {other: data for other, data in files.items() if other != name}
    for name, image in images.items():
        try:
            check(image, arch, version)
        except Failed:
            continue
        raise Failed(f"the check of images takes one with a mistake: {name}")
    return len(images)
