"""The page in a real browser: it loads clean, its controls work, and it fits a phone."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.unchanged.baseline import replay_baseline, run_experiment
from foretrace.graph.literal import literal
from foretrace.graph.state import Doubt
from foretrace.page.data import outlook, view
from foretrace.page.html import write_page
from foretrace.page.server import ServedTrace, Site, listen
from foretrace.transforms.scenario import parse_scenario
from tests.support.browser import chromium, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PHONE = {"viewport": {"width": 375, "height": 700}, "has_touch": True, "is_mobile": True}
HOSTILE = "<img src=x onerror=alert(1)>gemm"
GRAPH = literal(
    [
        ("aten::mm", "host", 0, 5_000, "forward"),
        ("cudaLaunchKernel", "launch", 0, 2_000, "forward"),
        (HOSTILE, "kernel", 1, 30_000, "forward"),
        ("relu_elementwise_kernel", "kernel", 1, 10_000, "backward"),
    ],
    [(1, 2, "launch", 4_000)],
    wrap=True,
    measured_step_ns=40_000,
)
SCENARIO = parse_scenario(["faster_kernels(speedup=2)"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start one browser for all tests of this file."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a report and return where it is."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    data = {
        **view(run_experiment(GRAPH, SCENARIO)),
        **outlook(replay_baseline(GRAPH)),
        "version": "0",
    }
    write_page(data, "text", path)
    return path.as_uri()


@pytest.fixture
def served() -> Iterator[str]:
    """Serve the same job."""
    traces = [ServedTrace("one.json", GRAPH), ServedTrace("two.json", GRAPH)]
    with listen(Site(traces, "0"), 0) as listening:
        thread = Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://localhost:{listening.server_address[1]}/"
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_loads_clean(browser: Any, address: str, scheme: str) -> None:
    """Every section is there, nothing is said on the console, nothing asked of the network."""
    with opened(browser, address, color_scheme=scheme) as page:
        assert [each.get_attribute("id") for each in page.locator("section").all()] == [
            *("headline", "timelines", "limits", "use", "breakdown", "notes", "evidence"),
            *("sensitivity", "advice"),
        ]
        assert page.locator("h1").inner_text() == "What if: faster_kernels(speedup=2)?"
        assert page.locator(".figure").nth(2).inner_text().startswith("2.00×")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, paper[4:-1].split(", "))) < 384) == (scheme == "dark")


def test_doubts_stand_before_the_numbers(browser: Any, tmp_path: Path) -> None:
    """Whatever a recording leaves open is read first; a page without doubts has no such part."""
    doubt = Doubt("steps-guessed", "that is a guess", "step 3")
    graph = GRAPH.with_state(doubts=(doubt,))
    path = tmp_path / "report.html"
    data = view(run_experiment(graph, SCENARIO)) | outlook(replay_baseline(graph))
    write_page({**data, "version": "0"}, "text", path)

    with opened(browser, path.as_uri()) as page:
        first = page.locator("section").first
        assert first.get_attribute("id") == "doubts"
        assert "steps-guessed, step 3: that is a guess" in first.inner_text()


def test_names_of_the_trace_stay_text(browser: Any, address: str) -> None:
    """Markup in a kernel's name is shown, not obeyed."""
    with opened(browser, address) as page:
        assert page.locator("img").count() == 0
        assert HOSTILE in page.locator("#limits").inner_text()


def test_the_timeline_is_drawn(browser: Any, address: str) -> None:
    """Both canvases hold more than their background."""
    with opened(browser, address) as page:
        colours = page.evaluate(
            """() => [...document.querySelectorAll("canvas")].map((canvas) => new Set(
                 new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width,
                 canvas.height).data.buffer)).size)"""
        )

    assert len(colours) == 2
    assert min(colours) > 8


