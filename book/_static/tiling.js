// The tiling explorer: FlashAttention-1 and -2 side by side, from runs that flashlearn recorded when the book was built.

import { choice, el, grouped, keepInAddress, slider, stateInAddress } from "./dom.js";
import { mount } from "./player.js";
import { sramElements } from "./cost.js";
import { lookFor, tilingPicture, tilingSize } from "./tiles.js";
import { GRID, MASKS } from "./grid.js";

const START = { N: 12, D: 4, blockQ: 3, blockK: 3, sram: 59, mask: "causal" };
const VERSIONS = ["FlashAttention-1", "FlashAttention-2"];
const TITLES = { "FlashAttention-1": "FlashAttention-1 · K, V outside", "FlashAttention-2": "FlashAttention-2 · Q outside" };
const ROOM = Array.from({ length: 119 }, (_, place) => 10 + place); // elements of SRAM
const loaded = new Map();

// A recorded setting, by a script: browsers load no data from a folder.
function runOf({ N, D, blockQ, blockK }) {
  const name = `${N}-${D}-${blockQ}-${blockK}`;
  if (!loaded.has(name)) loaded.set(name, new Promise((resolve, reject) => fetched(name, resolve, reject)));
  return loaded.get(name);
}

function fetched(name, resolve, reject) {
  window.flashlearnRun ??= (which, data) => waiting.get(which)(data);
  waiting.set(name, resolve);
  const root = document.documentElement.dataset.content_root ?? "./";
  const script = el("script", { src: `${root}_static/runs/${name}.js` });
  script.addEventListener("error", () => reject(new Error(`expected a recorded run at ${script.src}, got none`)));
  document.head.append(script);
}

const waiting = new Map();

// Values of the grid; blocks that were not recorded for this N and D become the nearest that were.
export function onGrid(wanted) {
  const nearest = (values, value) => values.reduce((best, each) => (Math.abs(each - value) < Math.abs(best - value) ? each : best));
  const D = nearest(Object.keys(GRID).map(Number), wanted.D);
  const N = nearest(Object.keys(GRID[D]).map(Number), wanted.N);
  const far = ([blockQ, blockK]) => Math.abs(blockQ - wanted.blockQ) + Math.abs(blockK - wanted.blockK);
  const [blockQ, blockK] = GRID[D][N].reduce((best, each) => (far(each) < far(best) ? each : best));
  return { ...wanted, D, N, blockQ, blockK };
}

function settingOf(said) {
  const number = (name) => (Number.isFinite(Number(said[name] ?? NaN)) ? Number(said[name]) : START[name]);
  const numbers = Object.fromEntries(["N", "D", "blockQ", "blockK", "sram"].map((name) => [name, number(name)]));
  const earlier = { 0: "full", 1: "causal" }[said.causal]; // in links made when these two were all there was
  const mask = said.mask ?? earlier;
  return onGrid({ ...numbers, mask: MASKS.includes(mask) ? mask : START.mask });
}

export function tilingExplorer(place) {
  const own = !("embedded" in place.dataset); // the address belongs to the explorer's own page
  const start = Object.fromEntries(new URLSearchParams(place.dataset.start)); // what the notebook's cell says
  let setting = settingOf(own ? stateInAddress() : start);
  const parts = { stage: el("div"), budget: el("div", { class: "budget" }), verdict: el("p", { role: "status" }), totals: el("p") };
  const controls = controlsOf(setting, changed);
  place.classList.add("explorer");
  place.replaceChildren(parts.stage, panel(controls, () => rescaling(parts.player)), parts.budget, parts.verdict, parts.totals);
  let room = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (Math.abs(contentRect.width - room) > 8) {
      room = contentRect.width;
      show();
    }
  }).observe(place); // which calls once at the beginning

  function changed(name) {
    setting = onGrid({ ...setting, [name]: controls[name].value });
    for (const each of ["N", "D", "blockQ", "blockK"]) controls[each].set(setting[each]);
    if (own) keepInAddress(setting);
    show();
  }

  async function show() {
    const wanted = setting;
    const data = await runOf(wanted);
    if (wanted === setting) paint(setting, data, parts);
  }
}

