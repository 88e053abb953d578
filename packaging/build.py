"""Static binaries, wheels, crates and the list of components."""

import base64
import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
import time
import zipfile
from pathlib import Path

import documents
from steps import Failed, Release, run

CRATES = ["sclub", "sclub-features", "sclub-lab", "sclub-server", "sclub-cli"]
CYCLONEDX = "0.5.9"


def elf(data: bytes) -> tuple[str, bool]:
    """The architecture of an ELF file, and whether it is static: it names no interpreter and no shared library."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise Failed("not a 64-bit little-endian ELF file")
    word = lambda at, size: int.from_bytes(data[at : at + size], "little")  # noqa: E731
    arch = {62: "x86_64", 183: "aarch64"}.get(word(18, 2), f"machine {word(18, 2)}")
    needs_loader = False
    for number in range(word(56, 2)):
        header = word(32, 8) + number * word(54, 2)
        kind, offset, size = word(header, 4), word(header + 8, 8), word(header + 32, 8)
        # PT_INTERP, or a DT_NEEDED in PT_DYNAMIC.
        needs_loader |= kind == 3
        if kind == 2:
            needs_loader |= any(word(at, 8) == 1 for at in range(offset, offset + size, 16))
    return arch, not needs_loader


def binary(release: Release, arch: str) -> Path:
    """A static binary. zig is the C compiler and linker of both architectures."""
    target = f"{arch}-unknown-linux-musl"
    release.need_target(target)
    flags = ["--locked", "--profile", "dist", "--package", "sclub-cli", "--target", target]
    run("cargo", "zigbuild", *flags, cwd=release.root, env=release.with_tools())
    built = release.target / target / "dist/sclub"
    if elf(built.read_bytes()) != (arch, True):
        raise Failed(f"{built} is not a static binary for {arch}")
    return built


def stripped(release: Release, built: Path) -> Path:
    """A copy without symbols."""
    copy = release.work / "stripped/sclub"
    copy.parent.mkdir(exist_ok=True)
    run("strip", "-o", copy, built)
    return copy


def add(tar: tarfile.TarFile, name: str, data: bytes | None, epoch: int, mode: int = 0o644, owner: int = 0) -> None:
    """Adds a file, or a folder if there are no data, that depends on nothing of this machine."""
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode, entry.uid, entry.gid = epoch, mode, owner, owner
    if data is None:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))


def archive(release: Release, arch: str, built: Path) -> None:
    """The binary with its manual pages, completions and licences, as .tar.gz."""
    name = f"sclub-{release.version}-{arch}-unknown-linux-musl"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        add(tar, f"{name}/sclub", built.read_bytes(), release.epoch, 0o755)
        for path in sorted(path for path in (release.work / "documents").rglob("*") if path.is_file()):
            add(tar, f"{name}/{path.relative_to(release.work / 'documents')}", path.read_bytes(), release.epoch)
        for path in ["packaging/sclub.service", "packaging/sclub.toml", "LICENSE-MIT", "LICENSE-APACHE"]:
            add(tar, f"{name}/{Path(path).name}", (release.root / path).read_bytes(), release.epoch)
    (release.out / f"{name}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), release.level, mtime=release.epoch))


def wheel(release: Release, arch: str) -> None:
    """A wheel for CPython 3.10 and later on Linux with glibc 2.17 or later."""
    target = f"{arch}-unknown-linux-gnu"
    release.need_target(target)
    folder = release.work / f"wheel-{arch}"
    shutil.rmtree(folder, ignore_errors=True)
    flags = ["--locked", "--profile", "dist", "--zig", "--target", target, "--compatibility", "manylinux2014"]
    manifest = release.root / "crates/sclub-python/Cargo.toml"
    run("maturin", "build", *flags, "--manifest-path", manifest, "--out", folder, cwd=release.root, env=release.with_tools())
    [made] = folder.glob("*.whl")
    if not re.fullmatch(rf"sclub-[^-]+-cp310-abi3-manylinux2014_{arch}\.manylinux_2_17_{arch}\.whl", made.name):
        raise Failed(f"the tags of {made.name} are wrong")
    finish(release, made, release.out / made.name)


def finish(release: Release, made: Path, finished: Path) -> None:
    """Adds the licences of the crates in a wheel, and takes the paths of this machine out of its list of components."""
    with zipfile.ZipFile(made) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    [record] = [name for name in files if name.endswith(".dist-info/RECORD")]
    about = record.removesuffix("RECORD")
    files[f"{about}licenses/{documents.LICENCES_FILE}"] = documents.licences(release, "sclub-python", "gnu").encode()
    files[f"{about}METADATA"] = files[f"{about}METADATA"].replace(b"\nLicense-File:", f"\nLicense-File: {documents.LICENCES_FILE}\nLicense-File:".encode(), 1)
    for name in files:
        if name.startswith(f"{about}sboms/"):
            files[name] = files[name].replace(str(release.root).encode(), b"/sclub")
    del files[record]
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() for name, data in files.items()}
    files[record] = "".join(f"{name},sha256={digests[name]},{len(data)}\n" for name, data in files.items()).encode() + f"{record},,\n".encode()
    with zipfile.ZipFile(finished, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(release.epoch)[:6])
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


def sdist(release: Release) -> None:
    manifest = release.root / "crates/sclub-python/Cargo.toml"
    run("maturin", "sdist", "--manifest-path", manifest, "--out", release.out, cwd=release.root, env=release.with_tools())


def crates(release: Release) -> None:
    """Builds each crate from its package, as `cargo publish` would, with the others from their packages too."""
    names = [word for name in CRATES for word in ("--package", name)]
    dirty = ["--allow-dirty"] if run("git", "status", "--porcelain", quiet=True, cwd=release.root) else []
    run("cargo", "publish", "--dry-run", "--locked", *dirty, *names, cwd=release.root, env=release.environment)
    run("cargo", "package", "--no-verify", "--locked", *dirty, *names, cwd=release.root, env=release.environment)
    for name in CRATES:
        package = release.target / f"package/{name}-{release.version}.crate"
        size = package.stat().st_size
        if size > 10_000_000:
            raise Failed(f"{package.name} has {size:,} bytes; crates.io takes 10 MB")
        shutil.copy(package, release.out)


def sbom(release: Release, arch: str) -> None:
    """The components of the binary, as CycloneDX."""
    tools = release.root / "target/release-tools/cyclonedx"
    program = tools / "bin/cargo-cyclonedx"
    if not program.exists():
        run("cargo", "install", "--quiet", "--locked", "--debug", "--root", tools, f"cargo-cyclonedx@{CYCLONEDX}", cwd=release.work, env=release.environment)
    target = f"{arch}-unknown-linux-musl"
    name = f"sclub-{release.version}-{target}.cdx"
    manifest = release.root / "crates/sclub-cli/Cargo.toml"
    flags = ["--format", "json", "--spec-version", "1.5", "--target", target, "--describe", "binaries", "--no-build-deps"]
    run(program, "cyclonedx", "--manifest-path", manifest, *flags, cwd=release.root, env=release.environment)
    made = [path for path in release.root.glob("crates/*/*.cdx.json")]
    text = next(path for path in made if path.parent.name == "sclub-cli").read_text()
    for path in made:
        path.unlink()
    # Local crates are named by their folders.
    document = json.loads(text.replace(str(release.root), "/sclub"))
    (release.out / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
