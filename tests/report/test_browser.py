"""The page in a real browser: Debian's chromium, headless, driven by playwright."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from example_comparison import budgeted_example, example
from playwright.sync_api import Browser, Page, sync_playwright
from test_page import hostile

from bcrl.comparison import Comparison
from bcrl.estimate import Estimate
from bcrl.report import write_report

pytestmark = pytest.mark.slow

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Visit:
    """An open page, with everything it complained about or asked the network for."""

    def __init__(self, browser: Browser, table: Comparison | Estimate, folder: Path, **options) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(write_report(table, folder / "report.html").as_uri())

    def count_visible(self, selector: str) -> int:
        return sum(element.is_visible() for element in self.page.query_selector_all(selector))

    def unfold(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    def overflow(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def background(self) -> str:
        return self.page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_quiet_alone_and_complete(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path)
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []
    assert visit.count_visible("figure.plot .area") == 0  # folded
    visit.unfold()
    assert visit.complaints == []
    assert visit.count_visible("figure.plot .area") == 26
    sizes = visit.page.evaluate(
        "[...document.querySelectorAll('.area .line')].map(line => line.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert len(sizes) >= 26 and all(width > 50 for width, _ in sizes)
    assert visit.count_visible(".dot") == 3 + 2 * 3 + 2 + 6
    assert visit.page.evaluate("[...document.images].every(image => image.naturalWidth === 48)")


def bottom(visit: Visit, selector: str) -> float:
    return visit.page.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().bottom")


@pytest.mark.parametrize("table", [example(), budgeted_example()])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_first_screen_says_which_one_how_much_whether_and_what_next(browser, tmp_path, table, size):
    visit = Visit(browser, table, tmp_path, viewport=size)
    assert 0 < bottom(visit, "#ranking .which") < bottom(visit, "#ranking .next") < size["height"]
    assert bottom(visit, "#ranking .axis-row") <= size["height"]
    screen = visit.page.locator("#ranking").inner_text()
    for words in (
        "new actor",
        "trust",
        "You may believe it.",
        "What next:",
        "19.8",
        "the logged policy’s 42.3",
    ):
        assert words in screen
    if size is DESKTOP:
        assert bottom(visit, "#answer .fold") <= DESKTOP["height"]


@pytest.mark.parametrize("table", [example(), budgeted_example()])
def test_one_policys_first_screen_is_its_answer(browser, tmp_path, table):
    one = Comparison(
        {"new actor": table.estimates["new actor"]}, logged=table.logged, discount=0.99,
        differences={"new actor": table.differences["new actor"]}, dataset=table.dataset,
    )  # fmt: skip
    visit = Visit(browser, one, tmp_path)
    assert bottom(visit, ".answer") <= DESKTOP["height"]
    phone = Visit(browser, one, tmp_path, viewport=PHONE)
    assert 0 < bottom(phone, ".next") <= PHONE["height"]


def test_a_phones_page_of_three_policies_is_short_and_unfolds(browser, tmp_path):
    table = budgeted_example()
    three = replace(table, estimates={**table.estimates, "third": table.estimates["bold actor"]})
    visit = Visit(browser, three, tmp_path, viewport=PHONE, has_touch=True, is_mobile=True)
    height = visit.page.evaluate("document.documentElement.scrollHeight")
    assert height < 3000 and visit.overflow() <= 0
    visit.page.locator("#why > summary").tap()
    assert visit.count_visible("#why .intro") == 1 and visit.overflow() <= 0
    visit.unfold()
    assert visit.page.evaluate("document.documentElement.scrollHeight") > 3 * height
    assert visit.overflow() <= 0 and visit.complaints == []


def test_the_first_screen_holds_the_whole_answer_about_one_policy(browser, tmp_path):
    one = example().estimates["new actor"]["bcrl"]
    visit = Visit(browser, one, tmp_path)
    assert max(bottom(visit, ".answer"), bottom(visit, ".key")) <= DESKTOP["height"]
    assert bottom(Visit(browser, one, tmp_path, viewport=PHONE), ".answer") <= PHONE["height"]


def test_dots_lie_where_their_numbers_are(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path)
    visit.unfold()
    places = visit.page.evaluate(
        "[...document.querySelectorAll('.answer')[0].querySelectorAll('.dot')]"
        ".map(dot => { const box = dot.getBoundingClientRect(); return box.left + box.width / 2; })"
    )
    bcrl, random, fqe, logged = places
    assert logged < random < bcrl < fqe
    scale = (bcrl - logged) / (62.1 - 42.3)
    assert fqe - logged == pytest.approx(scale * (66.0 - 42.3), abs=1.5)


def test_methods_and_policies_can_be_switched_off_and_on(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path)
    visit.unfold()
    before = visit.count_visible("[data-method], [data-policy]")
    fqe = visit.page.get_by_role("button", name="fqe")
    fqe.click()
    assert fqe.get_attribute("aria-pressed") == "false"
    assert visit.count_visible("[data-method='2']") == 0
    assert visit.count_visible("[data-method='0']") > 0
    assert not visit.page.locator("#pictures").is_visible()  # only fqe had pictures
    visit.page.get_by_role("button", name="bold actor").click()
    assert visit.count_visible(".answer") == 1
    visit.page.get_by_role("button", name="fqe").click()
    visit.page.get_by_role("button", name="bold actor").click()
    assert visit.count_visible("[data-method], [data-policy]") == before
    assert visit.complaints == []


def test_numbers_under_the_pointer_and_by_keyboard(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path)
    visit.unfold()
    tip = visit.page.locator("#tip")
    visit.page.locator(".answer .dot").first.hover()
    assert tip.inner_text() == "bcrl: 62.1 (58.7 to 65.5)"
    canvas = visit.page.locator("#inside .canvas").first
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] - 20, "y": 40})
    lines = tip.inner_text().splitlines()
    assert lines[0].startswith("iteration 8") and lines[1].startswith("value 62.")
    canvas.focus()
    canvas.press("ArrowLeft")
    earlier = tip.inner_text().splitlines()
    assert float(earlier[0].split()[1]) < float(lines[0].split()[1])
    visit.page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_a_hidden_method_has_no_number_under_the_pointer(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path)
    visit.unfold()
    visit.page.get_by_role("button", name="random features").click()
    visit.page.locator("#time .canvas").first.hover()
    shown = visit.page.locator("#tip").inner_text()
    assert "bcrl" in shown and "fqe" in shown and "random" not in shown


def test_light_and_dark_follow_the_system_and_the_button(browser, tmp_path):
    light = Visit(browser, example(), tmp_path, color_scheme="light")
    dark = Visit(browser, example(), tmp_path, color_scheme="dark")
    day, night = light.background(), dark.background()
    assert day != night
    light.page.locator("#theme").click()
    assert light.background() == night
    light.page.reload()
    assert light.background() == night and light.page.locator("#theme").inner_text() == "Light"
    dark.page.locator("#theme").click()
    assert dark.background() == day
    dark.page.emulate_media(media="print", color_scheme="dark")
    assert dark.background() == "rgb(255, 255, 255)"


def test_text_can_be_read_in_both_themes(browser, tmp_path):
    for scheme in ("light", "dark"):
        visit = Visit(browser, example(), tmp_path, color_scheme=scheme)
        visit.unfold()
        ratios = visit.page.evaluate(_CONTRAST)
        assert len(ratios) > 20
        assert min(ratios.values()) >= 4.5, (scheme, min(ratios, key=ratios.get))


def test_hostile_text_stays_text(browser, tmp_path):
    visit = Visit(browser, hostile(), tmp_path)
    assert visit.page.evaluate("window.hacked") is None
    assert [
        text for text in visit.complaints if "ERR_INVALID_URL" not in text
    ] == []  # the hostile "picture" is no image
    assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []
    assert "<script>window.hacked = 1</script>" in visit.page.locator("h1").inner_text()
    assert "<img src=x onerror=" in visit.page.locator("#answer h2").first.inner_text()
    assert visit.overflow() <= 0
    visit.unfold()
    assert visit.overflow() <= 0


def test_nothing_runs_even_when_markup_gets_in(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path)
    visit.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 1\">')"
    )
    visit.page.wait_for_timeout(200)
    assert visit.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in text for text in visit.complaints)


def test_what_was_run_is_copied(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path)
    visit.unfold()
    visit.page.locator("#copy").click()
    visit.page.wait_for_function("document.getElementById('copy').textContent === 'Copied'")
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied.replace("\r\n", "\n").startswith("command: bcrl compare") and "seed: 7" in copied


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(browser, tmp_path, scheme):
    visit = Visit(
        browser, example(), tmp_path, viewport=PHONE, color_scheme=scheme, has_touch=True, is_mobile=True
    )
    visit.unfold()
    assert visit.overflow() <= 0 and visit.complaints == []
    tall = visit.page.evaluate(
        "[...document.querySelectorAll('.name b')].map(e => e.getBoundingClientRect().height)"
    )
    assert max(tall) < 50  # no name is broken letter by letter


def test_it_prints_whole(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path, color_scheme="dark")
    assert visit.page.locator("details[open]").count() == 0
    pdf = visit.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF") and 3 <= pdf.count(b"/Type /Page\n") <= 10
    assert visit.page.locator("details").first.get_attribute("open") is not None


def test_it_reads_without_scripts(browser, tmp_path):
    visit = Visit(browser, example(), tmp_path, java_script_enabled=False)
    assert visit.page.locator("#ranking .numbers b").first.inner_text() == "62.1"
    for summary in visit.page.locator("#answer > details > summary, main > details > summary").all():
        summary.click()
    assert visit.page.locator(".answer .value").first.inner_text() == "62.1"
    assert visit.count_visible("figure.plot .line") >= 26
    assert not visit.page.locator("#theme").is_visible() and not visit.page.locator("#copy").is_visible()


def test_a_single_estimate_has_a_page_too(browser, tmp_path):
    visit = Visit(browser, Estimate(value=3.25, method="FQE()", discount=0.9), tmp_path)
    assert visit.complaints == [] and visit.count_visible(".chips .chip") == 0
    assert visit.page.locator(".value").inner_text() == "3.25"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_with_budgets(browser, tmp_path, size, scheme):
    visit = Visit(browser, budgeted_example(), tmp_path, viewport=size, color_scheme=scheme)
    visit.page.locator("#answer > details").first.locator("summary").first.click()
    visit.page.locator("#answer > details").last.locator("summary").first.click()
    assert visit.complaints == [] and visit.overflow() <= 0
    assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []
    assert min(visit.page.evaluate(_CONTRAST).values()) >= 4.5
    heights = "[...document.querySelectorAll('.answer .interval.{0}')].map(e => e.offsetHeight)"
    thick, thin = (visit.page.evaluate(heights.replace("{0}", name)) for name in ("honest", "sampling"))
    assert len(thick) == len(thin) == 5 and min(thick) > 2 * max(thin) > 0
    first = visit.page.query_selector(".answer .bars")
    ends = first.eval_on_selector_all(
        ".beam i", "bars => bars.map(b => b.getBoundingClientRect()).map(b => [b.left, b.right])"
    )
    assert len(ends) == 5
    assert all(right == pytest.approx(left, abs=1.5) for (_, right), (left, _) in pairwise(ends))
    visit.page.locator("#why > summary").click()
    visit.page.locator("#why details:has(.diagnostics) > summary").first.click()
    assert visit.count_visible(".diagnostics .checks") == 0
    visit.page.locator(".diagnostics summary").first.click()
    assert visit.count_visible(".diagnostics .checks") == 1


# Contrast of every visible text with the first opaque colour behind it (WCAG 2, relative luminance).
_CONTRAST = """() => {
  const parse = (text) => {
    const n = text.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1];
  };
  const light = (c) => c.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; }
    return [255, 255, 255, 1]; };
  const found = {};
  for (const e of document.querySelectorAll('main *, nav *, footer')) {
    const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join('');
    if (!text || !e.offsetParent) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const name = e.tagName + '.' + e.className;
    found[name] = Math.min(found[name] ?? 99, (a + 0.05) / (b + 0.05));
  }
  return found;
}"""
