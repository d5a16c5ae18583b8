// The two pictures of the real-size explorer, drawn in pixels as wide as there is room: text stays as large as it is.

import { bytes, grouped, svg } from "./dom.js";

const COLOURS = { Q: "#0072B2", K: "#E69F00", V: "#009E73", O: "#D55E00", S: "#CC79A7", grey: "var(--quiet)" };
const DASHES = { S: "none", Q: "10 3", V: "2 4", O: "none", grey: "8 5" };
const LOWEST = 128;
const HIGHEST = 131072;
const TEXT = 15; // pixels

const text = (x, y, words, more = {}) => svg("text", { x, y, "font-size": TEXT, fill: "currentColor", ...more }, words);
const canvas = (width, height, title) => svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });

// S, and Q beside it, to the scale of one SM's SRAM. The larger of S and SRAM fills the picture.
export function toScale({ N, D, sram, pass }, width) {
  const [room, stored] = [1024 * sram, 2 * N * N];
  const side = Math.min(width - 60, 360);
  const pixels = side / Math.sqrt(Math.max(room, stored)); // a pixel's side per root of a byte
  const [S, chip] = [Math.sqrt(stored) * pixels, Math.sqrt(room) * pixels];
  const strip = Math.max((S * D) / N, 1);
  const left = Math.min(strip + 14, 60);
  const top = 30;
  const bottom = top + side;
  const words = pass === "forward" ? ["S and P: each", "written, then read"] : ["S, P, dP and dS:", "as large each"];
  const title = `S is ${grouped(N)} × ${grouped(N)}, ${bytes(stored)} a head. SRAM of one SM, ${sram} KB, to scale: ${areas(stored, room)}.`;
  const picture = canvas(width, bottom + 34, title);
  picture.append(
    text(0, 18, `S: ${grouped(N)} × ${grouped(N)}, ${bytes(stored)} a head`, { "font-weight": 700 }),
    svg("rect", { x: left, y: bottom - S, width: S, height: S, fill: COLOURS.S, "fill-opacity": 0.28, stroke: COLOURS.S, "stroke-width": 3 }),
    svg("rect", { x: 2, y: bottom - S, width: Math.min(strip, left - 8), height: S, fill: COLOURS.Q }),
    svg("rect", { x: left, y: bottom - chip, width: chip, height: chip, fill: COLOURS.K, stroke: "currentColor", "stroke-width": 2 }),
  );
  if (S > 190 && chip < 0.4 * S) {
    const middle = { "text-anchor": "middle" };
    picture.append(...words.map((line, at) => text(left + S / 2, bottom - S / 2 + 20 * at - 10, line, middle)));
  }
  const beside = Math.min(left + chip + 44, left + side - 150);
  const above = Math.max(bottom - chip - 34, top + 40);
  if (chip < side / 2) {
    picture.append(
      svg("path", { d: `M${beside - 4},${above} L${left + chip / 2},${bottom - chip}`, stroke: "currentColor", "stroke-width": 2, fill: "none" }),
      text(beside, above - 12, "one SM's SRAM,"),
      text(beside, above + 6, "to scale"),
    );
  } else picture.append(text(left + 8, bottom - chip + 24, "one SM's SRAM, to scale", { fill: "#1a1a1a" }));
  picture.append(text(0, bottom + 24, "Q", { fill: "var(--blue)", "font-weight": 700 }), text(24, bottom + 24, areas(stored, room)));
  return picture;
}

function areas(stored, room) {
  return stored >= room
    ? `S fills it ${grouped(Math.floor(stored / room))} ${stored < 2 * room ? "time" : "times"}`
    : `S takes ${((100 * stored) / room).toPrecision(2)} % of it`;
}

