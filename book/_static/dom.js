// Small tools for the scripts of the book: elements, numbers in words, the state of a figure in the page's address.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== undefined));
  return node;
}

export const grouped = (number) => Math.round(number).toLocaleString("en-US");

// 541,065,216 -> "541 MB"; three digits, powers of 1000, as HBM and traffic are counted.
export function bytes(number) {
  return scaled(number, 1000, ["B", "KB", "MB", "GB", "TB", "PB"]);
}

// SRAM is counted in powers of 1024, and so are its kilobytes: 196,608 -> "192 KB".
export function onChip(number) {
  return number < 1024 ? `${grouped(number)} B` : `${three(number / 1024)} KB`;
}

export function duration(seconds) {
  return scaled(seconds * 1e9, 1000, ["ns", "µs", "ms", "s"]);
}

function scaled(number, base, units) {
  let place = 0;
  while (number >= 999.5 && place < units.length - 1) [number, place] = [number / base, place + 1];
  return `${three(number)} ${units[place]}`;
}

function three(number) {
  if (number >= 100 || Number.isInteger(number)) return grouped(number);
  return number >= 10 ? number.toFixed(1) : number.toFixed(2);
}

// The page's address after "#" as an object of texts: "#N=128&causal=1" -> {N: "128", causal: "1"}.
export function stateInAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

export function keepInAddress(state) {
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);
}

// A slider over a list of values, with its name and its value as text. `set` moves it without a call of `act`.
export function slider({ name, label, values, value, show = grouped, act }) {
  const place = (wanted) =>
    values.reduce((best, each, at) => (Math.abs(each - wanted) < Math.abs(values[best] - wanted) ? at : best), 0);
  const input = el("input", { type: "range", min: 0, max: values.length - 1, step: 1, "aria-label": label });
  const output = el("output");
  const control = {
    node: el("label", { class: "control" }, el("span", { class: "name" }, name), output, input),
    value,
    set(wanted) {
      control.value = wanted;
      input.value = place(wanted);
      output.textContent = show(wanted);
      input.setAttribute("aria-valuetext", show(wanted));
    },
  };
  input.addEventListener("input", () => {
    control.set(values[input.valueAsNumber]);
    act();
  });
  control.set(value);
  return control;
}

export function checkbox({ name, value, act }) {
  const input = el("input", { type: "checkbox" });
  return control(input, "checked", value, act, el("label", { class: "choice" }, input, ` ${name}`));
}

export function choice({ name, options, value, act }) {
  const select = el("select", {}, ...options.map((option) => el("option", {}, option)));
  return control(select, "value", value, act, el("label", { class: "choice" }, `${name} `, select));
}

// `value` and `set`, as a slider has them.
function control(input, property, value, act, node) {
  const made = {
    node,
    set(wanted) {
      made.value = input[property] = wanted;
    },
  };
  input.addEventListener("change", () => {
    made.value = input[property];
    act();
  });
  made.set(value);
  return made;
}