def test_the_timeline_works_by_keyboard(browser: Any, address: str) -> None:
    """Lanes and blocks are said aloud; zooming changes the picture, and 0 brings it back."""
    with opened(browser, address) as page:
        canvas, said = page.locator("canvas").first, page.locator("output").first
        canvas.focus()
        whole = canvas.evaluate("each => each.toDataURL()")
        page.keyboard.press("+")
        assert canvas.evaluate("each => each.toDataURL()") != whole
        page.keyboard.press("0")
        assert canvas.evaluate("each => each.toDataURL()") == whole
        page.keyboard.press("ArrowDown")
        assert said.inner_text() == "Lane: rank 0 thread 100 (main)"
        page.keyboard.press("n")
        assert said.inner_text().startswith("aten::mm (host). 5.00\xa0µs on rank 0 thread 100")
        page.keyboard.press("n")
        assert said.inner_text().startswith("cudaLaunchKernel (launch)")
        page.keyboard.press("p")
        assert said.inner_text().startswith("aten::mm")


def test_the_timeline_works_by_pointer(browser: Any, address: str) -> None:
    """Pointing says what a block is; both timelines zoom together."""
    with opened(browser, address) as page:
        first, second = page.locator("canvas").all()
        before = second.evaluate("each => each.toDataURL()")
        page.get_by_role("button", name="Zoom in").click()
        assert second.evaluate("each => each.toDataURL()") != before
        page.get_by_role("button", name="Show all").click()
        first.hover(position={"x": 400, "y": 22 + 2 * 34 + 22})
        assert HOSTILE in page.locator("output").first.inner_text()


def test_choices_change_what_is_shown(browser: Any, address: str) -> None:
    """The breakdown by phase, the curves of kernels."""
    with opened(browser, address) as page:
        page.get_by_label("phase", exact=True).check(force=True)
        assert "backward" in page.locator("#breakdown table").inner_text()
        page.get_by_label("kernels", exact=True).check(force=True)
        label = page.locator("#sensitivity figure svg[role=img]").get_attribute("aria-label")
        assert "Most is gained by gemm" in label


def test_pictures_have_words(browser: Any, address: str) -> None:
    """Everything drawn has a text alternative, every control a name."""
    with opened(browser, address) as page:
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("canvas, svg, button, select, input")].filter(
                 (each) => !each.getAttribute("aria-label") && !each.getAttribute("aria-hidden")
                 && !each.textContent.trim() && !(each.labels && each.labels.length)).length"""
        )

    assert nameless == 0


@pytest.mark.parametrize("size", [{}, PHONE], ids=["desk", "phone"])
def test_nothing_sticks_out(browser: Any, address: str, size: dict[str, Any]) -> None:
    """The page is never wider than the screen; wide tables scroll by themselves."""
    with opened(browser, address, **size) as page:
        wide, screen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")

    assert wide <= screen


def test_what_ifs_are_asked_live(browser: Any, served: str) -> None:
    """Adding, changing and removing a what-if changes the prediction; a mistake is a sentence."""
    with opened(browser, served) as page:
        assert page.locator("h1").inner_text() == "The job as recorded"
        page.locator("#add").select_option("faster_kernels")
        page.locator("#add-whatif").click()
        page.locator("h1", has_text="faster_kernels(speedup=2)").wait_for()
        page.get_by_label("speedup (needed)").fill("4")
        page.locator("h1", has_text="faster_kernels(speedup=4)").wait_for()
        assert page.locator(".figure").nth(2).inner_text().startswith("4.00×")
        page.get_by_label("speedup (needed)").fill("")
        page.locator("#ask", has_text="Fill in what is needed.").wait_for()
        page.get_by_role("button", name="Remove faster_kernels").click()
        page.locator("h1", has_text="The job as recorded").wait_for()
        page.locator("#trace").select_option("1")
        page.locator("#sensitivity").wait_for()


def test_the_servers_words_are_shown(browser: Any, served: str) -> None:
    """What does not apply is said, and the last answer stays."""
    with opened(browser, served) as page:
        page.locator("#add").select_option("faster_kernels")
        page.locator("#add-whatif").click()
        page.locator("h1", has_text="faster_kernels").wait_for()
        page.get_by_label("pattern").fill("nothing like it")
        page.locator("#ask .error").wait_for()
        assert "nothing like it" in page.locator("#ask .error").inner_text()
        assert "faster_kernels" in page.locator("h1").inner_text()
