"""Faults that depend on colours and widths, found without axe-core.

axe takes 200 ms of CPU for these three rules on a fresh page, this script a tenth. It looks at
ancestors only: what lies over something else by its position is left to axe.
"""

from __future__ import annotations

from playwright.sync_api import Page

_SCRIPT = r"""skipped => {
  const faults = [], styles = new Map(), rgba = new Map();
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const style = element => {
    if (!styles.has(element)) styles.set(element, getComputedStyle(element));
    return styles.get(element);
  };
  const colour = text => {  // premultiplied, 0 to 1; any notation, oklch too
    if (!rgba.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = [...canvas.getImageData(0, 0, 1, 1).data].map(value => value / 255);
      rgba.set(text, [r * a, g * a, b * a, a]);
    }
    return rgba.get(text);
  };
  const over = (top, below) => top.map((value, n) => value + (1 - top[3]) * below[n]);
  const luminance = seen => seen.slice(0, 3)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, n) => sum + value * [0.2126, 0.7152, 0.0722][n], 0);
  const ratio = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const pixels = element => {  // of the text and beside it; null above a picture
    let text = colour(style(element).color), beside = [0, 0, 0, 0];
    for (let one = element; one; one = one.parentElement) {
      const {backgroundColor, backgroundImage, opacity} = style(one);
      if (beside[3] < 0.99 && backgroundImage !== "none") return null;
      [text, beside] = [text, beside].map(
        seen => over(seen, colour(backgroundColor)).map(value => value * opacity));
    }
    return [text, beside].map(seen => over(seen, [1, 1, 1, 1]));
  };
  const note = (rule, element, why) =>
    faults.push(`${rule}: ${element.outerHTML.slice(0, 160)} ${why}`);
  const shown = element => element.checkVisibility({visibilityProperty: true})
    && Math.min(element.offsetWidth, element.offsetHeight) > 1;
  const judged = element => !(skipped && element.closest(skipped));
  const disabled = element => element.closest(":disabled, [aria-disabled=true]")
    || element.closest("label")?.control?.disabled;

  const holders = new Set(document.querySelectorAll(
    "input:not([type=hidden], [type=range], [type=color], [type=checkbox], [type=radio]), " +
    "select, textarea"));
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    if (walker.currentNode.data.trim().length > 1) holders.add(walker.currentNode.parentElement);
  for (const element of holders) {
    if (!(element instanceof HTMLElement) || !judged(element) || !shown(element)) continue;
    const seen = disabled(element) ? null : pixels(element);
    if (!seen) continue;
    const size = parseFloat(style(element).fontSize), bold = style(element).fontWeight >= 700;
    const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    const found = ratio(...seen);
    if (found < least - 0.05)
      note("color-contrast", element, `${found.toFixed(2)}, expected ${least}`);
  }

  const looks = ["fontFamily", "fontSize", "fontStyle", "fontWeight", "textDecorationLine",
    "borderBottomWidth", "outlineStyle", "backgroundImage"];
  const plain = box => [...box.childNodes].reduce((length, node) => {
    if (node.nodeType === Node.TEXT_NODE) return length + node.data.trim().length;
    const inline = node instanceof HTMLElement && style(node).display === "inline";
    return length + (inline && !node.matches("a, button, [role]") ? plain(node) : 0);
  }, 0);
  for (const link of document.querySelectorAll("a[href]")) {
    if (!judged(link) || !shown(link) || style(link).display !== "inline") continue;
    let block = link.parentElement;
    while (style(block).display.startsWith("inline")) block = block.parentElement;
    // As axe counts: links with a separator are no text.
    if (plain(block) <= link.innerText.trim().length) continue;
    if (looks.some(name => style(link)[name] !== style(block)[name])) continue;
    const apart = ratio(colour(style(link).color), colour(style(block).color));
    if (apart < 3) note("link-in-text-block", link, `${apart.toFixed(2)} to the text around it`);
  }

  const reached = "a[href], button:enabled, input:enabled, select:enabled, textarea:enabled, " +
    "summary, iframe, [tabindex]:not([tabindex^='-'])";
  for (const box of document.querySelectorAll("body *")) {
    const wide = box.scrollWidth - box.clientWidth > 13;
    const high = box.scrollHeight - box.clientHeight > 13;
    if (!(wide || high) || !judged(box) || !shown(box)) continue;
    const {overflowX, overflowY} = style(box), scrolls = ["auto", "scroll"];
    if (!(wide && scrolls.includes(overflowX)) && !(high && scrolls.includes(overflowY))) continue;
    if (!box.matches(reached) && !box.querySelector(reached))
      note("scrollable-region-focusable", box, "nothing in it takes the focus");
  }
  return faults;
}"""


def visible_faults(page: Page, skipped: str = "") -> list[str]:
    """Return text of too little contrast, links that look like the text around them and regions
    that scroll but cannot be reached by keyboard, outside elements matching `skipped`."""
    faults: list[str] = page.evaluate(_SCRIPT, skipped)
    return faults
