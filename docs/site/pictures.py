"""Draw the pictures of README.md from exported records; `make pictures` runs this file. It needs chromium.

A file beside the pictures keeps the hash of the records of each picture. A test compares the hashes with the records.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "notebooks" / "data"
DRAWN_FROM = ROOT / "docs" / "pictures" / "drawn_from.json"
"""The hash of the records of every picture."""
PICTURES = {"docs/pictures/report.png": "quickstart", "notebooks/pictures/loops.svg": "scaling_loops"}
"""Every picture, and the folder of its records in `notebooks/data`."""
WIDTH, HEIGHT = 1100, 980
"""Pixels of the report's picture."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def records_hash(name: str) -> str:
    """The hash of the names and contents of all files of an export."""
    files = sorted((DATA / name).iterdir())
    lines = [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def draw_report(picture: Path, records: Path) -> None:
    """The first screen of the report of an export."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_file = Path(folder) / "report.html"
        loopscale = (sys.executable, "-m", "loopscale.cli.main", "--store", f"{folder}/store")
        subprocess.run([*loopscale, "import", str(records)], check=True)
        subprocess.run([*loopscale, "report", records.name, "--out", str(page_file)], check=True)
        program = next(filter(None, map(shutil.which, BROWSERS)))
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file.as_uri())
        page.screenshot(path=picture)
        browser.close()


def draw_law(picture: Path, records: Path) -> None:
    """The figure of regret against loops."""
    from loopscale.analysis.notebook import results

    results("scaling/loops", store=records).law("regret_last", "training.loops").write_image(picture)


def main() -> None:
    """Draw every picture, and note the records."""
    for (path, name), draw in zip(PICTURES.items(), (draw_report, draw_law), strict=True):
        draw(ROOT / path, DATA / name)
    hashes = {path: records_hash(name) for path, name in PICTURES.items()}
    DRAWN_FROM.write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
