// What all figures share: elements, controls, scales, light and dark, and the start.
// A figure is a function (fig, data) that makes controls and sets fig.draw(width, svg); each change
// of a control draws it again.
const SVG = "http://www.w3.org/2000/svg";

/** A new element, drawn if its parent is; without a parent it stays loose. */
function add(parent, tag, attributes = {}, text = "") {
  const drawn = tag === "svg" || parent.namespaceURI === SVG;
  const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(text);
  parent.append(made);
  return made;
}

const linear = ([a, b], [from, to]) => (x) => from + ((x - a) / (b - a)) * (to - from);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const sum = (values) => values.reduce((total, value) => total + value, 0);
/** With so many decimals, and a minus sign as long as a plus. */
const minus = (x, decimals = 2) => x.toFixed(decimals).replace(/^-(?=.*[1-9])/, "−").replace(/^-/, "");
const grouped = (x) => Math.round(x).toLocaleString("en-GB");
/** Halves to the even neighbour, as Python and the int8 kernels round. */
function roundEven(x) {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

class Figure {
  constructor(root) {
    this.root = root;
    this.live = add(root, "div", { class: "live" });
    this.controls = add(this.live, "div", { class: "controls" });
    this.svg = add(this.live, "svg", { "aria-hidden": "true" });
    this.line = add(this.live, "p", { class: "say", "aria-live": "polite" });
  }
  redraw() {
    const width = Math.min(this.live.clientWidth, 720);
    if (!width) return;
    this.svg.replaceChildren();
    const height = this.draw(width, this.svg);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  }
  /** The sentence below the figure, read aloud when it changes; the numbers in it, for tests. */
  say(sentence, numbers) {
    if (this.line.textContent !== sentence) this.line.textContent = sentence;
    this.root.dataset.numbers = JSON.stringify(numbers);
  }
  slider(name, options, shown = String) {
    const label = add(this.controls, "label", { class: "slider" }, name);
    const input = add(label, "input", { type: "range", "aria-label": name, ...options });
    const told = add(label, "output");
    const tell = () => {
      told.textContent = shown(input.valueAsNumber);
      input.setAttribute("aria-valuetext", told.textContent);
    };
    input.addEventListener("input", () => { tell(); this.redraw(); });
    tell();
    return { get value() { return input.valueAsNumber; },
      set value(x) { input.value = x; tell(); }, input };
  }
  toggle(name, checked) {
    const label = add(this.controls, "label");
    const input = add(label, "input", { type: "checkbox", ...(checked && { checked: "" }) });
    label.append(name);
    input.addEventListener("input", () => this.redraw());
    return { get value() { return input.checked; }, input };
  }
  choice(name, options) {
    const group = add(this.controls, "fieldset", { role: "radiogroup", "aria-label": name });
    const shared = `${this.root.dataset.figure}-${Math.random().toString(36).slice(2)}`;
    const inputs = options.map((option, i) => {
      const label = add(group, "label");
      const input = add(label, "input", { type: "radio", name: shared, ...(i || { checked: "" }) });
      label.append(option);
      input.addEventListener("input", () => this.redraw());
      return input;
    });
    return { get value() { return inputs.findIndex((input) => input.checked); },
      set value(i) { inputs[i].checked = true; }, inputs };
  }
  number(name) {
    const label = add(this.controls, "label", {}, name);
    const input = add(label, "input", { type: "number", min: 0, step: "any" });
    input.addEventListener("input", () => this.redraw());
    return { get value() { return input.valueAsNumber; }, input };
  }
  button(name, pressed) {
    const made = add(this.controls, "button", { type: "button" }, name);
    made.addEventListener("click", () => { pressed(); this.redraw(); });
    return made;
  }
  /** Calls moved(x, y) in the drawing's units while the pointer is pressed, or merely over it. */
  pointer(moved, hover = false) {
    const at = (event) => {
      const box = this.svg.getBoundingClientRect();
      const unit = this.svg.viewBox.baseVal.width / box.width;
      moved((event.clientX - box.left) * unit, (event.clientY - box.top) * unit);
      this.redraw();
    };
    this.svg.style.touchAction = "pan-y";
    this.svg.style.cursor = hover ? "default" : "pointer";
    this.svg.addEventListener("pointerdown", at);
    this.svg.addEventListener("pointermove", (event) => { if (hover || event.buttons) at(event); });
  }
}

/** A horizontal axis with its marks and a name. */
function axis(svg, y, scale, marks, name, shown = String) {
  const [first, last] = [scale(marks[0]), scale(marks.at(-1))];
  add(svg, "path", { d: `M${first} ${y}H${last}`, stroke: "var(--rule)" });
  for (const mark of marks) {
    const place = { x: scale(mark), y: y + 17, "text-anchor": "middle", class: "muted" };
    add(svg, "path", { d: `M${place.x} ${y}v4`, stroke: "var(--rule)" });
    add(svg, "text", place, shown(mark));
  }
  if (name) add(svg, "text", { x: last, y: y + 35, "text-anchor": "end", class: "muted" }, name);
}

/** Is the page dark here? What it says of itself, else the colour behind the figure. */
function isDark(root) {
  const [html, body] = [document.documentElement, document.body];
  const told = [body.dataset.jpThemeLight, html.dataset.theme, html.getAttribute("theme"),
    body.dataset.vscodeThemeKind, html.classList.contains("dark") && "dark"].find(Boolean) ?? "";
  if (/^(true|light|vscode-light)$/.test(told)) return false;
  if (/^(false|dark|vscode-dark)$/.test(told)) return true;
  for (let node = root; node; node = node.parentElement) {
    const [r, g, b, a = 1] = getComputedStyle(node).backgroundColor.match(/[\d.]+/g).map(Number);
    if (a > 0) return r + g + b < 382;
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

/** Brings each picture of this figure on the page to life, once. */
function start(id, data, figure) {
  for (const root of document.querySelectorAll(`[data-figure="${id}"]:not([data-live])`)) {
    root.dataset.live = "";
    const fig = new Figure(root);
    const recolour = () => root.toggleAttribute("data-dark", isDark(root));
    const watched = { attributes: true, attributeFilter: ["class", "data-theme", "theme",
      "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"] };
    const observer = new MutationObserver(recolour);
    for (const node of [document.documentElement, document.body]) observer.observe(node, watched);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    root.addEventListener("keydown", (event) => event.stopPropagation()); // slides turn on arrows
    figure(fig, JSON.parse(JSON.stringify(data), unpacked));
    recolour();
    new ResizeObserver(() => fig.redraw()).observe(fig.live);
    fig.redraw();
  }
}
