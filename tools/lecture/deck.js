
// The deck: Page Down is the next step of the player on the slide, then the answer of its poll, then the next slide.

/* global Reveal, RevealNotes */
const CHOICES = "12345"; // letters would not do: B makes the screen black

for (const place of document.querySelectorAll(".run")) {
  const run = JSON.parse(place.nextElementSibling.textContent);
  const player = play(place, run);
  for (const kind of ["pointermove", "touchstart"])
    player.root.addEventListener(kind, () => player.root.classList.add("touched"), { passive: true });
}

class Vote {
  constructor(node) {
    this.node = node;
    this.items = [...node.querySelectorAll("li")];
    this.status = node.querySelector("[role=status]");
    this.items.forEach((item, place) => item.querySelector("button").addEventListener("click", () => this.choose(place)));
    node.vote = this;
  }

  get open() {
    return this.node.classList.contains("open");
  }

  choose(place) {
    if (this.open || !this.items[place]) return false;
    this.chosen = place;
    this.items.forEach((item, each) => item.querySelector("button").setAttribute("aria-pressed", String(each === place)));
    return true;
  }

  reveal() {
    if (this.open) return false;
    this.node.classList.add("open");
    for (const item of this.items) item.querySelector(".because").hidden = false;
    const right = this.items.findIndex((item) => "right" in item.dataset);
    const said = this.chosen === undefined ? "" : this.chosen === right ? " That was your choice." : ` You chose ${CHOICES[this.chosen]}.`;
    this.status.textContent = `${CHOICES[right]} is right.${said}`;
    return true;
  }
}

document.querySelectorAll(".poll").forEach((node) => new Vote(node));

function onward(slide) {
  return slide.querySelector(".poll")?.vote.reveal() || slide.querySelector(".flashlearn-player")?.flashlearnPlayer.key("PageDown");
}

function backward(slide) {
  return slide.querySelector(".flashlearn-player")?.flashlearnPlayer.key("PageUp");
}

const ACTS = {
  PageDown: (slide) => onward(slide) || Reveal.next(),
  ArrowRight: (slide) => onward(slide) || Reveal.next(),
  PageUp: (slide) => backward(slide) || Reveal.prev(),
  ArrowLeft: (slide) => backward(slide) || Reveal.prev(),
  Home: (slide) => slide.querySelector(".flashlearn-player")?.flashlearnPlayer.key("Home"),
  End: (slide) => slide.querySelector(".flashlearn-player")?.flashlearnPlayer.key("End"),
  " ": (slide) => {
    const player = slide.querySelector(".flashlearn-player")?.flashlearnPlayer;
    return player ? player.key(" ") : onward(slide) || Reveal.next();
  },
};

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || Reveal.isOverview() || Reveal.isPaused()) return;
  const slide = Reveal.getCurrentSlide();
  const place = CHOICES.indexOf(event.key);
  const vote = slide.querySelector(".poll")?.vote;
  const acts = vote && !vote.open && place >= 0 ? () => vote.choose(place) : ACTS[event.key];
  if (!acts) return;
  // Space presses what has the focus: it is neither the deck's nor Reveal's, which listens further on.
  if (event.key === " " && event.target.closest("button, summary, a")) return event.stopImmediatePropagation();
  event.preventDefault();
  event.stopImmediatePropagation();
  acts(slide);
}

addEventListener("keydown", onKey, { capture: true });

await Reveal.initialize({
  width: 1280,
  height: 720,
  margin: 0.02,
  minScale: 0.2,
  maxScale: 3,
  center: false,
  controls: false,
  hash: true,
  slideNumber: "c/t",
  transition: "none",
  plugins: [RevealNotes],
});
document.body.dataset.ready = "yes";
