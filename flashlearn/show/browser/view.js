// A player in a notebook: one for every view of a Player of player.py.
// The first frame comes with the run; the others come as the kernel makes them, ahead or when they are asked for.

const PATIENCE = 4000; // ms until a frame that does not come is spoken of
const GONE = ["dead", "restarting", "autorestarting", "terminating", "unknown"];

class View {
  constructor(model, element) {
    this.model = model;
    this.version = model.get("version");
    this.player = mount(element, this.run());
    this.player.ahead(); // nothing is loaded over a network here
    this.player.root.addEventListener("step", ({ detail }) => this.moved(detail.step));
    this.handlers = { "change:version": () => this.renew(), "change:step": () => this.follow(), "msg:custom": (content) => this.receive(content) };
    for (const [kind, act] of Object.entries(this.handlers)) model.on(kind, act);
    this.kernel = model.widget_manager?.kernel?.statusChanged; // in JupyterLab and Notebook 7
    this.watch = (kernel, status) => GONE.includes(status) && this.gone("is gone");
    this.kernel?.connect(this.watch);
    this.say({ here: true });
  }

  run() {
    return { ...this.model.get("run"), start: this.model.get("step"), wanted: (number) => this.ask(number) };
  }

  renew() {
    clearTimeout(this.timer);
    this.version = this.model.get("version");
    this.player.load(this.run());
    this.player.ahead();
  }

  ask(number) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.gone("is busy or gone"), PATIENCE);
    this.say({ wanted: number, version: this.version });
  }

  receive({ version, frame, picture, failed, focus }) {
    if (focus) this.player.focus();
    if (version !== this.version) return;
    clearTimeout(this.timer);
    if (failed) return this.player.message(failed);
    this.player.frame(frame, picture);
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
    this.kernel?.disconnect(this.watch);
    for (const [kind, act] of Object.entries(this.handlers)) this.model.off(kind, act);
    this.player.destroy();
  }
}
