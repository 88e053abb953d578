"""The documentation in the Debian package: the pages, with links that lead to files of the package."""

import re
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

from steps import Failed, Release

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs/site"))

import links  # noqa: E402
import pages  # noqa: E402

FOLDER = "usr/share/doc/sclub"
# Files that are not in docs/, by their names below FOLDER. Debian's policy wants examples in a folder of this name.
OTHERS = {
    "CHANGELOG.md": "CHANGELOG.md.gz",
    "crates/sclub/docs/which-policy.md": "which-policy.md",
    "deploy/grafana/sclub.json": "examples/grafana/sclub.json",
    "deploy/prometheus/prometheus.yml": "examples/prometheus/prometheus.yml",
    "deploy/prometheus/sclub.rules.yml": "examples/prometheus/sclub.rules.yml",
    "deploy/prometheus/sclub.test.yml": "examples/prometheus/sclub.test.yml",
    "docs/drinks.csv": "drinks.csv",
    "docs/index.md": "README.md",
    "docs/openapi.json": "openapi.json",
}


def names(root: Path) -> dict[Path, str]:
    """The files that are there, and their names below FOLDER."""
    named = {page: page.name for page in sorted((root / "docs").glob("*.md"))}
    return named | {root / path: name for path, name in OTHERS.items()}


def relinked(text: str, page: Path, named: dict[Path, str]) -> str:
    """A page as it is in the package: without its comments, and without links to files that are not there. Their text stays."""

    def link(match: re.Match[str]) -> str:
        is_picture, label, target = match.groups()
        path, hash, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        name = named.get((page.parent / unquote(path)).resolve())
        if is_picture and not name:
            return ""
        # A compressed file has no anchors.
        return f"{is_picture}[{label}]({name}{hash + anchor if name.endswith('.md') else ''})" if name else label

    text = re.sub(r"^ *<!--.*?-->\n", "", text, flags=re.DOTALL | re.MULTILINE)
    # Code is left alone, and a label may have code.
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.DOTALL | re.MULTILINE)
    pattern = re.compile(r"(!?)\[((?:`[^`\n]*`|[^\[\]`])*)\]\(([^()\s]+)\)")
    text = "".join(part if at % 2 else pattern.sub(link, part) for at, part in enumerate(parts))
    return re.sub(r"\n{3,}", "\n\n", text)


def files(release: Release) -> dict[str, bytes]:
    """The pages and examples, by path in the package. The changelog is compressed, and is not among them."""
    named = names(release.root)
    found = {}
    for file, name in named.items():
        data = file.read_bytes()
        if file.suffix == ".md":
            data = relinked(data.decode(), file, named).encode()
        if not name.endswith(".gz"):
            found[f"{FOLDER}/{name}"] = data
    return found


def dead_links(files: dict[str, bytes]) -> tuple[int, list[str]]:
    """The number of relative links in the pages of a package, and those that lead to no file or heading of it."""
    count, dead = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name in sorted(name for name in files if name.endswith(".md")):
            page = Path(folder, name).resolve()
            for match in links.LINK.finditer(pages.without_code(page.read_text())):
                target = next(filter(None, match.groups()))
                if re.match(r"[a-z]+:", target):
                    continue
                count += 1
                path, _, anchor = target.partition("#")
                file = (page.parent / unquote(path)).resolve() if path else page
                is_inside = file.is_relative_to(Path(folder).resolve())
                if not is_inside or not file.is_file() or anchor and unquote(anchor) not in links.anchors_of_page(file):
                    dead.append(f"{name}: {target}")
    return count, dead


def check(files: dict[str, bytes]) -> None:
    """Fails unless the pages, the alert rules and the dashboard are there and every link leads somewhere. Mistakes that are put in must be found."""
    wanted = ["README.md", "install.md", "service.md", "operations.md", "spaces.md", "cluster.md", "features.md", "evaluate.md", "experiments.md"]
    wanted += ["context.md", "glossary.md", "examples/prometheus/sclub.rules.yml", "examples/prometheus/prometheus.yml", "examples/grafana/sclub.json"]
    if missing := [name for name in wanted if f"{FOLDER}/{name}" not in files]:
        raise Failed(f"the package lacks {', '.join(missing)}")
    count, dead = dead_links(files)
    if dead or count < 100:
        raise Failed(f"of {count} relative links of the pages these lead nowhere: {'; '.join(dead)}")
    page = f"{FOLDER}/operations.md"
    for mistake in ["there-is-none.md", "service.md#there-is-none", "#there-is-none", "../CONTRIBUTING.md", "../../../../../../etc/passwd"]:
        if not dead_links(files | {page: files[page] + f"\n[a link]({mistake})\n".encode()})[1]:
            raise Failed(f"a link to {mistake} in a page is not found")
    print(f"{count} relative links of the pages lead to files of the package")
