// A figure on the page: labelled native controls, the drawing, and a sentence that is read aloud.
class Figure {
  constructor(root) {
    this.root = root;
    this.live = add(root, "div", { class: "live" });
    this.controls = add(this.live, "div", { class: "figure-inputs" });
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
    const told = add(label, "output", { "aria-live": "off" }); // the slider says it itself
    const longest = Math.max(...[options.min, options.max].map((end) => shown(end).length));
    told.style.minWidth = `max(2.6em, ${0.9 * longest}ch)`; // or the slider shrinks while it is dragged
    const tell = () => {
      told.textContent = shown(input.valueAsNumber);
      input.setAttribute("aria-valuetext", told.textContent);
    };
    input.addEventListener("input", () => {
      tell();
      this.redraw();
    });
    tell();
    return {
      get value() {
        return input.valueAsNumber;
      },
      set value(x) {
        input.value = x;
        tell();
      },
      input,
    };
  }
  toggle(name, checked) {
    const label = add(this.controls, "label");
    const input = add(label, "input", { type: "checkbox", ...(checked && { checked: "" }) });
    label.append(name);
    input.addEventListener("input", () => this.redraw());
    return {
      get value() {
        return input.checked;
      },
      input,
    };
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
    return {
      get value() {
        return inputs.findIndex((input) => input.checked);
      },
      set value(i) {
        inputs[i].checked = true;
      },
      inputs,
    };
  }
  number(name) {
    const label = add(this.controls, "label", {}, name);
    const input = add(label, "input", { type: "number", min: 0, step: "any" });
    input.addEventListener("input", () => this.redraw());
    return {
      get value() {
        return input.valueAsNumber;
      },
      input,
    };
  }
  button(name, pressed) {
    this.buttons ??= add(this.controls, "span", { class: "buttons" }); // they stay side by side
    const made = add(this.buttons, "button", { type: "button" }, name);
    made.addEventListener("click", () => {
      pressed();
      this.redraw();
      if (made.disabled) this.controls.querySelector("input").focus(); // or the focus is lost
    });
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
    this.svg.addEventListener("pointermove", (event) => {
      if (hover || event.buttons) at(event);
    });
  }
}
