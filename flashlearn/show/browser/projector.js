// Projector mode of the notebook that this output belongs to; projection.py puts the settings in.
//
// A stop is what can fill the screen: a player, an explorer, a picture, a question. One is on stage, over everything else and with
// the keyboard to itself, until the reader lets it go. Then the notebook can be read, and a key brings a stop back.
((mark, settings) => {
  const STOPS = ".flashlearn-player, .flashlearn-explorer, .flashlearn-picture, .flashlearn-question, .jp-RenderedImage";
  const FORWARD = ["PageDown", "ArrowDown", "ArrowRight", "End"];
  const CHOICES = ["1", "2", "3", "4", "5", "6"]; // of a question
  const KEYS = [...FORWARD, "PageUp", "ArrowUp", "ArrowLeft", "Home", " ", "Escape", "Enter", "b", ".", ...CHOICES];
  const TYPING = "input:not([type=range]), textarea, select, [contenteditable=true]";
  const REPORT = /^\s*Exercise \d\d\./; // how the report of a check begins
  const IDLE = 3000; // ms until a pointer that rests is hidden, and the controls with it

  function begin() {
    const panel = mark.closest(".jp-NotebookPanel");
    if (panel) return settings.on ? start(panel) : stop(panel);
    if (document.querySelector(".jp-NotebookPanel")) requestAnimationFrame(begin); // not on the page yet
  }

  function start(panel) {
    const there = panel.flashlearnProjector?.shown; // it was on already
    stop(panel);
    panel.flashlearnProjector = new Projector(panel, there);
  }

  function stop(panel) {
    panel.flashlearnProjector?.end();
    delete panel.flashlearnProjector;
  }

  class Projector {
    constructor(panel, first) {
      this.panel = panel;
      this.style = Object.assign(document.createElement("style"), { textContent: settings.style });
      document.head.append(this.style);
      panel.classList.add("flashlearn-projector");
      markAbove(panel, "flashlearn-around", document);
      this.over = new AbortController();
      const { signal } = this.over;
      const on = (kind, act, how) => addEventListener(kind, act, { signal, ...how });
      on("resize", () => this.fit());
      on("keydown", (event) => this.onKey(event), { capture: true }); // on the window, so before JupyterLab's own shortcuts
      on("wheel", (event) => this.shown?.contains(event.target) && this.release(), { passive: true });
      on("touchmove", ({ touches }) => touches.length === 1 && this.touched(touches[0]), { passive: true });
      on("pointermove", () => this.pointed());
      on("pointerdown", () => (this.byPointer = true), { capture: true });
      on("pointerup", (event) => this.giveBack(event), { capture: true });
      on("change", (event) => this.byPointer && this.giveBack(event, true), { capture: true });
      this.watch = new MutationObserver(() => (this.changed = true));
      this.watch.observe(panel, { childList: true, subtree: true });
      this.changed = this.waiting = true;
      this.fit();
      if (first?.isConnected) this.put(first);
      this.tidy();
    }

    // --- which stop is on stage ---

    stops() {
      return [...this.panel.querySelectorAll(STOPS)].filter((node) => !node.parentElement.closest(STOPS));
    }

    put(stop) {
      const { panel } = this;
      if (!stop) return;
      this.clear();
      stop.scrollIntoView({ block: "center" }); // below the stage, for what JupyterLab skips when it is off the screen
      this.shown = this.left = stop;
      this.waiting = false;
      this.cell = stop.closest(".jp-Cell");
      this.place = this.stops().filter((node) => this.cell?.contains(node)).indexOf(stop);
      const size = stop.flashlearnPlayer?.run.size;
      if (size) stop.style.setProperty("--ratio", size[0] / size[1]);
      markAbove(stop, "flashlearn-above", panel);
      stop.classList.add("flashlearn-shown");
      panel.classList.add("flashlearn-presenting");
      if (stop.getAttribute("tabindex") === null) stop.tabIndex = -1;
      stop.focus({ preventScroll: true }); // takes it from an editor; JupyterLab leaves its edit mode
      fitWords(stop);
    }

    clear() {
      this.shown?.classList.remove("flashlearn-shown");
      this.panel.querySelectorAll(".flashlearn-above").forEach((node) => node.classList.remove("flashlearn-above"));
      this.panel.classList.remove("flashlearn-presenting", "flashlearn-black");
      this.shown = undefined;
    }

    // To the notebook, at the place of what was on stage.
    release() {
      const stop = this.shown;
      this.clear();
      stop?.scrollIntoView({ block: "center" });
      this.cell?.focus({ preventScroll: true }); // for the keys of JupyterLab, and for Page Down, which brings it back
      if (stop?.contains(document.activeElement)) document.activeElement.blur();
    }

    // The stop beside the one on stage, or beside what is on the screen while the notebook is read.
    beside(forward) {
      const stops = this.stops();
      const at = stops.indexOf(this.shown);
      if (this.shown) return stops[at + (forward ? 1 : -1)];
      const top = (node) => node.getBoundingClientRect().top - this.panel.getBoundingClientRect().top;
      return forward ? stops.find((node) => top(node) > 5) : stops.findLast((node) => top(node) < -5);
    }

    // The stop that was let go if it is still on the screen, or else the one nearest to its middle.
    here() {
      const visible = this.stops().filter((node) => {
        const { top, bottom } = node.getBoundingClientRect();
        return bottom > 0 && top < innerHeight;
      });
      const off = ({ top, bottom }) => Math.abs((top + bottom - innerHeight) / 2);
      const nearest = visible.sort((a, b) => off(a.getBoundingClientRect()) - off(b.getBoundingClientRect()))[0];
      return visible.includes(this.left) ? this.left : nearest;
    }

    // --- keys ---

    onKey(event) {
      const { target, key } = event;
      this.byPointer = false;
      const modified = event.ctrlKey || event.altKey || event.metaKey || event.shiftKey;
      if (!event.isTrusted || modified || !KEYS.includes(key) || event.defaultPrevented) return;
      if (!this.panel.isConnected || !this.panel.clientWidth || target.closest?.(".jp-Dialog, .lm-Menu")) return;
      if (!(this.shown ? this.onStage(target, key) : this.reading(target, key))) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    }

    // Does what a key says to what is on stage; false if the key is for a control that has the focus, or for JupyterLab.
    onStage(target, key) {
      if (this.shown.contains(target) && owns(target, key)) return false;
      if (key === "b" || key === "." || this.panel.classList.contains("flashlearn-black")) return this.black();
      if (CHOICES.includes(key)) return choose(this.shown, CHOICES.indexOf(key));
      if (key === "Escape") return this.release(), true;
      if (key === "Enter") return this.release(), false; // the code of its cell, which is the active one
      const up = key === "ArrowUp" || key === "ArrowDown";
      if (!up && act(this.shown, key)) return true;
      if (up) this.put(this.beside(key === "ArrowDown")); // as it was left
      else if (key.startsWith("Page")) this.go(FORWARD.includes(key));
      return true;
    }

    // While the screen is black nothing has the focus, for a player takes its keys before they come here.
    black() {
      if (this.panel.classList.toggle("flashlearn-black")) document.activeElement?.blur();
      else this.shown.focus({ preventScroll: true });
      return true;
    }

    reading(target, key) {
      if (["Escape", "Enter", "b", ".", "ArrowUp", "ArrowDown", ...CHOICES].includes(key)) return false;
      const page = key.startsWith("Page"); // what a clicker sends, and of no use in an editor
      if (!page && target.closest?.(`${TYPING}, .cm-editor, button, input[type=range]`)) return false;
      const here = this.here();
      const back = page && here && here === this.left;
      if (page && !back) return this.go(FORWARD.includes(key));
      if (!here) return false;
      this.put(here);
      if (!back) act(here, key);
      return true;
    }

    // The next stop from its first step, or the one before from its last.
    go(forward) {
      const stop = this.beside(forward);
      if (!stop) return false;
      this.put(stop);
      act(stop, forward ? "Home" : "End");
      return true;
    }

    // --- the pointer ---

    pointed() {
      clearTimeout(this.timer);
      this.panel.classList.add("flashlearn-pointer");
      this.timer = setTimeout(() => this.panel.classList.remove("flashlearn-pointer"), IDLE);
    }

    // After a click the keyboard is the stage's again: else the arrows would go on moving the slider that was touched.
    giveBack({ target }, chosen = false) {
      const stop = this.shown;
      if (!stop || (!chosen && target.closest?.(TYPING)) || target.closest?.(".jp-Dialog, .lm-Menu")) return;
      setTimeout(() => this.shown === stop && stop.focus({ preventScroll: true }));
    }

    // A finger that moves up or down scrolls, that is, reads; to the side it is a step.
    touched({ clientY }) {
      if (this.shown && Math.abs(clientY - (this.from ??= clientY)) > 80) this.release();
      if (!this.shown) this.from = undefined;
    }

    // --- keeping order ---

    fit() {
      const zoom = Math.min(innerWidth / 1280, innerHeight / 720);
      this.panel.style.setProperty("--zoom", zoom);
      this.panel.style.setProperty("--left", `${(innerWidth / zoom - 1280) / 2}px`);
      this.panel.style.setProperty("--top", `${(innerHeight / zoom - 720) / 2}px`);
    }

    // Once a frame, if the notebook changed: reports are marked, the first stop is shown as soon as there is one, and a
    // stop whose cell was run again is followed.
    tidy() {
      if (this.over.signal.aborted || !this.panel.isConnected) return;
      requestAnimationFrame(() => this.tidy());
      if (!this.changed) return;
      this.changed = false;
      for (const output of this.panel.querySelectorAll(".jp-OutputArea-child")) {
        output.classList.toggle("flashlearn-report", REPORT.test(output.textContent.slice(0, 80)));
      }
      if (this.waiting) this.put(this.stops()[0]);
      if (this.shown && !this.shown.isConnected) this.follow();
      if (this.shown) fitWords(this.shown); // an answer may have come
    }

    follow() {
      const again = this.stops().filter((node) => this.cell?.contains(node))[this.place];
      if (again) this.put(again);
    }

    end() {
      this.release();
      this.over.abort();
      this.watch.disconnect();
      clearTimeout(this.timer);
      this.style.remove();
      document.querySelectorAll(".flashlearn-around").forEach((node) => node.classList.remove("flashlearn-around"));
      this.panel.classList.remove("flashlearn-projector", "flashlearn-pointer");
      dispatchEvent(new Event("resize")); // JupyterLab lays itself out again
    }
  }

  function markAbove(node, name, top) {
    for (let each = node.parentElement; each && each !== top; each = each.parentElement) each.classList.add(name);
  }

  // Whether a control that has the focus uses this key itself. Page Up and Page Down are the stage's in any case.
  function owns(target, key) {
    if (key.startsWith("Page") || key === "Escape") return false;
    if (target.closest("button, summary")) return key === " " || key === "Enter";
    if (target.type === "radio") return key.startsWith("Arrow") || key === " " || key === "Enter";
    if (target.closest("input[type=range]") && !target.closest(".flashlearn-player")) return !["b", ".", " ", "Enter"].includes(key);
    return Boolean(target.closest(TYPING));
  }

  // Marks a choice of a question, which Enter or Page Down then takes; false if there is none to be marked.
  function choose(stop, place) {
    const radio = stop.querySelectorAll("input[type=radio]")[place];
    if (!radio) return false;
    radio.focus({ preventScroll: true });
    radio.click();
    return true;
  }

  // The type of a question becomes smaller until it and its answer are on the screen.
  function fitWords(stop) {
    if (!stop.matches(".flashlearn-question")) return;
    for (let size = 32; size >= 20; size--) {
      stop.style.setProperty("--words", `${size}px`);
      if (stop.scrollHeight <= stop.clientHeight) return;
    }
  }

  // Does what a key says to a stop; false at its first or last step, and for a picture, which has only one.
  function act(stop, key) {
    if (stop.flashlearnPlayer) return stop.flashlearnPlayer.key(key);
    if (key === "PageDown" && stop.querySelector("input[type=radio]:checked:not([aria-disabled])")) return stop.requestSubmit(), true;
    return false;
  }

  begin();
})(element, SETTINGS);