function controlsOf(setting, changed) {
  const numbers = Object.values(GRID)[0];
  const sides = [...new Set(Object.values(GRID).flatMap((lengths) => Object.values(lengths).flat(2)))].sort((a, b) => a - b);
  const one = (key, name, label, values) => slider({ name, label, values, value: setting[key], act: () => changed(key) });
  return {
    N: one("N", "N", "N: tokens", Object.keys(numbers).map(Number)),
    D: one("D", "D", "D: head dimension", Object.keys(GRID).map(Number)),
    blockQ: one("blockQ", "B_r", "B_r: queries in a block", sides),
    blockK: one("blockK", "B_c", "B_c: keys in a block", sides),
    sram: one("sram", "SRAM", "SRAM, in elements", ROOM),
    mask: choice({ name: "mask", options: MASKS, value: setting.mask, act: () => changed("mask") }),
  };
}

function panel(controls, onward) {
  const { N, D, blockQ, blockK, sram, mask } = controls;
  const next = el("button", { type: "button", class: "next-rescaling", onclick: onward }, "Next rescaling");
  const sliders = [N, D, blockQ, blockK, sram].map(({ node }) => node);
  return el("div", { class: "panel", role: "group", "aria-label": "settings" }, ...sliders, el("div", { class: "choices" }, mask.node, next));
}

function rescaling(player) {
  const rises = player?.rises ?? [];
  if (rises.length) player.go(rises.find((step) => step > player.step) ?? rises[0]);
}

// --- one setting ------------------------------------------------------------------------------------------------

function paint(setting, data, parts) {
  const runs = VERSIONS.map((name) => ({ name, title: TITLES[name], steps: data.runs[setting.mask][name] }));
  const drawn = { ...setting, seen: data.seen[setting.mask] };
  const look = lookFor(parts.stage.clientWidth);
  const need = sramElements(setting);
  const fits = need <= setting.sram;
  const count = Math.max(...runs.map((run) => run.steps.length));
  const at = (run, step) => Math.min(step, run.steps.length - 1);
  const line = (run, step) => `${run.name}: Step ${at(run, step) + 1} of ${run.steps.length} · ${run.steps[at(run, step)].s}`;
  const sentences = Array.from({ length: count }, (_, step) => runs.map((run) => line(run, step)).join("\n"));
  const run = {
    alt: `Matrices in HBM and tiles on chip for both versions, N = ${setting.N}, blocks ${setting.blockQ} × ${setting.blockK}, mask: ${setting.mask}.`,
    captions: sentences,
    size: tilingSize(setting, look),
    frames: [tilingPicture(runs, 0, drawn, look)],
    wanted: (step) => parts.player.frame(step, tilingPicture(runs, step, drawn, look)),
  };
  parts.player?.destroy();
  parts.stage.classList.toggle("does-not-fit", !fits);
  parts.stage.replaceChildren();
  parts.player = mount(parts.stage, run);
  parts.player.rises = sentences.map((_, step) => step).filter((step) => runs.some((each) => each.steps[step]?.up));
  const next = parts.stage.parentNode.querySelector(".next-rescaling");
  next.disabled = !parts.player.rises.length;
  next.textContent = next.disabled ? "No maximum rises here" : "Next rescaling";
  parts.budget.replaceChildren(gauge(need, setting.sram));
  parts.verdict.textContent =
    `Blocks ${setting.blockQ} × ${setting.blockK} need ${need} of ${setting.sram} elements` +
    ` (2·${setting.blockQ}·${setting.D} + 2·${setting.blockK}·${setting.D} + ${setting.blockQ}·${setting.blockK}): ` +
    (fits ? "they fit." : "they do not fit. Make a block smaller, or the SRAM larger.");
  const total = ([read, written]) => `${grouped(read + written)} B`;
  parts.totals.textContent =
    `In all: standard attention ${total(data.standard)}, ` + runs.map((each) => `${each.name} ${total(each.steps.at(-1).b)}`).join(", ") + ".";
}

// How full the SRAM is; what does not fit sticks out over its edge.
function gauge(need, room) {
  const most = Math.max(need, room);
  const bar = el("div", { class: need > room ? "fill over" : "fill" });
  const edge = el("div", { class: "edge" });
  bar.style.width = `${(100 * need) / most}%`;
  edge.style.left = `${(100 * room) / most}%`;
  return el("div", { class: "gauge", role: "img", "aria-label": `${need} of ${room} elements of SRAM in use` }, bar, edge);
}
