
// The deck. Page Down is the next chosen step of the run on the slide, then the answer of its poll, then the next slide. The
// speaker's window holds a copy of the slide; its keys are those of the deck.

const CHOICES = "12345"; // letters would not do: B makes the screen black
const IDLE = 3000; // ms until a pointer that rests is hidden, and the controls with it

// What keys do, and what help says of them.
const KEYS = [
  [["PageDown", "ArrowRight"], "onward: the next chosen step of a run, the answer of a poll, then the next slide", (deck) => deck.onward()],
  [["PageUp", "ArrowLeft"], "back, the same way", (deck) => deck.backward()],
  [["ArrowDown"], "the next slide", (deck) => deck.show(deck.place + 1)],
  [["ArrowUp"], "the slide before", (deck) => deck.show(deck.place - 1)],
  [["Home"], "the first step of the run", (deck) => deck.player?.key("Home")],
  [["End"], "its last step", (deck) => deck.player?.key("End")],
  [[" "], "play or pause the run", (deck) => (deck.player ? deck.player.key(" ") : deck.onward())],
  [["a"], "stop at all steps of runs, or at the chosen ones again", (deck) => deck.every()],
  [[...CHOICES], "what the hall votes for", (deck, key) => deck.vote?.choose(CHOICES.indexOf(key))],
  [["b", "."], "a black screen, and back", (deck) => deck.black()],
  [["l"], "a list of all slides", (deck, key, page) => deck.list(page)],
  [["s"], "the speaker's window: what to say, and until when", (deck) => deck.speak()],
  [["f"], "full screen, and back", (deck) => deck.fullScreen()],
  [["?", "h"], "these keys", (deck, key, page) => deck.help(page)],
];
const NAMES = { PageDown: "Page Down", PageUp: "Page Up", ArrowRight: "→", ArrowLeft: "←", ArrowDown: "↓", ArrowUp: "↑", " ": "Space", Home: "Home", End: "End" };

class Vote {
  constructor(node) {
    this.node = node;
    this.items = [...node.querySelectorAll("li")];
    this.status = node.querySelector("[role=status]");
    this.items.forEach((item, place) => item.querySelector("button").addEventListener("click", () => this.choose(place)));
  }

  get open() {
    return this.node.classList.contains("open");
  }

  choose(place) {
    if (this.open || !this.items[place]) return;
    this.chosen = place;
    this.items.forEach((item, each) => item.querySelector("button").setAttribute("aria-pressed", String(each === place)));
  }

  reveal() {
    if (this.open) return false;
    this.node.classList.add("open");
    const right = this.items.findIndex((item) => "right" in item.dataset);
    const said = this.chosen === undefined ? "" : this.chosen === right ? " That was your choice." : ` You chose ${CHOICES[this.chosen]}.`;
    this.status.textContent = `${CHOICES[right]} is right.${said}`;
    return true;
  }
}

class Deck {
  constructor() {
    this.slides = [...document.querySelectorAll(".slide")];
    this.number = make("div", { class: "number" });
    this.all = false;
    addEventListener("keydown", (event) => this.onKey(event), { capture: true }); // before the players' own
    for (const slide of this.slides) this.furnish(slide);
    addEventListener("resize", () => this.fit());
    addEventListener("hashchange", () => this.follow());
    addEventListener("pointermove", () => this.pointed());
    addEventListener("touchstart", () => this.pointed(), { passive: true });
    this.fit();
    this.follow();
  }

  furnish(slide) {
    const [run, poll, explorer] = [".run", ".poll", ".explorer"].map((kind) => slide.querySelector(kind));
    if (poll) slide.vote = new Vote(poll);
    if (explorer) slide.explored = tilingExplorer(explorer, { own: false, wide: true, link: () => this.address(slide).href, moved: () => this.explored(slide) });
    if (!run) return;
    const { narrow, ...data } = JSON.parse(run.nextElementSibling.textContent); // a hall has room for the wide layout
    if (narrow && slide.classList.contains("beside")) Object.assign(data, { size: narrow, scenes: { ...data.scenes, wide: data.scenes.narrow } }); // but for code
    slide.stops = data.stops;
    slide.player = mount(run, data);
    slide.player.root.style.setProperty("--ratio", data.size[0] / data.size[1]);
    slide.player.root.addEventListener("step", () => slide === this.slide && this.moved());
  }

