"""The page in a real browser: silent, usable, accessible, and its calculator equal to Python."""

import csv
import io
import math
import os
import re
import shutil
from fractions import Fraction

import pytest
import report_tables
from test_report import CACHES, recipes, shipped, states

from transformer_ledger.formulas import training_compute
from transformer_ledger.ledger import fit, kv_cache, training_state
from transformer_ledger.ledger.storage import bytes_per_number
from transformer_ledger.model import ModelSpec
from transformer_ledger.report import page as report
from transformer_ledger.report import whatif

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if BROWSER is None and not os.environ.get("CI"):
    pytest.skip("no Chromium on this machine (Debian: apt install chromium); CI has one", allow_module_level=True)

SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDTHS = (360, 800, 1400)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=SWITCHES)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.compute(**report_tables.tables()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """Opens the page; the test fails where it logs an error or asks for anything but itself."""
    wrong: list[str] = []
    contexts = []

    def asks_elsewhere(url: str) -> bool:
        return url.split("#")[0] != address and not url.startswith(("data:", "blob:"))

    def open_page(hash_: str = "", width: int = 1400, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        made = context.new_page()
        made.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.on("request", lambda request: wrong.append(request.url) if asks_elsewhere(request.url) else None)
        made.goto(address + hash_)
        return made

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_horizontal_scroll(opened, width, theme):
    page = opened(width=width, color_scheme=theme)
    page.evaluate("document.querySelectorAll('details').forEach((box) => { box.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 360)])
def test_no_serious_accessibility_finding(opened, theme, width):
    from axe_playwright_python.sync_playwright import Axe

    page = opened("#table-ledger-parameters", width=width, color_scheme=theme)
    page.locator("[data-cases='A1.1']").evaluate("box => { box.open = true }")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [
        (rule["id"], [node["target"] for node in rule["nodes"]][:3])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_every_contents_link_lands(opened):
    page = opened()
    links = page.eval_on_selector_all(".contents a", "all => all.map(a => a.hash.slice(1))")
    assert len(links) > 30
    for target in links:
        page.evaluate("id => { location.hash = id }", target)
        page.wait_for_function(
            """id => { const top = document.getElementById(id).getBoundingClientRect().top;
            const end = document.documentElement.scrollHeight - innerHeight - scrollY;
            return Math.abs(top) < 60 || end < 2; }""",
            arg=target,
        )
    page.evaluate("location.hash = 'kv-cache'")
    page.wait_for_function("document.querySelector('.contents [aria-current]').hash === '#kv-cache'")


def test_a_link_into_a_closed_box_opens_it(opened):
    page = opened("#table-ledger-matmul")
    assert page.eval_on_selector("#table-ledger-matmul", "box => box.open")
    assert page.locator("#table-ledger-matmul tbody tr").count() == 100


def test_boxes_wider_than_the_screen_say_so(opened):
    page = opened("#table-ledger-matmul", width=360)
    page.wait_for_function("document.querySelector('#summary-parameters .scroll.wide')")
    page.wait_for_function("document.querySelector('#table-ledger-matmul .scroll.wide')")
    hint = "getComputedStyle(document.querySelector('#summary-parameters .scroll'), '::before').content"
    assert "scroll sideways" in page.evaluate(hint)
    page.set_viewport_size({"width": 1400, "height": 900})
    page.wait_for_function("!document.querySelector('#summary-parameters .scroll.wide')")
    assert page.evaluate(hint) == "none"


def test_theme_follows_the_system_and_the_switch(opened):
    page = opened(color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.click("#theme")  # light
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_exact_figures_show_every_digit(opened):
    page = opened()
    cell = page.locator("#summary-matmul tbody tr td").nth(3)
    assert "× 10" in page.locator("#summary-matmul tbody").inner_text()
    page.click("#exact")
    assert "× 10" not in page.locator("#summary-matmul tbody").inner_text()
    assert cell.is_visible()


def downloaded(page, box, name=None) -> list[dict[str, str]]:
    """Rows of the CSV that a table gives."""
    with page.expect_download() as download:
        box.get_by_role("button", name="Download").click()
    assert name is None or download.value.suggested_filename == name
    return list(csv.DictReader(io.StringIO(download.value.path().read_text(encoding="utf-8"))))


def test_sort_filter_and_download(opened):
    page = opened("#table-ledger-matmul")
    box = page.locator("#table-ledger-matmul")
    names = box.locator("thead th").all_inner_texts()
    column = next(index for index, name in enumerate(names) if name.startswith("flops"))
    header = box.locator("thead th button").nth(column)
    header.click()
    header.click()
    assert box.locator("thead th").nth(column).get_attribute("aria-sort") == "descending"
    page.click("#exact")
    shown = [int(text.replace(",", "")) for text in box.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] > 2**53 / 100
    box.locator("input[type=search]").fill("llama decode head")
    assert box.locator("tbody tr").count() == 2
    rows = downloaded(page, box, "ledger-matmul.csv")
    assert [(row["model"], row["phase"], row["component"]) for row in rows] == [("llama-3-8b", "decode", "head")] * 2
    assert {row["flops [FLOP]"] for row in rows} == {str(2 * 128256 * 4096)}


def test_small_tables_sort_and_download_exact_values(opened):
    page = opened()
    table = page.locator("#summary-parameters")
    table.locator("thead th button").nth(1).click()
    assert table.locator("tbody tr").first.inner_text().startswith("teaching")
    rows = downloaded(page, table)
    assert [row["parameters"] for row in rows] == ["889600", "8030261248", "46702792704"]
    assert rows[2]["model"] == "'" + report_tables.HOSTILE  # no spreadsheet runs it


def test_every_small_table_downloads_plain_numbers(opened):
    page = opened()
    texts = page.evaluate(
        """async () => {
            const made = [];
            const link = URL.createObjectURL;
            URL.createObjectURL = (blob) => (made.push(blob), link(blob));
            HTMLAnchorElement.prototype.click = () => {};
            const names = [...document.querySelectorAll(".table")].map((box) => {
                box.querySelector(".tools button[aria-label^=Download]").click();
                return box.id;
            });
            return Object.fromEntries(await Promise.all(made.map(async (blob, i) => [names[i], await blob.text()])));
        }"""
    )
    assert len(texts) > 15
    for name, text in texts.items():
        for row in csv.DictReader(io.StringIO(text)):
            for label, value in row.items():
                assert not re.search(r"^\u2212|\u00d7 10|^\d+,\d{3}", value), (name, label, value)
                if label.endswith((", low", ", high")):
                    assert value == "" or math.isfinite(float(value)), (name, label, value)
    fits = list(csv.DictReader(io.StringIO(texts["summary-fit"])))
    assert {row["context [small-24gb]"] for row in fits} == {"256", "8192", "no"}


def test_intervals_sort_by_their_ends(opened):
    page = opened()
    table = page.locator("#summary-classification")
    labels = table.locator("thead th").all_inner_texts()
    column = next(index for index, label in enumerate(labels) if label.startswith("interval"))
    table.locator("thead th button").nth(column).click()
    lows = [float(row["interval [nat/token], low"]) for row in downloaded(page, table)]
    assert lows == sorted(lows)
    assert len(set(lows)) == 3


def test_filter_takes_words_that_stand_together_for_one(opened):
    page = opened("#table-ledger-parameters")
    box = page.locator("#table-ledger-parameters")
    box.locator("input[type=search]").fill("Llama 3 8B")
    assert set(box.locator("tbody td:first-child").all_inner_texts()) == {"llama-3-8b"}
    box.locator("input[type=search]").fill("Llama 3 8B head")
    assert box.locator("tbody tr").count() == 1
    box.locator("input[type=search]").fill("nothing of this")
    assert box.locator("tbody tr").count() == 0


def test_copy_puts_the_rows_on_the_clipboard(opened):
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#summary-parameters").get_by_role("button", name="Copy").click()
    page.wait_for_function("document.querySelector('#summary-parameters .tools').textContent.includes('Copied')")
    assert "Llama 3 8B\t8030261248" in page.evaluate("navigator.clipboard.readText()")


def test_cases_open_and_claims_filter(opened):
    page = opened("#claim-A1.1")
    page.locator("[data-cases='A1.1'] summary").click()
    cells = page.locator("[data-cases='A1.1'] tbody").inner_text()
    assert report_tables.HOSTILE in cells
    page.locator("#claim-filters input[value='not settled']").uncheck()
    assert page.locator(".claim:visible").count() == 4
    page.evaluate("location.hash = 'claim-A2.1'")  # a link to a hidden claim shows it again
    page.wait_for_function("document.getElementById('claim-A2.1').checkVisibility()")


def test_a_symbol_says_what_it_means(opened):
    page = opened("#formulas")
    page.locator("#formula-matmul-scores msub[data-symbol=d_h]").hover()
    assert page.locator("#tip").inner_text().startswith("width of one query or key head")


def test_keyboard_alone_reaches_a_result(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.locator("#knob-L").focus()
    page.keyboard.press("ArrowUp")
    assert page.locator(".exact-count").inner_text() == f"{8030261248 + 4096 * (4096 * 2 + 2 * 1024 + 3 * 14336 + 2):,}"


def test_llama_3_8b_shows_the_rules_error(opened):
    page = opened("#what-if")
    assert page.locator(".exact-count").inner_text() == "8,030,261,248"
    assert page.locator(".rule-error").inner_text().startswith("13.2 % too few")


def test_a_setting_is_in_the_address_and_comes_back(opened):
    page = opened("#what-if")
    page.locator("#knob-L").fill("40")
    page.select_option("#knob-recipe", "zero-3")
    hash_ = page.evaluate("location.hash")
    assert set(hash_.removeprefix("#what-if?").split("&")) == {"model=llama-3-8b", "L=40", "recipe=zero-3"}
    again = opened(hash_)
    assert again.input_value("#knob-L") == "40"
    assert again.locator(".exact-count").inner_text() == page.locator(".exact-count").inner_text()
    broken = opened("#what-if?model=nobody&L=-3&d=x&recipe=%3Cscript%3E&h=1e9")
    assert broken.locator(".exact-count").inner_text() == "8,030,261,248"


def test_calculator_opens_on_the_smallest_device_of_what_fits(opened):
    page = opened("#what-if")
    assert (page.input_value("#knob-M"), page.input_value("#knob-P")) == ("24", "10")
    room = f"{fit.available(report_tables.DEVICES['small-24gb']):,} bytes"
    results = page.locator(".results")
    assert "24 GB less 10 % reserve: 21.6 GB" in results.inner_text()
    assert results.locator(f"span[title='{room}']").count() == 1
    page.locator("#knob-P").fill("0")
    assert "24 GB less 0 % reserve: 24 GB" in results.inner_text()
    assert "P=0" in page.evaluate("location.hash")
    page.locator("#knob-P").fill("100")
    assert "reserve: 100 is not a percentage below 100" in results.inner_text()


@pytest.mark.parametrize("model", ["llama-3-8b", "teaching"])
def test_calculator_says_what_a_recipe_divides(opened, model):
    page = opened(f"#what-if?model={model}")
    assert page.input_value("#knob-G") == ("16000" if model == "llama-3-8b" else "1")  # those of a training run
    assert "each device holds all of it: this recipe divides nothing" in page.locator(".results").inner_text()
    page.select_option("#knob-recipe", "zero-3")
    page.locator("#knob-G").fill("8")
    assert "on each of 8 devices, divided by ZeRO stage 3" in page.locator(".results").inner_text()


def test_the_address_takes_words_and_says_what_it_does_not_know(opened):
    page = opened("#what-if?model=experts&batch=32&context=8192&memory=80.5&reserve=12.5")
    shown = {name: page.input_value(f"#knob-{name}") for name in ("model", "B", "T", "M", "P")}
    assert shown == {"model": "experts", "B": "32", "T": "8192", "M": "80.5", "P": "12.5"}
    assert page.locator(".problem").count() == 0
    page.locator("#knob-L").fill("33")
    hash_ = page.evaluate("location.hash")
    assert {"B=32", "T=8192", "M=80.5", "P=12.5"} <= set(hash_.split("?")[1].split("&"))
    assert opened(hash_).locator(".results").inner_text() == page.locator(".results").inner_text()
    known = page.locator("#calculator + .note").inner_text()
    assert "batch (B), context (T)" in known
    broken = opened("#what-if?model=nobody&btach=3&toString=1&L=-3&w=5&recipe=%3Cscript%3E&reserve=100")
    assert [line.removeprefix("The address: ") for line in broken.locator(".problem").all_inner_texts()] == [
        "no model named nobody; this is Llama 3 8B.",
        "unknown key btach.",
        "unknown key toString.",
        "L -3 is not a positive integer.",
        "Llama 3 8B has no w.",
        "no recipe named <script>.",
        "reserve 100 is not a percentage below 100.",
    ]
    assert broken.locator(".exact-count").inner_text() == "8,030,261,248"
    broken.locator("#knob-L").fill("33")
    assert broken.locator(".problem").count() == 0


def test_sliders_recompute_and_contradictions_are_said(opened):
    page = opened("#what-if")
    before = page.locator(".exact-count").inner_text()
    page.locator("[data-knob=f] input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".exact-count").inner_text() != before
    page.locator("#knob-h_kv").fill("7")
    assert "7 K/V heads do not divide 32 heads" in page.locator(".results").inner_text()
    page.locator("#knob-h_kv").fill("0")
    assert "not a positive integer" in page.locator(".results").inner_text()
    page.get_by_role("button", name="Reset").click()
    assert page.locator(".exact-count").inner_text() == before


def expected(state: dict) -> dict[str, Fraction]:
    """What Python says about a state of the calculator."""
    spec = ModelSpec.from_json(report_tables.models()[state["model"]]["spec"])
    varied = whatif.vary(spec, state["sizes"])
    found = whatif.quantities(varied, state["B"], state["T"], whatif.stored(state["cache"]))
    counted = whatif.counts(varied, report_tables.RECIPES)
    N, G, D, R, T = found["parameters"], state["G"], state["D"], state["R"], state["T"]
    held = whatif.state(report_tables.RECIPES[state["recipe"]], counted, G)
    rough, rule = (training_compute.rule_flops(found[name], D) for name in ("rule", "active"))
    exact = Fraction(found["train"], T) * D
    return {
        **{name: Fraction(value) for name, value in (found | counted).items()},
        "missed": Fraction(N - found["rule"]),
        "error": Fraction(N - found["rule"], N),
        "weights": N * bytes_per_number(state["dtype"]),
        "state_total": Fraction(held["total"]),
        "state_share": Fraction(held["share"]),
        "train_rough": Fraction(rough),
        "train_rule": Fraction(rule),
        "train_exact": exact,
        "seconds_rough": Fraction(rough, G * R),
        "seconds_rule": Fraction(rule, G * R),
        "seconds_exact": exact / (G * R),
    }


def evaluated(page, points: list[dict]) -> list[dict[str, Fraction]]:
    """What the page's calculator says about each state."""
    answers = page.evaluate(
        """points => points.map((point) => {
            const big = (value) => BigInt(value);
            const sizes = Object.fromEntries(Object.entries(point.sizes).map(([name, value]) => [name, big(value)]));
            const counts = Object.fromEntries(["B", "T", "D", "G", "R"].map((name) => [name, big(point[name])]));
            const found = transformerLedger.evaluate({ ...point, ...counts, sizes });
            return Object.fromEntries(Object.entries(found).map(([name, pair]) => [name, pair.map(String)]));
        })""",
        [{**point, **{key: str(point[key]) for key in "BTDGR"}} for point in points],
    )
    return [{name: Fraction(int(above), int(below)) for name, (above, below) in found.items()} for found in answers]


def test_calculator_equals_the_ledgers_for_every_shipped_model(browser, tmp_path):
    made, specs = recipes(), shipped()
    models = {name: {"spec": spec.to_json()} for name, spec in specs.items()}
    path = tmp_path / "report.html"
    path.write_text(report.compute(models=models, recipes=made, cache_dtypes=CACHES), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.input_value("#knob-recipe") == "adamw-fp32"
    common = {"D": 1, "R": 1, "dtype": "bf16"}
    points = [
        {"model": name, "sizes": whatif.sizes(spec), "B": 2, "T": min(64, spec.context), **common}
        | {"recipe": recipe, "cache": CACHES[index % len(CACHES)], "G": held.get("devices", 1)}
        for name, spec in specs.items()
        for index, (recipe, held) in enumerate(made.items())
    ]
    assert len(made) >= len(CACHES)
    for point, found in zip(points, evaluated(page, points), strict=True):
        spec, recipe = specs[point["model"]], made[point["recipe"]]
        rows = training_state.compute({"": models[point["model"]]["spec"]}, {"": recipe})
        assert found["state_total"] == sum(row["bytes"] for row in rows), point
        assert found["state_share"] == sum(row["bytes_per_device"] for row in rows), point
        assert found["cache"] == kv_cache.cache_bytes(spec, 2, point["T"], point["cache"], "needed"), point
    page.close()


def test_calculator_equals_python_on_a_thousand_points(opened):
    points = states(1000)
    answers = evaluated(opened(), points)
    largest = 0
    for point, answer in zip(points, answers, strict=True):
        wanted = expected(point)
        assert answer == wanted
        largest = max(largest, wanted["train_exact"])
    assert largest > 2**53  # the grid goes where doubles would round


def test_prints_to_pdf(opened):
    page = opened()
    pdf = page.pdf(format="A4", prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 690, "height": 900})  # A4 less its margins
    cut = page.eval_on_selector_all(
        "table.data",
        """all => all.filter(table => table.offsetParent && table.getBoundingClientRect().right > innerWidth + 1)
        .map(table => table.dataset.name)""",
    )
    assert cut == []


def test_usable_within_a_second(opened):
    page = opened()
    timing = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    assert timing < 1000
