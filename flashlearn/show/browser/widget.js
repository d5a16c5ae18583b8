// Mounts the player in a notebook; anywidget calls `render` for every view of a Player of player.py.
// Frames come out of the animated PNG that the kernel sent with the run, or one by one as the kernel paints them.

const PATIENCE = 4000; // ms until a frame that does not come is spoken of
const GONE = ["dead", "restarting", "autorestarting", "terminating", "unknown"];

export default {
  initialize: ({ model }) => saved(model),
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.close();
  },
};

class View {
  constructor(model, element) {
    this.model = model;
    this.version = model.get("version");
    this.player = play(element, { ...this.run(), start: model.get("step") });
    this.player.ahead(); // nothing is loaded over a network here
    this.player.root.addEventListener("step", ({ detail }) => this.moved(detail.step));
    this.handlers = { "change:version": () => this.renew(), "change:step": () => this.follow(), "msg:custom": this.receive.bind(this) };
    for (const [kind, act] of Object.entries(this.handlers)) model.on(kind, act);
    this.kernel = model.widget_manager?.kernel?.statusChanged; // in JupyterLab and Notebook 7
    this.watch = (kernel, status) => GONE.includes(status) && this.gone("is gone");
    this.kernel?.connect(this.watch);
    this.say({ here: true });
    this.seen = new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && this.unroll());
    this.seen.observe(element);
  }

  // The run as the player wants it, its frames still to come.
  run() {
    this.film?.close();
    const bytes = this.model.get("film");
    this.film = bytes?.byteLength ? new Film(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)) : undefined;
    this.urls = (this.urls?.forEach((url) => URL.revokeObjectURL(url)), []);
    this.unrolled = undefined;
    return { ...this.model.get("run"), wanted: (number) => this.want(number) };
  }

  renew() {
    clearTimeout(this.timer);
    this.version = this.model.get("version");
    this.player.load({ ...this.run(), start: this.model.get("step") });
    this.player.ahead();
    if (this.film) this.unroll();
  }

  // All frames of a film, one at a time, from the first that is seen; what is asked for comes between.
  async unroll() {
    const film = this.film;
    if (!film || this.unrolled === film) return;
    this.unrolled = film;
    for (let number = 0; number < film.count && this.film === film; number++) {
      const url = await film.frame(number);
      if (this.film === film && this.player.run.frames[number] !== url) this.player.frame(number, url);
    }
  }

  async want(number) {
    if (!this.film) return this.ask(number);
    const film = this.film;
    const url = await film.frame(number);
    if (this.film === film) this.player.frame(number, url);
  }

  ask(number) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.gone("is busy or gone"), PATIENCE);
    this.say({ wanted: number, version: this.version });
  }

  receive(content, [data]) {
    if (content.focus) this.player.focus();
    if (content.version !== this.version) return;
    if (content.failed) this.player.message(content.failed);
    if (content.failed || data) clearTimeout(this.timer);
    if (!data) return;
    const url = URL.createObjectURL(new Blob([data], { type: "image/png" }));
    this.urls.push(url);
    this.player.frame(content.frame, url);
    if (this.lost) this.player.message((this.lost = ""));
  }

  gone(how) {
    this.lost = `The kernel ${how}: ${this.player.there} of ${this.player.count} frames are here.`;
    this.player.message(this.lost);
  }

  moved(step) {
    if (step === this.model.get("step")) return;
    this.model.set("step", step);
    this.send(() => this.model.save_changes());
  }

  follow() {
    this.player.go(this.model.get("step"));
  }

  say(content) {
    this.send(() => this.model.send(content));
  }

  // A kernel that is gone takes no message; what is here still plays.
  send(act) {
    try {
      act();
    } catch (error) {
      console.warn(error);
      this.gone("is gone");
    }
  }

  close() {
    clearTimeout(this.timer);
    this.say({ gone: true });
    this.seen.disconnect();
    this.kernel?.disconnect(this.watch);
    for (const [kind, act] of Object.entries(this.handlers)) this.model.off(kind, act);
    this.player.destroy();
    this.film?.close();
    this.urls.forEach((url) => URL.revokeObjectURL(url));
  }
}
