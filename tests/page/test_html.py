"""The page as a file: whole, closed, and safe whatever the trace is called."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from foretrace.graph.literal import literal
from foretrace.page.html import SCRIPTS, render_page, write_page
from foretrace.page.timeline import timeline_data
from foretrace.replaying.replay import replay
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "</script><script>alert(1)</script><!--&\u2028\udcff"


def parts(text: str) -> tuple[str, str, dict[str, Any]]:
    """Return style, script and data of a page."""
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return style, script, json.loads(data)


def test_data_comes_back_as_it_was() -> None:
    """Text that would end its element is escaped, and read again unchanged."""
    text = render_page({"job": {"source": HOSTILE}, "scenario": []}, HOSTILE).decode()

    assert "alert(1)</script>" not in text
    assert parts(text)[2]["job"]["source"] == HOSTILE


def test_the_policy_allows_this_style_and_script_alone() -> None:
    """The hashes in the policy are those of what stands in the page."""
    text = render_page({"scenario": ["amp"]}, "").decode()
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)

    assert "default-src 'none'" in policy
    for content in parts(text)[:2]:
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_the_page_needs_no_network() -> None:
    """Nothing is loaded from anywhere."""
    text = render_page({"scenario": []}, "").decode()

    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', text) == []
    assert "url(" not in text
    assert "@import" not in text


def test_scripts_never_write_markup() -> None:
    """What came from a trace can only become text."""
    script = parts(render_page({"scenario": []}, "").decode())[1]

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_without_scripts_the_report_is_text() -> None:
    """A browser that runs none shows the text, escaped."""
    text = render_page({"scenario": []}, "step <b> 3 ms").decode()

    assert "<noscript><pre>step &lt;b&gt; 3 ms</pre></noscript>" in text


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    """The file holds what the page is, and nothing is left beside it."""
    path = tmp_path / "report.html"
    write_page({"scenario": ["amp"]}, "text", path)

    assert path.read_bytes() == render_page({"scenario": ["amp"]}, "text")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert b"<title>amp \xe2\x80\x93 Foretrace</title>" in path.read_bytes()


def test_every_file_of_the_page_is_used() -> None:
    """A script that is not named would be missing from the page."""
    files = {p.name for p in (ROOT / "foretrace" / "page").iterdir() if p.is_file()}

    assert {n for n in files if not n.endswith(".py")} == {*SCRIPTS, "page.html", "page.css"}


def test_a_page_of_many_tasks_stays_small() -> None:
    """200,000 tasks with 2,000 long names, before and after: under 5 MB."""
    name = "void at::native::some_kernel<float, {}>" + "x" * 60
    tasks = [(name.format(n % 2_000), "kernel", 0, 100 + n % 977, None) for n in range(200_000)]
    timeline = replay(literal(tasks, wrap=True))
    drawn = [timeline_data(timeline, label) for label in ("before", "after")]
    size = len(render_page({"scenario": [], "timelines": drawn}, ""))

    assert 500_000 < size < 3_000_000
    assert sum(drawn[0]["rows"][1]["blocks"][2::6]) >= 200_000