// Bytes against N on logarithmic axes, a line for each algorithm, and where the setting stands.
export function bytesChart(setting, costs, width) {
  const height = 400;
  const wide = width >= 600;
  const plot = { left: 66, right: width - (wide ? 208 : 12), top: 16, bottom: height - 52 };
  const lengths = Array.from({ length: 41 }, (_, at) => Math.round(LOWEST * 2 ** (at / 4)));
  const curves = lengths.map((N) => costs({ ...setting, N }));
  const now = costs(setting);
  const all = [...curves.flat(), ...now].map((algorithm) => algorithm.bytes);
  const decades = [Math.floor(Math.log10(Math.min(...all))), Math.ceil(Math.log10(Math.max(...all)))];
  const x = (N) => plot.left + ((plot.right - plot.left) * Math.log2(N / LOWEST)) / Math.log2(HIGHEST / LOWEST);
  const y = (count) => plot.bottom - ((plot.bottom - plot.top) * (Math.log10(count) - decades[0])) / (decades[1] - decades[0]);
  const said = now.map((algorithm) => `${algorithm.name} ${bytes(algorithm.bytes)}`).join(", ");
  const picture = canvas(width, height + (wide ? 0 : 22 * now.length + 12), `Bytes moved against N. At N = ${grouped(setting.N)}: ${said}.`);
  picture.append(...axes(plot, x, y, decades));
  now.forEach((algorithm, place) => picture.append(...line(algorithm, curves.map((each) => each[place].bytes), lengths, x, y)));
  const here = Math.min(Math.max(x(setting.N), plot.left), plot.right);
  const before = here > (plot.left + plot.right) / 2;
  picture.append(
    svg("line", { x1: here, x2: here, y1: plot.top, y2: plot.bottom, stroke: "currentColor", "stroke-width": 2 }),
    text(here + (before ? -8 : 8), before ? plot.top + 14 : plot.bottom - 10, "you are here", { "text-anchor": before ? "end" : "start", "font-weight": 700 }),
    ...now.map((algorithm) => svg("circle", { cx: here, cy: y(algorithm.bytes), r: 6, fill: "var(--ground)", stroke: "currentColor", "stroke-width": 2 })),
    ...names(now, curves.at(-1), plot, y, wide ? undefined : height),
  );
  return picture;
}

function axes(plot, x, y, [low, high]) {
  const quiet = { stroke: "currentColor", "stroke-opacity": 0.25 };
  const marks = [
    svg("path", { d: `M${plot.left},${plot.top} V${plot.bottom} H${plot.right}`, stroke: "currentColor", fill: "none" }),
    text((plot.left + plot.right) / 2, plot.bottom + 44, "N: keys and queries", { "text-anchor": "middle" }),
  ];
  const every = high - low > 7 ? 2 : 1;
  for (let decade = low; decade <= high; decade += every) {
    const at = y(10 ** decade);
    marks.push(svg("line", { x1: plot.left, x2: plot.right, y1: at, y2: at, ...quiet }));
    marks.push(text(plot.left - 8, at + 5, bytes(10 ** decade), { "text-anchor": "end", "font-size": 13 }));
  }
  const lengths = plot.right - plot.left > 340 ? [128, 1024, 8192, 65536] : [128, 2048, 32768];
  for (const N of lengths) marks.push(text(x(N), plot.bottom + 20, grouped(N), { "text-anchor": "middle", "font-size": 13 }));
  return marks;
}

function line(algorithm, counts, lengths, x, y) {
  const points = counts.map((count, place) => `${x(lengths[place]).toFixed(1)},${y(count).toFixed(1)}`).join(" ");
  const look = { fill: "none", stroke: COLOURS[algorithm.colour], "stroke-width": 4, "stroke-dasharray": DASHES[algorithm.colour] };
  return [svg("polyline", { points, ...look })];
}

// Names at the ends of the lines, pushed apart; below the plot where there is no room beside it.
function names(algorithms, last, plot, y, below) {
  const order = algorithms.map((algorithm, place) => ({ algorithm, at: y(last[place].bytes) })).sort((one, other) => one.at - other.at);
  let free = plot.top;
  order.forEach((each, place) => {
    each.at = below ? below + 18 + 22 * place : Math.max(each.at, free);
    free = each.at + 20;
  });
  return order.flatMap(({ algorithm, at }) => {
    const start = below ? plot.left : plot.right + 8;
    const look = { stroke: COLOURS[algorithm.colour], "stroke-width": 4, "stroke-dasharray": DASHES[algorithm.colour] };
    const words = text(start + (below ? 34 : 26), at + 5, algorithm.name, { "font-size": 14, "font-weight": algorithm.ours ? 700 : 400 });
    return [svg("line", { x1: start, x2: start + (below ? 28 : 20), y1: at, y2: at, ...look }), words];
  });
}
