// An explorer on a page without Python, the book or the deck: for every setting there is a run that was recorded before.
//
//   const explored = explore(place, about);
//   explored.state()         {name: value, ..., step}, the step counted from 1
//   explored.follow(state)   to that, as texts
//   explored.player          the player, once the first run is there
//
// about = {
//   controls   as explorer.js has them
//   start      {name: value}: the first setting
//   near       near(setting): the nearest setting of which there is a run
//   load       async load(setting): the run as player.js takes it, and {text, need, rises}
//   say        say(run, setting): what the panel says, as explorer.js takes it
//   own        true: the page's address, after "#", is that of the explorer; it holds setting and step, and is followed
//   wide       true: the wide layout in any case
//   link       link(state): an address that shows the same
//   moved      optional, moved(): another setting or step is shown
// }

import { Explorer } from "./explorer.js";
import { mount } from "./player.js";

export function explore(place, about) {
  const inAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  let { setting, step } = read(about, about.own ? inAddress() : {});
  let shown;
  const link = Object.assign(() => about.link(state()), { label: "Copy link" });
  const explorer = new Explorer(place, about.controls, { act, press: rescaling, link });
  if (about.own) addEventListener("hashchange", () => follow(inAddress()));
  show();
  return {
    state,
    follow,
    get player() {
      return explorer.player;
    },
  };

  function state() {
    return { ...setting, step: (explorer.player?.step ?? step) + 1 };
  }

  function act(name, value) {
    setting = about.near({ ...setting, [name]: value });
    step = 0;
    return show();
  }

  function rescaling() {
    const steps = shown?.rises ?? [];
    if (steps.length) explorer.player.go(steps.find((each) => each > explorer.player.step) ?? steps[0]);
  }

  function follow(texts) {
    const wanted = read(about, texts);
    const same = Object.keys(setting).every((name) => setting[name] === wanted.setting[name]);
    ({ setting, step } = wanted);
    return same ? explorer.player?.go(step) : show();
  }

  function keep() {
    if (about.own) history.replaceState(null, "", `#${new URLSearchParams(state())}`);
    about.moved?.();
  }

  async function show() {
    const wanted = setting;
    explorer.set(wanted);
    const { narrow, ...run } = await about.load(wanted);
    if (wanted !== setting) return; // another one was chosen meanwhile
    if (!about.wide) run.narrow = narrow;
    shown = run;
    if (explorer.player) explorer.player.load({ ...run, start: step });
    else explorer.player = started(run);
    explorer.fit();
    explorer.say(about.say(run, wanted));
    keep();
  }

  function started(run) {
    const player = mount(explorer.stage, { ...run, start: step });
    player.root.addEventListener("step", keep);
    return player;
  }
}

// A setting and a step (from 0) out of texts; what makes no sense stays as at the start.
function read({ controls, start, near }, texts) {
  const setting = { ...start };
  for (const { name, values, options } of controls) {
    const text = texts[name];
    if (options?.includes(text)) setting[name] = text;
    if (values && text !== undefined && Number.isFinite(Number(text))) setting[name] = Number(text);
  }
  const step = Math.max(0, (Number.parseInt(texts.step, 10) || 1) - 1);
  return { setting: near(setting), step };
}
