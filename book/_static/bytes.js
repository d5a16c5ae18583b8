// The real-size explorer: how large S is beside one SM's SRAM, and what every algorithm moves, from the closed formulas.

import { bytes, checkbox, choice, duration, el, keepInAddress, onChip, slider, stateInAddress } from "./dom.js";
import { ALGORITHMS, placement, sramElements, traffic } from "./cost.js";
import { bytesChart, toScale } from "./pictures.js";
import { HARDWARE } from "./hardware.js";

const MOST = 131072;
const LENGTHS = Array.from({ length: 21 }, (_, place) => 2 ** (7 + Math.floor(place / 2)) * (place % 2 ? 1.5 : 1));
const SIDES = [16, 32, 64, 128, 256];
const WIDTHS = [16, 32, 64, 96, 128, 192, 256];
const ROOMS = [16, 32, 48, 64, 100, 128, 164, 192, 228, 256]; // KB
const START = { N: 8192, D: 64, blockQ: 128, blockK: 64, sram: 164, gpu: "A100-40GB", causal: false, pass: "forward" };
const HALF = { e: 2, a: 4 }; // bytes: elements in float16, sums in float32

// What the address says, within bounds; what it does not say, or says wrong, is as at the start.
export function settingOf(said) {
  const whole = (name, most) => {
    const value = Number(said[name] ?? NaN);
    return Number.isInteger(value) && value >= 1 && value <= most ? value : START[name];
  };
  return {
    N: whole("N", MOST),
    D: whole("D", 1024),
    blockQ: whole("blockQ", 4096),
    blockK: whole("blockK", 4096),
    sram: whole("sram", 4096),
    gpu: HARDWARE.some(({ name }) => name === said.gpu) ? said.gpu : START.gpu,
    causal: said.causal === undefined ? START.causal : said.causal === "1",
    pass: Object.keys(ALGORITHMS).includes(said.pass) ? said.pass : START.pass,
  };
}

// What every algorithm costs in a setting, in the order of the ladder.
export function costs(setting) {
  const gpu = HARDWARE.find(({ name }) => name === setting.gpu);
  return ALGORITHMS[setting.pass].map((each) => {
    const cost = each.cost({ ...setting, ...HALF });
    return { ...each, ...cost, ...placement(cost, gpu), bytes: traffic(cost) };
  });
}

export function bytesExplorer(place) {
  const setting = settingOf(stateInAddress());
  const parts = {
    title: el("h2", { class: "headline" }),
    scale: el("div"),
    chart: el("div"),
    verdict: el("p", { role: "status" }),
    table: el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "every algorithm in numbers" }),
  };
  const controls = controlsOf(setting, changed);
  place.classList.add("explorer");
  const pictures = el("div", { class: "side-by-side" }, parts.scale, parts.chart);
  place.replaceChildren(parts.title, pictures, panel(controls, place), parts.verdict, parts.table);
  new ResizeObserver(() => paint(setting, parts)).observe(pictures);
  addEventListener("hashchange", () => {
    Object.assign(setting, settingOf(stateInAddress()));
    for (const [name, control] of Object.entries(controls)) control.set(setting[name]);
    paint(setting, parts);
  });

  function changed(name) {
    setting[name] = controls[name].value;
    if (name === "gpu") controls.sram.set((setting.sram = HARDWARE.find((gpu) => gpu.name === setting.gpu).shared / 1024));
    keepInAddress({ ...setting, causal: Number(setting.causal) });
    paint(setting, parts);
  }
}

function controlsOf(setting, changed) {
  const one = (name, more) => ({ name, value: setting[name], act: () => changed(more.key ?? name), ...more });
  return {
    N: slider(one("N", { label: "N: queries and keys", values: LENGTHS })),
    D: slider(one("D", { label: "D: head dimension", values: WIDTHS })),
    blockQ: slider(one("B_r", { key: "blockQ", value: setting.blockQ, label: "B_r: queries in a block", values: SIDES })),
    blockK: slider(one("B_c", { key: "blockK", value: setting.blockK, label: "B_c: keys in a block", values: SIDES })),
    sram: slider(one("SRAM", { key: "sram", value: setting.sram, label: "SRAM of one SM", values: ROOMS, show: (kb) => `${kb} KB` })),
    gpu: choice(one("GPU", { key: "gpu", value: setting.gpu, options: HARDWARE.map(({ name }) => name) })),
    pass: choice(one("pass", { options: Object.keys(ALGORITHMS) })),
    causal: checkbox(one("causal", {})),
  };
}

function panel(controls, place) {
  const { N, D, blockQ, blockK, sram, gpu, pass, causal } = controls;
  const said = el("span", { role: "status" });
  const share = el("button", { type: "button" }, "Share this view");
  share.addEventListener("click", async () => {
    const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    said.textContent = copied ? "The address is copied." : "The address of this page holds this view: copy it.";
  });
  const sliders = [N, D, blockQ, blockK, sram].map(({ node }) => node);
  const rest = el("div", { class: "choices" }, gpu.node, pass.node, causal.node, share, said);
  return el("div", { class: "panel", role: "group", "aria-label": "settings" }, ...sliders, rest);
}

// --- words and pictures -------------------------------------------------------------------------------------------

function paint(setting, parts) {
  const algorithms = costs(setting);
  const standard = algorithms.find((each) => each.scores);
  const ours = algorithms.find((each) => each.ours);
  const ratio = standard.bytes / ours.bytes;
  const times = (ratio >= 1 ? ratio : 1 / ratio).toPrecision(2);
  parts.title.textContent =
    ratio >= 1 ? `Standard attention moves ${times} times the bytes` : `Here tiles move ${times} times the bytes: blocks too small`;
  parts.scale.replaceChildren(toScale(setting, parts.scale.clientWidth));
  parts.chart.replaceChildren(bytesChart(setting, costs, parts.chart.clientWidth));
  const need = HALF.e * sramElements(setting);
  const room = 1024 * setting.sram;
  const fits = need <= room ? "they fit" : "they do not fit";
  parts.verdict.textContent =
    `Tiles of ${setting.blockQ} × ${setting.blockK} need ${onChip(need)} of ${onChip(room)}: ${fits}. ` +
    `Standard ${bytes(standard.bytes)}, at least ${duration(standard.seconds)}; ` +
    `${ours.name} ${bytes(ours.bytes)}, at least ${duration(ours.seconds)}. ` +
    `Scores in HBM: ${bytes(standard.extra)} extra a head.`;
  parts.table.replaceChildren(table(algorithms));
}

function table(algorithms) {
  const heads = ["algorithm", "read", "written", "in all", "at least", "limit", "extra in HBM", "FLOPs"];
  const rows = algorithms.map((each) => [
    ...[each.name, bytes(each.read), bytes(each.written), bytes(each.bytes), duration(each.seconds), each.bound],
    ...[each.extra ? bytes(each.extra) : "none", `${(each.flops / 1e9).toPrecision(3)} G`],
  ]);
  const line = (cells) => el("tr", {}, el("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((cell) => el("td", {}, cell)));
  const caption = el("caption", {}, "One head in float16. Bytes as each algorithm counts them, to the byte.");
  const head = el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name))));
  return el("table", {}, caption, head, el("tbody", {}, ...rows.map(line)));
}

