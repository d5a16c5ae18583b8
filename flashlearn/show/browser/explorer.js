// An explorer: a player, and beside it a panel of controls that record another run. The same in a notebook (explored.js mounts
// it there), in the book and in the deck (pages.js).
//
//   import { Explorer } from "./explorer.js";
//   const explorer = new Explorer(element, controls, { act, press, link });
//   explorer.player = mount(explorer.stage, run);
//
// controls = [
//   {name, label, help, values: [...]}      a slider over these values
//   {name, label, help, options: [...]}     a choice
//   {name, label, help, check: true}        a box
//   {press: name, label, help}              a button
// ]
//
// act(name, value)    a control was moved; of a slider once it is let go, or at each press of an arrow key
// press(name)         a button was pressed
// link()              the text that "Copy" copies; `link.label` names it
//
// explorer.set(state, disabled, hidden)  put the controls where the state says; the others are lists of their names
// explorer.say({text, need, room})  a sentence about the run, and how much of the room on chip it needs
// explorer.root, .stage, .panel     the elements made

import { make } from "./player.js";

const OWN_KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];

export class Explorer {
  constructor(element, controls, { act, press, link }) {
    this.over = new AbortController();
    this.stage = make("div", { class: "flashlearn-explored" });
    this.gauge = make("div", { class: "flashlearn-gauge", "aria-hidden": "true" }, make("div"), make("div"));
    this.report = make("p", { role: "status", class: "flashlearn-fit" });
    this.controls = new Map(controls.filter(({ name }) => name).map((about) => [about.name, setting(about, act)]));
    const buttons = controls.filter((about) => about.press).map((about) => pressed(about, () => press(about.press)));
    const copy = pressed({ label: link.label, help: "to share what is shown" }, () => this.copy(link));
    this.copied = make("span", { role: "status" });
    this.panel = make("div", { class: "flashlearn-panel", role: "group", "aria-label": "settings" });
    this.panel.append(...[...this.controls.values()].map(({ root }) => root), make("div", { class: "flashlearn-buttons" }, ...buttons, copy, this.copied));
    this.panel.append(this.gauge, this.report);
    this.root = make("div", { class: "flashlearn-explorer" }, this.stage, this.panel);
    element.replaceChildren(this.root);
    // On the window, before the shortcuts of a notebook, which take the arrows even from a slider.
    addEventListener("keydown", (event) => this.keep(event), { signal: this.over.signal, capture: true });
  }

  set player(player) {
    this.root.flashlearnPlayer = player; // for projectors and decks
    this.fit();
  }

  get player() {
    return this.root.flashlearnPlayer;
  }

  // For the style: the shape of the picture.
  fit() {
    const [width, height] = this.player.run.size;
    this.root.style.setProperty("--ratio", width / height);
  }

  keep(event) {
    if (!this.panel.contains(event.target) || !OWN_KEYS.includes(event.key) || event.target.matches("button")) return;
    if (event.key.startsWith("Page") && this.root.closest(".flashlearn-projector, .slide")) return;
    event.stopImmediatePropagation();
  }

  set(state, disabled = [], hidden = []) {
    for (const [name, { root, put }] of this.controls) {
      put(state[name], disabled.includes(name));
      root.hidden = hidden.includes(name);
    }
  }

  say({ text, need = 0, room = 0 }) {
    this.report.textContent = text;
    const whole = Math.max(need, room);
    const [fill, edge] = this.gauge.children;
    this.gauge.hidden = !whole;
    fill.style.width = `${(100 * need) / whole}%`;
    edge.style.left = `${(100 * room) / whole}%`;
    this.root.classList.toggle("flashlearn-too-large", need > room);
  }

  async copy(link) {
    const text = link();
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const box = make("textarea");
      box.value = text;
      this.panel.append(box);
      box.select();
      document.execCommand("copy"); // where a page may not use the clipboard otherwise
      box.remove();
    }
    this.copied.textContent = "copied";
    setTimeout(() => (this.copied.textContent = ""), 2000);
  }

  close() {
    this.over.abort();
    this.root.remove();
  }
}

// --- controls ------------------------------------------------------------------------------------------------------
// Each is {root, put(value, disabled)}.

function setting(about, act) {
  const kind = about.values ? sliderOf : about.check ? boxOf : choiceOf;
  return kind(about, (value) => act(about.name, value));
}

function sliderOf({ label, help, values }, act) {
  const input = make("input", { type: "range", min: 0, max: values.length - 1, step: 1, "aria-label": label, title: help });
  const output = make("output");
  const near = (value) => values.reduce((best, each, at) => (Math.abs(each - value) < Math.abs(values[best] - value) ? at : best), 0);
  const show = () => {
    output.textContent = values[input.valueAsNumber];
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", show);
  input.addEventListener("change", () => act(values[input.valueAsNumber]));
  const put = (value, disabled) => {
    [input.value, input.disabled] = [near(value), disabled];
    show();
  };
  return { root: make("label", { class: "flashlearn-slider" }, make("span", {}, label), input, output), put };
}

function choiceOf({ label, help, options }, act) {
  const select = make("select", { title: help, "aria-label": label }, ...options.map((option) => make("option", {}, option)));
  select.addEventListener("change", () => act(select.value));
  const put = (value, disabled) => ([select.value, select.disabled] = [value, disabled]);
  return { root: make("label", { class: "flashlearn-choice" }, make("span", {}, label), select), put };
}

function boxOf({ label, help }, act) {
  const input = make("input", { type: "checkbox", title: help });
  input.addEventListener("change", () => act(input.checked));
  const put = (value, disabled) => ([input.checked, input.disabled] = [value, disabled]);
  return { root: make("label", { class: "flashlearn-choice" }, input, make("span", {}, label)), put };
}

function pressed({ label, help }, act) {
  const node = make("button", { type: "button", title: help }, label);
  node.addEventListener("click", act);
  return node;
}
