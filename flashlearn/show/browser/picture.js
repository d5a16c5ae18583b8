// The picture of a run: one frame at a time, a scene (inline SVG) or an image, in the layout that there is room for.
// Between neighbouring steps, what carries the same data-id moves from its old place to its new one; what is new and
// carries data-from="x y width height" comes from there: a tile travels from HBM to SRAM, a bar shrinks.
//
// A frame is null (not there yet), the URL of an image, "<svg ...", or two of these: [wide, narrow].

const NARROW = 500; // pixels: with less room the narrow layout is shown
const LARGEST = 1.25; // of a scene's own width
const TALL = 1.6; // pictures of less than so many times their height have their words beside them in a hall
const HALL = 16.1; // pixels of 720: the smallest words of a scene on a slide or in projector mode
const TRAVEL = 300; // ms

export class Picture {
  // `seen(step)` is called when the frame of a step is on the page.
  constructor(still, seen) {
    this.image = document.createElement("img");
    Object.assign(this.image, { alt: "", decoding: "sync", draggable: false });
    this.image.addEventListener("load", () => seen(this.step));
    this.shown = still ?? this.image;
    this.seen = seen;
    this.key = `flashlearn-${Math.random().toString(36).slice(2)}`; // of its own, whatever else is on the page: widgets share no counter
    this.stage = document.createElement("div");
    this.stage.className = "flashlearn-stage";
    this.stage.append(this.shown);
    this.room = new ResizeObserver(() => this.fit());
    this.room.observe(this.stage);
  }

  // Another run: the size of its layouts, the second one of scenes alone, and whether anything moves.
  furnish({ size, narrow, motion = true }) {
    Object.assign(this, { size, small: narrow, motion, step: undefined, frame: undefined });
    const { style, classList } = this.stage.parentNode;
    classList.toggle("flashlearn-tall", size[0] < TALL * size[1]);
    style.setProperty("--width", `${size[0] * (narrow ? LARGEST : 1)}px`);
    style.setProperty("--ratio", size[0] / size[1]);
    this.fit();
  }

  get narrow() {
    const width = this.stage.parentNode.clientWidth; // 0 while it is not laid out
    return Boolean(this.small) && width > 0 && width < NARROW;
  }

  fit() {
    const [width, height] = this.narrow ? this.small : this.size;
    this.stage.style.aspectRatio = `${width} / ${height}`;
    this.stage.classList.toggle("flashlearn-narrow", this.narrow);
    this.stage.style.setProperty("--smallest", `${(HALL * width) / (this.stage.clientWidth || width)}px`);
    this.image.width = width;
    if (Array.isArray(this.frame) && this.frame[Number(this.narrow)] !== this.layout) this.put(this.frame, this.step, this.words);
  }

  // Show the frame of a step; `words` are for those who cannot see it.
  put(frame, step, words) {
    const layout = Array.isArray(frame) ? (frame[Number(this.narrow)] ?? frame[0]) : frame;
    const near = Math.abs(step - this.step) === 1;
    Object.assign(this, { frame, layout, step, words });
    if (layout.startsWith("<svg")) this.draw(layout, near);
    else this.load(layout);
  }

  load(url) {
    this.swap(this.image);
    this.image.alt = this.words;
    if (this.image.getAttribute("src") === url) return this.seen(this.step);
    this.image.src = url;
  }

  draw(text, near) {
    const place = document.createElement("div");
    place.innerHTML = text.replaceAll("scene-hatch", `${this.key}-hatch`); // a name of one page, whatever else is on it
    const scene = place.firstElementChild;
    scene.removeAttribute("aria-hidden");
    scene.setAttribute("role", "img");
    scene.setAttribute("aria-label", this.words);
    const before = near && this.moves() ? boxes(this.shown) : undefined;
    this.swap(scene);
    if (before) travel(before, boxes(scene));
    this.seen(this.step);
  }

  swap(node) {
    if (node !== this.shown) this.shown.replaceWith(node);
    this.shown = node;
  }

  moves() {
    return this.motion && !matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  close() {
    this.room.disconnect();
  }
}

// Whole runs, packed: every line of their scenes once, and of each frame the numbers of its lines, "0-40 57 42-43".
export function unpacked({ lines, wide, narrow }) {
  const frame = (numbers) => numbers.split(" ").flatMap((range) => slice(lines, range)).join("");
  return wide.map((numbers, step) => [frame(numbers), frame(narrow?.[step] ?? numbers)]);
}

function slice(lines, range) {
  const [first, last = first] = range.split("-").map(Number);
  return lines.slice(first, last + 1);
}

// --- motion -------------------------------------------------------------------------------------------------------

// Of everything that has a name: its node, where it is and where it comes from, by panel and name.
function boxes(scene) {
  const named = [...scene.querySelectorAll("[data-id]")];
  return new Map(named.map((node) => [`${node.ownerSVGElement?.dataset.panel} ${node.dataset.id}`, placed(node)]));
}

function placed(node) {
  const { at, from } = node.dataset;
  const numbers = (text) => text?.split(" ").map(Number);
  const own = ["x", "y", "width", "height"].map((name) => Number(node.getAttribute(name) ?? 0));
  return { node, at: numbers(at) ?? own, from: numbers(from) };
}

function travel(before, after) {
  for (const [name, { node, at, from }] of after) {
    const start = before.get(name)?.at ?? from;
    if (start?.some((number, side) => number !== at[side])) move(node, start, at);
  }
}

// From one box to another; a box without width or height is moved alone.
function move(node, [x, y, width, height], [toX, toY, toWidth, toHeight]) {
  const [across, down] = [width / toWidth, height / toHeight].map((scale) => (scale > 0 && scale < Infinity ? scale : 1));
  const start = `translate(${x - toX * across}px, ${y - toY * down}px) scale(${across}, ${down})`;
  node.animate([{ transform: start }, { transform: "none" }], { duration: TRAVEL, easing: "ease-out" });
}
