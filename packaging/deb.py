"""The Debian package: the static binary, a systemd unit, settings, manual pages, completions, the documentation and alert rules."""

import gzip
import os
import re
import shutil
from email.utils import formatdate
from pathlib import Path

import guide
from build import elf
from steps import ARCHITECTURES, Release, Skipped, run

CONTROL = """\
Package: sclub
Version: {version}
Architecture: {arch}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Recommends: ca-certificates
Section: net
Priority: optional
Description: recommender that learns while it runs, with contextual bandits
 sclub recommends items over HTTP and learns from rewards that come seconds or
 weeks later. It finds users with similar tastes and shares what it learns
 among them.
 .
 The package has the command sclub and a service that listens on
 127.0.0.1:8080. Its settings are in /etc/sclub/sclub.toml, its data in
 /var/lib/sclub. The documentation, alert rules for Prometheus and a
 dashboard for Grafana are in /usr/share/doc/sclub.
"""


def packed(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return gzip.compress(data, 9, mtime=0)


def maintainer(release: Release) -> str:
    """Who answers for the package: by Debian's variables, else the author of the commit."""
    if "DEBFULLNAME" in os.environ and "DEBEMAIL" in os.environ:
        return "{DEBFULLNAME} <{DEBEMAIL}>".format_map(os.environ)
    return run("git", "log", "-1", "--format=%an <%ae>", quiet=True, cwd=release.root).strip()


def changelog(release: Release) -> str:
    """Debian's form, with a pointer to the project's own."""
    date = formatdate(release.epoch)
    return f"sclub ({release.version}) stable; urgency=medium\n\n  * Version {release.version}. CHANGELOG.md.gz has the changes.\n\n -- {maintainer(release)}  {date}\n"


def copyright(release: Release) -> str:
    text = (release.root / "LICENSE-MIT").read_text().strip().removeprefix("MIT License").strip()
    indented = "\n".join(f" {line}" if line.strip() else " ." for line in text.splitlines())
    return (release.root / "packaging/deb/copyright").read_text().replace("@MIT@", indented)


def depends(binary: bytes) -> str:
    """The packages that it needs. A binary that is not static also needs those of its libraries."""
    names = ["adduser", "init-system-helpers (>= 1.54~)"]
    if not elf(binary)[1]:
        versions = [tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBC_(\d+\.\d+)", binary)]
        since = " (>= {}.{})".format(*max(versions)) if versions else ""
        names += [f"libc6{since}", "libgcc-s1"]
    return ", ".join(names)


def contents(release: Release, binary: Path) -> dict[str, tuple[bytes, int]]:
    """The files of the package, by path."""
    root, documents = release.root, release.work / "documents"
    files = {
        "usr/bin/sclub": (binary.read_bytes(), 0o755),
        "usr/lib/systemd/system/sclub.service": ((root / "packaging/sclub.service").read_bytes(), 0o644),
        "etc/sclub/sclub.toml": ((root / "packaging/sclub.toml").read_bytes(), 0o644),
        "usr/share/bash-completion/completions/sclub": ((documents / "completions/bash/sclub").read_bytes(), 0o644),
        "usr/share/zsh/vendor-completions/_sclub": ((documents / "completions/zsh/_sclub").read_bytes(), 0o644),
        "usr/share/fish/vendor_completions.d/sclub.fish": ((documents / "completions/fish/sclub.fish").read_bytes(), 0o644),
        "usr/share/doc/sclub/copyright": (copyright(release).encode(), 0o644),
        "usr/share/doc/sclub/changelog.gz": (packed(changelog(release)), 0o644),
        "usr/share/doc/sclub/CHANGELOG.md.gz": (packed((root / "CHANGELOG.md").read_bytes()), 0o644),
        "usr/share/doc/sclub/THIRD-PARTY-LICENSES.txt.gz": (packed((documents / "THIRD-PARTY-LICENSES.txt").read_bytes()), 0o644),
    }
    files |= {name: (data, 0o644) for name, data in guide.files(release).items()}
    for page in sorted((documents / "man").iterdir()):
        files[f"usr/share/man/man1/{page.name}.gz"] = (packed(page.read_bytes()), 0o644)
    return files


def make(release: Release, arch: str, binary: Path) -> None:
    if not shutil.which("dpkg-deb"):
        raise Skipped("there is no dpkg-deb here; install the package dpkg")
    folder = release.work / f"deb-{arch}"
    shutil.rmtree(folder, ignore_errors=True)
    needed = depends(binary.read_bytes())
    if not elf(binary.read_bytes())[1]:
        release.warn(f"the Debian package is for systems with the libraries of the binary, which is not static. It depends on {needed}")
    files = contents(release, binary)
    size = sum(len(data) for data, _ in files.values()) // 1024
    control = CONTROL.format(version=release.version, arch=ARCHITECTURES[arch], size=size, maintainer=maintainer(release), depends=needed)
    files["DEBIAN/control"] = (control.encode(), 0o644)
    files["DEBIAN/conffiles"] = (b"/etc/sclub/sclub.toml\n", 0o644)
    for script in ["postinst", "prerm", "postrm"]:
        files[f"DEBIAN/{script}"] = ((release.root / "packaging/deb" / script).read_bytes(), 0o755)
    for name, (data, mode) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        path.write_bytes(data)
        path.chmod(mode)
    name = f"sclub_{release.version}_{ARCHITECTURES[arch]}.deb"
    compression = "-Zxz" if release.level == 9 else "-Zgzip"
    # dpkg-deb dates the files by SOURCE_DATE_EPOCH.
    run("dpkg-deb", "--build", "--root-owner-group", compression, f"-z{release.level}", folder, release.out / name, env=release.environment)
