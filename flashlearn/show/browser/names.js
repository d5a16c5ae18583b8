// A hidden part of a stepper: names the controls that ipywidgets leaves without one, for screen readers, and lets sliders
// have the keys they need: Notebook 7 takes the arrows for itself, even from a slider.
export default {
  initialize: ({ model }) => saved(model),
  render: ({ el }) => named(el),
};

function named(mark) {
  const name = (node, words) => node && node.getAttribute("aria-label") !== words && node.setAttribute("aria-label", words);

  function names(root) {
    for (const slider of root.querySelectorAll(".widget-slider")) {
      const label = slider.querySelector(".widget-label").textContent;
      const readout = slider.querySelector(".widget-readout");
      name(slider.querySelector(".noUi-handle"), label);
      name(readout, `${label}, as a number`);
      readout?.setAttribute("role", "textbox");
    }
    const actions = ["play or pause", "stop and go to the first step", "repeat when played to the end"];
    root.querySelectorAll(".widget-play button").forEach((button, place) => name(button, actions[place]));
  }

  function keep(root, event) {
    const keys = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];
    const mine = root.contains(event.target) && event.target.classList.contains("noUi-handle");
    const turns = event.key.startsWith("Page") && root.closest(".flashlearn-projector"); // a key of the projector's
    if (!mine || turns || !event.isTrusted || !keys.includes(event.key)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    // An event made here has no key code, which is what Jupyter's shortcuts go by; the slider goes by the name.
    event.target.dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
  }

  function begin() {
    const root = mark.closest(".flashlearn-stepper");
    if (!root) return requestAnimationFrame(begin); // not on the page yet
    names(root);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (calm) root.querySelector(".flashlearn-travel input:checked")?.click();
    addEventListener("keydown", (event) => keep(root, event), true);
    new MutationObserver(() => names(root)).observe(root, { childList: true, subtree: true });
  }
  begin();
}
