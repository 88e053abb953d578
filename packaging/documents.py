"""Files that are installed beside the binary: manual pages, completions, and the licences of the crates in it."""

import json
import os
import shutil
from pathlib import Path

from steps import ARCHITECTURES, Failed, Release, run

# bash, zsh and fish look for these names.
COMPLETIONS = {"bash": "sclub", "zsh": "_sclub", "fish": "sclub.fish"}
LICENCES = ("licen", "copying", "notice", "unlicense", "copyright")
LICENCES_FILE = "THIRD-PARTY-LICENSES.txt"


def make(release: Release, binary: Path) -> None:
    """Writes them into the folder `documents`. The binary must be one that this machine can run."""
    folder = release.work / "documents"
    shutil.rmtree(folder, ignore_errors=True)
    # Settings in the environment do not belong in the pages.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCLUB_")}
    run(binary, "man", "--dir", folder / "man", env=environment)
    for shell, name in COMPLETIONS.items():
        (folder / "completions" / shell).mkdir(parents=True)
        (folder / "completions" / shell / name).write_text(run(binary, "completions", shell, env=environment))
    (folder / LICENCES_FILE).write_text(licences(release, "sclub-cli", "musl"))
    version = run(binary, "--version", quiet=True).split()[1]
    if version != release.version:
        raise Failed(f"{binary} is of version {version}, not {release.version}")


def crates_in(release: Release, crate: str, libc: str) -> list[dict]:
    """All crates that are compiled into one of this project, of any architecture, without those of this project."""
    found = {}
    for arch in ARCHITECTURES:
        command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", f"{arch}-unknown-linux-{libc}"]
        metadata = json.loads(run(*command, cwd=release.root, quiet=True))
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        reached, ahead = set(), [name for name, package in packages.items() if package["name"] == crate]
        while ahead:
            name = ahead.pop()
            if name in reached:
                continue
            reached.add(name)
            links = nodes[name]["deps"]
            ahead += [link["pkg"] for link in links if any(kind["kind"] is None for kind in link["dep_kinds"])]
        found |= {name: packages[name] for name in reached if packages[name]["source"]}
    return sorted(found.values(), key=lambda package: (package["name"], package["version"]))


def licences(release: Release, crate: str, libc: str) -> str:
    """The licence texts of all crates in the binary or in the wheel, and of the binary's scripts, each text once."""
    names: dict[str, list[str]] = {}
    without = []
    for package in crates_in(release, crate, libc):
        title = f"{package['name']} {package['version']} ({package['license'] or 'see its text'})"
        folder = Path(package["manifest_path"]).parent
        files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.lower().startswith(LICENCES)]
        if package["license_file"] and not files:
            files = [folder / package["license_file"]]
        for path in files:
            names.setdefault(path.read_text(errors="replace").strip(), []).append(title)
        if not files:
            without.append(title)
    vendor = release.root / "crates/sclub-server/src/page/vendor"
    scripts = vendor.rglob("*") if crate == "sclub-cli" else []
    for path in sorted(path for path in scripts if path.is_file() and ("LICENSE" in path.name or path.name == "NOTICE")):
        names.setdefault(path.read_text().strip(), []).append(path.parent.name)
    parts = [f"{crate} contains these crates and scripts of others, under these licences."]
    parts += ["\n".join(dict.fromkeys(titles)) + "\n\n" + text for text, titles in names.items()]
    parts += ["Packages without a licence text of their own:\n\n" + "\n".join(without)] if without else []
    return ("\n\n" + "=" * 80 + "\n\n").join(parts) + "\n"