  explored(slide) {
    slide.player = slide.explored.player;
    if (slide === this.slide) this.moved();
  }

  get slide() {
    return this.slides[this.place];
  }

  get player() {
    return this.slide?.player;
  }

  get vote() {
    return this.slide.vote;
  }

  // --- where we are ---

  show(place) {
    if (!this.slides[place] || place === this.place) return false;
    this.player?.pause();
    this.place = place;
    this.slides.forEach((slide, each) => (slide.hidden = each !== place));
    document.activeElement?.blur();
    this.slide.append(this.number);
    this.moved();
    return true;
  }

  // The step that comes after a number of steps on or back: the next chosen one, or any.
  beside(forward) {
    const { player, slide } = this;
    if (!player) return undefined;
    const stops = this.all || !slide.stops ? [...Array(player.count).keys()] : slide.stops;
    return forward ? stops.find((step) => step > player.step) : stops.findLast((step) => step < player.step);
  }

  onward() {
    if (this.vote?.reveal() || this.player?.reveal()) return;
    const step = this.beside(true);
    if (step === undefined) this.show(this.place + 1);
    else this.go(step);
  }

  backward() {
    const step = this.beside(false);
    if (step === undefined) this.show(this.place - 1);
    else this.go(step);
  }

  // To a step; it is asked about first only where the slide has a question, or the lecturer has pressed "Predict first".
  go(step) {
    const { player } = this;
    const asking = player.asking;
    player.pause();
    player.asking = asking || step in (player.run.questions ?? {});
    player.go(step);
    player.asking = asking;
    player.controls();
  }

  every() {
    this.all = !this.all;
    this.moved();
  }

  // Slide and step in the address, "#4.3", both counted from 1, and the setting of an explorer: "#21.3&N=8"; and from there.
  moved() {
    history.replaceState(null, "", this.address(this.slide).hash);
    this.number.textContent = `${this.place + 1} / ${this.slides.length}${this.all ? " · all steps" : ""}`;
    this.speaker?.look();
  }

  address(slide) {
    const { step, ...setting } = slide.explored?.state() ?? { step: (slide.player?.step ?? -1) + 1 };
    const more = slide.explored ? `&${new URLSearchParams(setting)}` : "";
    return new URL(`#${this.slides.indexOf(slide) + 1}${step ? `.${step}` : ""}${more}`, location.href);
  }

  follow() {
    const [at, ...setting] = location.hash.slice(1).split("&");
    const [place, step] = at.split(".").map(Number);
    const here = this.slides[place - 1] ? place - 1 : 0;
    const { explored } = this.slides[here];
    if (explored && setting.length) explored.follow({ ...Object.fromEntries(new URLSearchParams(setting.join("&"))), step });
    if (here !== this.place) this.show(here);
    if (step && this.player) this.player.go(step - 1);
    this.moved();
  }

  // --- keys ---

  onKey(event) {
    const { target, key } = event;
    const page = target.ownerDocument ?? document;
    if (event.ctrlKey || event.altKey || event.metaKey || page.querySelector("dialog[open]")) return;
    const found = KEYS.find(([keys]) => keys.includes(key.length === 1 ? key.toLowerCase() : key));
    if (!found || (target.closest && owns(target, key))) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (document.body.classList.contains("black")) return this.black();
    found[2](this, key, page);
    this.speaker?.look();
  }

  black() {
    document.body.classList.toggle("black");
  }

  fullScreen() {
    const done = document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen();
    done.catch(() => this.speaker?.say("A browser makes a window full screen only by a key in that window: press F there."));
  }

  help(page) {
    const line = ([keys, words]) => make("tr", {}, make("th", { scope: "row" }, keys.map((key) => NAMES[key] ?? key.toUpperCase()).join(" ")), make("td", {}, words));
    open(page, make("table", {}, ...KEYS.map(line)));
  }

