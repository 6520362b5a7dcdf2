"""Docs say what the code does: generated pages are current, plots have both themes, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_current():
    ran = subprocess.run([sys.executable, "scripts/gen_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr + "\nrun: make docs"


def test_the_pages_show_each_plot_light_and_dark():
    text = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    light, dark = (set(re.findall(rf'"figures/(.+?)\.{theme}\.svg"', text)) for theme in ("light", "dark"))
    assert light and light == dark
    files = {path.name for path in (ROOT / "docs" / "figures").iterdir()}
    assert files == {f"{name}.{theme}.svg" for name in light for theme in ("light", "dark")}
    for name in files:
        assert ElementTree.parse(ROOT / "docs" / "figures" / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_links_between_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_of_the_readme_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", (ROOT / "README.md").read_text())) <= targets
