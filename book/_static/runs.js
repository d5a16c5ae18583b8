// The runs of a page become players, and every picture can fill the screen.
//
// <figure class="run" data-scenes="frames/03-1.js">     flashlearnScenes("03-1", scenes), loaded as the reader comes near
//   <script type="application/json">a run as player.js takes it</script>
//   <div class="whole">the picture that stands for the whole, in print and without scripts</div>
//   <details>the steps as a table</details>
// </figure>

import { el } from "./dom.js";
import { mount } from "./player.js";

const root = () => document.documentElement.dataset.content_root ?? "./";
const waiting = new Map(); // players, by the name of the file with their scenes

export function runs() {
  window.flashlearnScenes = (name, scenes) => waiting.get(name)?.fill(scenes);
  const near = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => load(target)), {
    rootMargin: "300px",
  });
  for (const figure of document.querySelectorAll("figure.run")) {
    if (!figure.player) play(figure);
    near.observe(figure);
  }
  for (const figure of document.querySelectorAll("figure.run, figure.still")) if (!figure.querySelector(".enlarge")) enlarge(figure);

  function load(figure) {
    near.unobserve(figure);
    scenes(figure);
  }
}

function play(figure) {
  const run = JSON.parse(figure.querySelector("script").textContent);
  const place = el("div", {}, ...figure.querySelectorAll(":scope > details"));
  figure.append(place);
  figure.player = mount(place, { ...run, autoplay: "autoplay" in figure.dataset });
}

function scenes(figure) {
  const { scenes } = figure.dataset;
  waiting.set(scenes.match(/([^/]*)\.js$/)[1], figure.player);
  document.head.append(el("script", { src: root() + scenes }));
}

// --- filling the screen -------------------------------------------------------------------------------------------

const WORDS = { true: ["✕", "back to the page"], false: ["⤢", "fill the screen with this picture"] };

function enlarge(figure) {
  const button = el("button", { type: "button", class: "enlarge" });
  const stage = figure.querySelector(".flashlearn-stage, .picture");
  button.addEventListener("click", () => fill(figure, button, !figure.classList.contains("filling")));
  stage.addEventListener("click", (event) => event.target.closest("svg, img") && button.click());
  (figure.querySelector(".flashlearn-controls") ?? figure).append(button);
  fill(figure, button, false);
}

function fill(figure, button, on) {
  figure.classList.toggle("filling", on);
  document.documentElement.classList.toggle("has-filling", on);
  const [sign, label] = WORDS[on];
  button.textContent = sign;
  button.setAttribute("aria-label", label);
  button.setAttribute("aria-pressed", String(on));
  figure.leave?.abort();
  if (!on) return;
  figure.leave = new AbortController();
  addEventListener("keydown", (event) => event.key === "Escape" && fill(figure, button, false), { signal: figure.leave.signal });
}