  list(page) {
    const line = (slide, place) => make("li", {}, make("a", { href: `#${place + 1}` }, slide.querySelector("h1, h2").textContent));
    const dialog = open(page, make("ol", {}, ...this.slides.map(line)));
    dialog.querySelectorAll("a")[this.place].focus();
    dialog.addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (!link) return;
      event.preventDefault();
      dialog.close();
      this.show(Number(link.hash.slice(1)) - 1);
    });
  }

  // --- windows ---

  fit() {
    const zoom = Math.min(innerWidth / 1280, innerHeight / 720);
    const style = document.body.style;
    style.setProperty("--zoom", zoom);
    style.setProperty("--left", `${(innerWidth / zoom - 1280) / 2}px`);
    style.setProperty("--top", `${(innerHeight / zoom - 720) / 2}px`);
  }

  pointed() {
    clearTimeout(this.resting);
    document.body.classList.add("pointer");
    this.resting = setTimeout(() => document.body.classList.remove("pointer"), IDLE);
  }

  speak() {
    if (this.speaker?.open) return this.speaker.window.focus();
    const view = window.open("", "flashlearn-speaker", "width=1180,height=800");
    if (view) this.speaker = new Speaker(this, view);
  }
}

// A window of the same page: what it shows is copied from the deck whenever that changes.
class Speaker {
  constructor(deck, view) {
    this.deck = deck;
    this.window = view;
    this.began = Date.now();
    const page = view.document;
    page.title = "What to say";
    page.head.replaceChildren(...[...document.querySelectorAll("style, base")].map((node) => page.importNode(node, true)));
    const base = page.createElement("base");
    base.href = document.baseURI;
    page.head.prepend(base);
    page.body.className = "speaking";
    this.parts = {};
    for (const name of ["now", "side", "notes"]) this.parts[name] = page.body.appendChild(make("div", { class: name }));
    for (const name of ["clock", "next", "said"]) this.parts[name] = this.parts.side.appendChild(make("p", { class: name }));
    view.addEventListener("keydown", (event) => deck.onKey(event), { capture: true });
    this.watch = new MutationObserver(() => this.look());
    this.watch.observe(document.querySelector(".deck"), { subtree: true, childList: true, attributes: true, characterData: true });
    this.timer = setInterval(() => (this.open ? this.tell() : this.end()), 1000);
    this.look();
  }

  get open() {
    return !this.window.closed;
  }

  // Once for whatever changes together.
  look() {
    this.soon ??= setTimeout(() => {
      this.soon = undefined;
      if (this.open) this.copy();
    }, 20);
  }

  copy() {
    const { deck, parts } = this;
    const page = this.window.document;
    const holder = make("div", { class: "deck" }, page.importNode(deck.slide, true));
    parts.now.replaceChildren(holder);
    const inputs = (root) => [...root.querySelectorAll("input, select")];
    inputs(holder).forEach((input, place) => (input.value = inputs(deck.slide)[place].value));
    parts.now.classList.toggle("black", document.body.classList.contains("black"));
    parts.notes.innerHTML = deck.slide.querySelector(".notes").innerHTML;
    parts.next.textContent = `Next: ${this.after()}`;
    this.tell();
  }

  after() {
    const { deck } = this;
    if (deck.vote && !deck.vote.open) return `the answer, ${CHOICES[deck.vote.items.findIndex((item) => "right" in item.dataset)]}`;
    if (deck.player?.hidden) return "the step that was asked about";
    const step = deck.beside(true);
    if (step !== undefined) return `step ${step + 1} of ${deck.player.count}`;
    return deck.slides[deck.place + 1]?.querySelector("h1, h2").textContent ?? "the end";
  }

  tell() {
    const gone = Math.floor((Date.now() - this.began) / 1000);
    const { clock, until } = this.deck.slide.dataset;
    this.parts.clock.textContent = `${Math.floor(gone / 60)}:${String(gone % 60).padStart(2, "0")}${clock && ` · this slide ${clock}`}`;
    this.parts.clock.classList.toggle("late", Boolean(clock) && gone > Number(until));
  }

  say(words) {
    this.parts.said.textContent = words;
  }

  end() {
    clearInterval(this.timer);
    this.watch.disconnect();
  }
}

// Whether a control that has the focus uses this key itself.
function owns(target, key) {
  if (target.closest("button, summary, a")) return key === " " || key === "Enter";
  return target.closest("input[type=range], select") && (key.startsWith("Arrow") || key === "Home" || key === "End" || key === " ");
}

function open(page, content) {
  const dialog = page.body.appendChild(page.createElement("dialog"));
  dialog.append(page.adoptNode(content), page.adoptNode(make("form", { method: "dialog" }, make("button", {}, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

window.deck = new Deck();
document.body.dataset.ready = "yes";
