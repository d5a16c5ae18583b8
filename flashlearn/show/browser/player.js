// The player: the frames of a run, a caption for each, slider, play, keys, swipe, "predict first". It needs no framework.
// It runs in a notebook (widget.js mounts it), in the book, in the lecture deck and in projector mode.
//
//   import { mount } from "./player.js";
//   const player = mount(element, run);          // styles are in player.css; throws TypeError for a run that is none
//
// run = {
//   alt        what the run shows, in words
//   captions   one string for each step, e.g. "Step 3 of 9 · ..."; "\n" between those of runs side by side
//   frames     one for each step: the URL of an image, "<svg ...", two of these ([wide, narrow], under 500 pixels), or null
//              for one that is not there yet. Images are loaded only once somebody turns to the player, the next two ahead
//   scenes     optional, in place of frames: all of them packed, {lines, wide, narrow}, see picture.js
//   size       [width, height] of a frame in pixels
//   narrow     optional, the same of the narrow layout
//   delays     optional, ms for each step while playing (a step with a rescaling stands longer); 1200 without
//   table      optional, {heads: [...], rows: [[...], ...]}: all steps, folded below; or leave a <details> in `element`
//   label      optional, the accessible name of the whole; `alt` without
//   questions  optional, {step: "question"}: what "predict first" asks before it shows that step; not 0, which is always shown
//   predict    optional, true: "predict first" is on from the beginning
//   start      optional, the step shown first, from 0
//   autoplay   optional, true: plays at once, unless the reader has asked for less motion
//   motion     optional, false: nothing moves between two steps; nor does it for a reader who has asked for less motion
//   wanted     optional, wanted(i): called when frame i is null and needed now; answer with player.frame(i, frame)
// }
//
// Everything in `element` but a <details> is replaced; its first <svg> or <img>, the still of a page without scripts, is
// shown until there is a frame.
//
// player.step, .count, .there (frames that are there), .hidden (true: the step is still to be predicted), .playing,
// player.root (the element made)
// player.go(i), .next(), .back()                false if there was nothing to do: the first or the last step
// player.play(), .pause(), .predict(on), .reveal(), .focus()
// player.key(name)                              does what a key does; false if the key is not for the player, or a boundary
// player.frame(i, frame)                        a frame that came later, or another picture of the same step
// player.fill(scenes)                           all frames, packed, that came later
// player.message(text)                          a line below the caption: "The kernel is gone: 3 of 9 frames are here."
// player.load(run)                              another run in the same place; without `alt`, `label`, `size`, `narrow`, `wanted` those are kept
// player.destroy()                              take it off the page
// element.querySelector(".flashlearn-player").flashlearnPlayer    the player of an element, for decks and projectors
//
// Events of .root, which bubble: "step" {step, count, hidden} after every move, "picture" {step} when its frame is seen,
// "playing" {playing}.
//
// Keys, anywhere in the player: Right, Page Down: next step (with "predict first" hidden, then shown). Left, Page Up: back.
// Home, End: first, last. Space: play or pause (on a button: presses it). Page Down at the last step and Page Up at the
// first are left to the page, so that a deck goes on; so is every key with Ctrl, Alt, Meta or Shift.

import { Picture, unpacked } from "./picture.js";

const SPEEDS = [0.5, 1, 2, 4];
const DELAY = 1200; // ms
const SWIPE = 40; // pixels
const ASK = "What happens now? Say it first, then press Reveal or the right arrow.";

export function mount(element, run) {
  return new Player(element, run);
}

