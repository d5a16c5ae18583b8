// Runs inside a stepper: names the controls that ipywidgets leaves without one, for screen readers.
((mark) => {
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

  function begin() {
    const root = mark.closest(".flashlearn-stepper");
    if (!root) return requestAnimationFrame(begin); // not on the page yet
    names(root);
    new MutationObserver(() => names(root)).observe(root, { childList: true, subtree: true });
  }
  begin();
})(element);
