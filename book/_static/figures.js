// The pictures of a page: stored runs become players, every picture can fill the screen.
//
// <figure class="run" data-folder="frames/03-1" data-count="9">      frames/03-1/0.webp ... 8.webp, tall-0.webp ... where
//   <script type="application/json">{alt, captions, size, tall, delays, predict, questions}</script>    runs stand one above the other (tall: its size)
//   <noscript>the still</noscript> <details>the steps as a table</details>
// </figure>

import { el } from "./dom.js";
import { mount } from "./player.js";

const NARROW = matchMedia("(max-width: 50rem)");
const root = () => document.documentElement.dataset.content_root ?? "./";

export function figures() {
  const near = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(load), { rootMargin: "300px" });
  for (const figure of document.querySelectorAll("figure.run")) {
    begin(figure);
    near.observe(figure);
  }
  for (const figure of document.querySelectorAll("figure.run, figure.still")) enlarge(figure);
  NARROW.addEventListener("change", () => document.querySelectorAll("figure.run").forEach(turn));

  function load({ target }) {
    near.unobserve(target);
    target.near = true;
    turn(target);
  }
}

// A player without frames, as high as it will be; its frames get their addresses when the reader comes near.
function begin(figure) {
  const stored = JSON.parse(figure.querySelector("script").textContent);
  figure.stored = stored;
  figure.querySelector("noscript")?.remove();
  const place = el("div", {}, ...figure.querySelectorAll("details"));
  figure.append(place);
  const { alt, captions, predict, questions } = stored;
  const autoplay = "autoplay" in figure.dataset;
  figure.player = mount(place, { alt, captions, size: shape(stored), autoplay, predict, questions });
  figure.player.picture.image.alt = alt; // until there is a frame, whose own words take its place
}

const shape = ({ size, tall }) => (NARROW.matches && tall) || size;

function turn(figure) {
  const { player, stored, near } = figure;
  const { folder, count } = figure.dataset;
  const kind = NARROW.matches && stored.tall ? "tall-" : "";
  const frames = Array.from({ length: Number(count) }, (_, step) => (near ? `${root()}${folder}/${kind}${step}.webp` : null));
  const { playing, step } = player;
  const [width, height] = shape(stored);
  figure.style.setProperty("--natural", `${width}px`);
  figure.classList.toggle("tall", height > width);
  const { captions, delays, questions } = stored;
  player.load({ captions, delays, questions, size: shape(stored), frames, start: step });
  if (playing) player.play();
}

// --- filling the screen -------------------------------------------------------------------------------------------

function enlarge(figure) {
  const button = el("button", { type: "button", class: "enlarge", "aria-label": "fill the screen with this picture", "aria-pressed": "false" }, "⤢");
  const picture = () => figure.querySelector("img");
  const stage = figure.querySelector(".flashlearn-stage, .picture");
  button.addEventListener("click", () => fill(figure, button));
  stage.addEventListener("click", (event) => event.target === picture() && fill(figure, button));
  // Where the picture is wider than its place, a finger moves it sideways; the player is to see no swipe then.
  const moves = (event) => stage.scrollWidth > stage.clientWidth + 1 && event.stopPropagation();
  stage.addEventListener("touchstart", moves, { capture: true, passive: true });
  (figure.querySelector(".flashlearn-controls") ?? figure).append(button);
}

function fill(figure, button) {
  const on = figure.classList.toggle("filling");
  document.documentElement.classList.toggle("has-filling", on);
  button.setAttribute("aria-pressed", String(on));
  button.textContent = on ? "✕" : "⤢";
  button.setAttribute("aria-label", on ? "back to the page" : "fill the screen with this picture");
  if (!on) return figure.leave?.abort();
  figure.leave = new AbortController();
  const escape = (event) => event.key === "Escape" && fill(figure, button);
  addEventListener("keydown", escape, { signal: figure.leave.signal });
}
