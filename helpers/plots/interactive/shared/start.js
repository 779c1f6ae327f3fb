// Light or dark, packed numbers, and the start.
/** Is the page dark here? What it says of itself, else the colour behind the figure. */
function isDark(root) {
  const [html, body] = [document.documentElement, document.body];
  const told =
    [
      body.dataset.jpThemeLight,
      html.dataset.theme,
      html.getAttribute("theme"),
      body.dataset.vscodeThemeKind,
      html.classList.contains("dark") && "dark",
    ].find(Boolean) ?? "";
  if (/^(true|light|vscode-(high-contrast-)?light)$/.test(told)) return false;
  if (/^(false|dark|vscode-dark|vscode-high-contrast)$/.test(told)) return true;
  for (let node = root; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!colour.startsWith("rgb")) continue; // oklch(...) and others count otherwise
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    if (a > 0.5) return r + g + b < 382;
  }
  const scheme = getComputedStyle(root).colorScheme;
  return scheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Numbers that Python packed as base64 of float32 become arrays again. */
function unpacked(key, value) {
  if (!value?.float32) return value;
  const bytes = Uint8Array.from(atob(value.float32), (letter) => letter.charCodeAt(0));
  return Array.from(new Float32Array(bytes.buffer));
}

const THEMES = [
  "class",
  "data-theme",
  "theme",
  "data-jp-theme-light",
  "data-jp-theme-name",
  "data-vscode-theme-kind",
];

/** Colours a figure as the page is, now and when that changes, until the figure is gone: here
 * nothing keeps it, or each run of its cell would leave one more. */
function followTheme(root) {
  const kept = new WeakRef(root);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => {
    const figure = kept.deref();
    if (figure?.isConnected) figure.toggleAttribute("data-dark", isDark(figure));
    if (figure) return;
    observer.disconnect();
    scheme.removeEventListener("change", recolour);
  };
  const observer = new MutationObserver(recolour);
  const watched = { attributes: true, attributeFilter: THEMES };
  for (const node of [document.documentElement, document.body]) observer.observe(node, watched);
  scheme.addEventListener("change", recolour);
  return recolour;
}

/** Brings each picture of this figure on the page to life, once. */
function start(id, data, figure) {
  for (const root of document.querySelectorAll(`[data-figure="${id}"]:not([data-live])`)) {
    root.dataset.live = "";
    const fig = new Figure(root);
    const recolour = followTheme(root);
    root.addEventListener("keydown", (event) => event.stopPropagation()); // slides turn on arrows
    figure(fig, JSON.parse(JSON.stringify(data), unpacked));
    recolour();
    new ResizeObserver(() => {
      recolour(); // it may come back after the theme has changed
      fig.redraw();
    }).observe(fig.live);
    fig.redraw();
  }
}
