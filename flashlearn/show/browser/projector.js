// Projector mode of the notebook that this output belongs to; projection.py puts the settings in.
((mark, settings) => {
  const KEYS = { ArrowLeft: "step", ArrowRight: "step", Home: "step", End: "step", " ": "play", PageUp: "go", PageDown: "go" };

  function begin() {
    const panel = mark.closest(".jp-NotebookPanel");
    if (panel) return settings.on ? start(panel) : stop(panel);
    if (document.querySelector(".jp-NotebookPanel")) requestAnimationFrame(begin); // not on the page yet
  }

  function start(panel) {
    stop(panel);
    panel.classList.add("flashlearn-projector");
    for (let node = panel.parentElement; node; node = node.parentElement) node.classList.add("flashlearn-around");
    const style = Object.assign(document.createElement("style"), { textContent: settings.style });
    document.head.append(style);
    // The stepper that keys last moved. It is held at the top, because JupyterLab moves what is below a cell whenever
    // it measures that cell anew; scrolling, or any other key, lets it go.
    let held;
    const over = new AbortController();
    const { signal } = over;
    const hold = () => {
      if (signal.aborted || !panel.isConnected) return;
      const top = held?.isConnected ? held.getBoundingClientRect().top : 0;
      if (Math.abs(top) > 0.5) held.scrollIntoView({ block: "start" });
      requestAnimationFrame(hold);
    };
    const fit = () => {
      const zoom = Math.min(innerWidth / 1280, innerHeight / 720);
      held ??= steppers(panel).find((node) => Math.abs(node.getBoundingClientRect().top) < 5); // it goes on filling it
      panel.style.setProperty("--zoom", zoom);
      panel.style.setProperty("--left", `${(innerWidth / zoom - 1280) / 2}px`);
    };
    const release = () => (held = undefined);
    const press = (event) => (held = onKey(panel, event, held));
    addEventListener("resize", fit, { signal });
    addEventListener("keydown", press, { signal, capture: true }); // on the window, so before JupyterLab's own shortcuts
    addEventListener("wheel", release, { signal, passive: true });
    addEventListener("touchmove", release, { signal, passive: true });
    panel.flashlearnUndo = () => {
      over.abort();
      style.remove();
      document.querySelectorAll(".flashlearn-around").forEach((node) => node.classList.remove("flashlearn-around"));
      panel.classList.remove("flashlearn-projector");
      dispatchEvent(new Event("resize")); // JupyterLab lays itself out again
    };
    fit();
    hold();
  }

  function stop(panel) {
    panel.flashlearnUndo?.();
    delete panel.flashlearnUndo;
  }

  // Does what a key says, to the stepper held or else the one on the screen; returns the stepper to hold from now on.
  function onKey(panel, event, held) {
    const what = KEYS[event.key];
    const typing = "input, textarea, select, [contenteditable=true], .cm-editor";
    const own = what === "play" ? "button" : ".noUi-handle"; // controls that use these keys themselves
    const modified = event.ctrlKey || event.altKey || event.metaKey || event.shiftKey;
    const others = !what || modified || !event.isTrusted || event.target.closest?.(`${typing}, ${own}`);
    if (others || !panel.isConnected) return held?.contains(event.target) ? held : undefined;
    const here = held?.isConnected ? held : onScreen(panel);
    const stepper = what === "go" ? neighbour(panel, event.key === "PageDown") : here;
    if (!stepper) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    stepper.scrollIntoView({ block: "start" });
    if (what === "play") stepper.querySelector(".widget-play button").click();
    if (what === "step") {
      const handle = stepper.querySelector(".flashlearn-step .noUi-handle");
      handle.dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
    }
    return stepper;
  }

  const steppers = (panel) => [...panel.querySelectorAll(".flashlearn-stepper")];
  const middle = (node) => (node.getBoundingClientRect().top + node.getBoundingClientRect().bottom) / 2;

  // The stepper nearest to the middle of the screen, if any part of one is on it.
  function onScreen(panel) {
    const visible = steppers(panel).filter((node) => {
      const { top, bottom } = node.getBoundingClientRect();
      return bottom > 0 && top < innerHeight;
    });
    const off = (node) => Math.abs(middle(node) - innerHeight / 2);
    return visible.sort((a, b) => off(a) - off(b))[0];
  }

  // The next stepper below, or the last one above.
  function neighbour(panel, below) {
    const off = (node) => node.getBoundingClientRect().top;
    return below ? steppers(panel).find((node) => off(node) > 5) : steppers(panel).findLast((node) => off(node) < -5);
  }

  begin();
})(element, SETTINGS);