class Player {
  constructor(element, run) {
    this.run = checked(run);
    this.speed = 1;
    this.asking = Boolean(run.predict);
    this.over = new AbortController();
    build(this, element);
    this.listen();
    this.rewind(run.start);
    if (run.autoplay && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
  }

  get count() {
    return this.run.captions.length;
  }

  get there() {
    return this.run.frames.filter(Boolean).length;
  }

  listen() {
    const { signal } = this.over;
    const { root, slider, buttons, picture } = this;
    const on = (node, kind, act) => node.addEventListener(kind, act, { signal });
    on(buttons.back, "click", () => this.byHand(() => this.back()));
    on(buttons.next, "click", () => this.byHand(() => this.next()));
    on(buttons.reveal, "click", () => this.reveal());
    on(buttons.play, "click", () => (this.playing ? this.pause() : this.play()));
    on(buttons.speed, "click", () => this.setSpeed(SPEEDS[(SPEEDS.indexOf(this.speed) + 1) % SPEEDS.length]));
    on(buttons.predict, "click", () => this.predict(!this.asking));
    on(slider, "input", () => this.slide());
    for (const kind of ["focusin", "pointerover", "touchstart"]) on(root, kind, () => this.touched || this.ahead());
    // A click with a pointer leaves the focus on the player and not on the control; one from the keyboard stays there.
    on(root, "click", (event) => event.detail && event.target.closest("button, input") && this.focus());
    on(slider, "pointerup", () => this.focus());
    swipes(picture.stage, signal, (forward) => this.byHand(() => (forward ? this.next() : this.back())));
    // On the window, before the shortcuts of a notebook, which take the arrows even from a slider.
    addEventListener("keydown", (event) => this.onKey(event), { signal, capture: true });
  }

  // --- moving ---

  go(step) {
    const wanted = Math.max(0, Math.min(this.count - 1, step));
    if (wanted === this.step && !this.hidden) return false;
    this.touched = true;
    this.step = wanted;
    this.hidden = this.asking && wanted > this.far;
    this.show();
    return true;
  }

  next() {
    if (this.hidden) return this.reveal();
    return this.step < this.count - 1 && this.go(this.step + 1);
  }

  back() {
    return this.step > 0 && this.go(this.step - 1);
  }

  reveal() {
    if (!this.hidden) return false;
    if (document.activeElement === this.buttons.reveal) this.focus(); // the button goes away, and the focus must not
    this.hidden = false;
    this.show();
    return true;
  }

  predict(on = true) {
    this.asking = on;
    this.far = this.step;
    this.hidden = false;
    this.show();
  }

  // A slider has meanings of its own for some keys; those that `onKey` has let pass are for the page, not for it.
  slide() {
    if (this.passed) return this.controls();
    return this.byHand(() => this.go(this.slider.valueAsNumber - 1));
  }

  byHand(move) {
    this.pause();
    return move();
  }

  rewind(start = 0) {
    this.pause();
    this.step = Math.max(0, Math.min(this.count - 1, start));
    this.far = this.step;
    this.hidden = false;
    this.show();
  }

  load(run) {
    const { alt, label, size, narrow, wanted } = this.run;
    this.run = checked({ alt, label, size, narrow, wanted, ...run });
    this.touched = false;
    this.message("");
    furnish(this);
    this.rewind(run.start);
  }

  // --- keys ---

  key(name) {
    const jump = (step) => this.step !== step && this.go(step);
    const acts = {
      ArrowRight: () => this.next(),
      PageDown: () => this.next(),
      ArrowLeft: () => this.back(),
      PageUp: () => this.back(),
      Home: () => jump(0) || true,
      End: () => jump(this.count - 1) || true,
    };
    if (name === " ") return this.playing ? this.pause() : this.play();
    return name in acts && this.byHand(acts[name]);
  }

  onKey(event) {
    if (!this.root.contains(event.target) || event.defaultPrevented) return;
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if ([" ", "Enter"].includes(event.key) && event.target.closest("button, summary, a")) return event.stopPropagation();
    if (event.target.closest("textarea, select, input:not([type=range])")) return;
    const alias = event.target === this.slider ? { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" } : {};
    const name = alias[event.key] ?? event.key;
    this.passed = !this.key(name) && !["ArrowLeft", "ArrowRight"].includes(name);
    setTimeout(() => (this.passed = false)); // what the slider makes of it, it makes at once
    if (this.passed) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  // --- playing ---

  play() {
    if (this.step === this.count - 1 && !this.hidden) this.go(0);
    return this.setPlaying(true);
  }

  pause() {
    return this.setPlaying(false);
  }

  setPlaying(on) {
    clearTimeout(this.timer);
    if (Boolean(this.playing) !== on) {
      this.playing = on;
      this.controls();
      this.emit("playing", { playing: on });
    }
    if (on) this.timer = setTimeout(() => this.tick(), (this.run.delays[this.step] ?? DELAY) / this.speed);
    return true;
  }

  tick() {
    if (!this.root.isConnected) return this.pause();
    const late = this.waiting && !this.note.textContent; // a frame on its way, and somebody there to bring it
    if (!late) this.next();
    const over = this.step === this.count - 1 && !this.hidden;
    return over && !late ? this.pause() : this.setPlaying(true);
  }

  setSpeed(speed) {
    this.speed = speed;
    this.controls();
    if (this.playing) this.setPlaying(true);
  }

  // --- showing ---

  show() {
    if (!this.hidden) this.far = Math.max(this.far, this.step);
    const question = `Step ${this.step + 1} of ${this.count} · ${this.run.questions?.[this.step] ?? ASK}`;
    this.controls();
    this.status.textContent = this.hidden ? question : this.run.captions[this.step];
    this.showFrame();
    if (this.touched) this.ahead();
    this.emit("step", { step: this.step, count: this.count, hidden: this.hidden });
  }

  controls() {
    const { slider, status, buttons } = this;
    slider.value = this.step + 1;
    slider.setAttribute("aria-valuetext", `step ${this.step + 1} of ${this.count}`);
    this.readout.textContent = `${this.step + 1} / ${this.count}`;
    status.setAttribute("aria-live", this.playing ? "off" : "polite"); // played, it would never stop talking
    buttons.play.textContent = this.playing ? "Pause" : "Play";
    buttons.speed.textContent = `${this.speed}×`.replace("0.5", "½");
    buttons.speed.setAttribute("aria-label", `speed ${this.speed}, press to change`);
    buttons.predict.setAttribute("aria-pressed", String(this.asking));
    this.root.classList.toggle("flashlearn-hidden", Boolean(this.hidden));
    buttons.back.setAttribute("aria-disabled", String(this.step === 0));
    buttons.next.setAttribute("aria-disabled", String(this.step === this.count - 1 && !this.hidden));
  }

  showFrame() {
    const number = this.hidden ? this.step - 1 : this.step; // what is to be predicted is not even loaded
    const frame = this.run.frames[number];
    this.waiting = !frame;
    this.picture.stage.setAttribute("aria-busy", String(this.waiting));
    if (!frame) return this.run.wanted?.(number);
    this.picture.put(frame, number, `${this.run.alt} ${this.run.captions[number]}`.replaceAll("\n", " "));
  }

  // The frames that are likely to be asked for next, from when somebody has turned to the player.
  ahead() {
    this.touched = true;
    this.near = [1, 2, -1].map((by) => this.run.frames[this.step + by]).filter(isImage).map((url) => {
      const image = this.near?.find((known) => known.getAttribute("src") === url) ?? new Image();
      if (!image.getAttribute("src")) image.src = url;
      image.decode().catch(() => {}); // the page says so itself where a picture is missing
      return image;
    });
  }

  fill(scenes) {
    unpacked(scenes).forEach((frame, number) => this.frame(number, frame));
  }

  frame(number, frame) {
    if (!(number >= 0 && number < this.count)) return;
    this.run.frames[number] = frame;
    if (this.touched && Math.abs(number - this.step) <= 2) this.ahead();
    if (number === (this.hidden ? this.step - 1 : this.step)) this.showFrame();
  }

  message(text) {
    this.note.textContent = text;
  }

  focus() {
    this.root.focus({ preventScroll: true });
  }

  emit(kind, detail) {
    this.root.dispatchEvent(new CustomEvent(kind, { detail, bubbles: true }));
  }

  destroy() {
    this.pause();
    this.over.abort();
    this.picture.close();
    this.root.remove();
  }
}

// A run that can be played, with lists of its own; TypeError for one that cannot.
function checked(run) {
  const texts = Array.isArray(run.captions) && run.captions.every((caption) => typeof caption === "string");
  if (!texts || !run.captions.length) throw new TypeError("expected run.captions, a text for each of one or more steps");
  if (typeof run.alt !== "string" || !run.alt.trim()) throw new TypeError("expected run.alt, what the run shows in words");
  const sized = run.size?.length === 2 && run.size.every((side) => side > 0);
  if (!sized) throw new TypeError(`expected run.size, [width, height] in pixels, got ${run.size}`);
  const frames = run.scenes ? unpacked(run.scenes) : (run.frames ?? []);
  return { delays: [], ...run, frames: run.captions.map((_, step) => frames[step] ?? null) };
}

const isImage = (frame) => typeof frame === "string" && !frame.startsWith("<svg");

// --- the page ---------------------------------------------------------------------------------------------------

export function make(kind, attributes = {}, ...inside) {
  const node = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...inside);
  return node;
}

const button = (text, label) => make("button", { type: "button", ...(label && { "aria-label": label }) }, text);

function build(player, element) {
  const buttons = {
    back: button("◀", "one step back"),
    play: button("Play"),
    next: button("▶", "one step on"),
    speed: button("1×", "speed"),
    predict: button("Predict first"),
    reveal: button("Reveal"),
  };
  buttons.reveal.className = "flashlearn-reveal";
  player.buttons = buttons;
  const still = element.querySelector(":scope > svg, :scope > img");
  player.picture = new Picture(still, (step) => player.emit("picture", { step }));
  player.picture.stage.append(buttons.reveal);
  player.status = make("p", { role: "status", "aria-live": "polite", class: "flashlearn-sentence" });
  player.room = make("p", { "aria-hidden": "true", class: "flashlearn-room" }); // keeps the place of the longest sentence
  player.slider = make("input", { type: "range", min: 1, step: 1, "aria-label": "step" });
  player.readout = make("span", { class: "flashlearn-readout", "aria-hidden": "true" });
  const { back, play, next, speed, predict } = buttons;
  const bar = make("div", { class: "flashlearn-controls" });
  bar.append(back, play, next, player.slider, player.readout, speed, predict);
  player.note = make("p", { role: "status", class: "flashlearn-note" });
  const words = make("div", { class: "flashlearn-words" }, player.room, player.status);
  player.words = make("div", {}, ...element.querySelectorAll(":scope > details"));
  player.root = make("div", { class: "flashlearn-player", role: "group", tabindex: 0 });
  player.root.append(player.picture.stage, words, bar, player.note, player.words);
  player.root.flashlearnPlayer = player;
  element.replaceChildren(player.root);
  furnish(player);
}

// What depends on the run: its name, its size, the number of its steps, its table.
function furnish(player) {
  const { run, root, picture, slider, room } = player;
  root.setAttribute("aria-label", run.label ?? run.alt);
  picture.furnish(run);
  slider.max = run.captions.length;
  room.textContent = run.captions.reduce((longest, each) => (each.length > longest.length ? each : longest));
  if (run.table) player.words.replaceChildren(table(run.table, run.alt));
}

function table({ heads, rows }, caption) {
  const line = (kind, cells, more) => make("tr", {}, ...cells.map((cell) => make(kind, more, cell)));
  const body = make("tbody", {}, ...rows.map((row) => line("td", row)));
  const whole = make("table", {}, make("caption", {}, caption), make("thead", {}, line("th", heads, { scope: "col" })), body);
  return make("details", {}, make("summary", {}, "All steps in words"), whole);
}

function swipes(node, signal, act) {
  let from;
  const start = ({ changedTouches: [touch], touches }) => (from = touches.length === 1 ? touch : undefined);
  const end = ({ changedTouches: [touch] }) => {
    const [x, y] = from ? [touch.clientX - from.clientX, touch.clientY - from.clientY] : [0, 0];
    if (Math.abs(x) > SWIPE && Math.abs(x) > 2 * Math.abs(y)) act(x < 0);
  };
  node.addEventListener("touchstart", start, { signal, passive: true });
  node.addEventListener("touchend", end, { signal, passive: true });
}
