"""The site with its versions: `python docs/_site/versions.py --out site` builds this one beside those that lie there.

Every version has a folder of its own, `site/0.1.0/`; `versions.json` lists them, newest first, for the menu of the theme;
`index.html` leads to the newest. Nothing is fetched, and earlier versions are left as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def current() -> str:
    """The version of the sources."""
    text = (ROOT / "src/hesscope/_version.py").read_text()
    return text.split('"')[1]


def place(built: Path, out: Path, version: str) -> None:
    """Put a built site into its folder, replacing the same version only, and list what is there."""
    target = out / version
    if target.exists():
        if not (target / "search").is_dir():
            raise SystemExit(f"{target} is no site that was built here; choose another --out.")
        shutil.rmtree(target)
    shutil.copytree(built, target)
    known = sorted((p.name for p in out.iterdir() if (p / "index.html").is_file()), key=_order, reverse=True)
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == known[0] else []} for name in known]
    (out / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    leads = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={known[0]}/index.html">'
    (out / "index.html").write_text(f'{leads}<a href="{known[0]}/index.html">Hesscope {known[0]}</a>\n')


def _order(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", folder]
        if subprocess.run(build, cwd=ROOT).returncode:
            raise SystemExit("the site could not be built")
        place(Path(folder), out, current())


if __name__ == "__main__":
    main()
