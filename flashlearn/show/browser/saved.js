// What a notebook is saved with. A view of a widget is an error on the page once its kernel is gone. So what is saved
// has no views, and of a player the picture that its kernel has painted since. The live widgets stay on the page, and
// come back when the page is loaded again while their kernel runs.

const VIEW = "application/vnd.jupyter.widget-view+json";
const KEPT = "application/vnd.flashlearn.view+json"; // which model the view was of; nothing shows this type

// Called for every model, whether it is in sight or not. JupyterLab and Notebook 7 save what `toJSON` of the notebook
// returns; other programs have no `context`, and store widgets in their own way.
function saved(model) {
  const manager = model.widget_manager;
  const notebook = manager?.context?.model;
  if (!notebook) return;
  notebook.flashlearnModels ??= new Map();
  if (model.get?.("run")?.name) notebook.flashlearnModels.set(model.get("run").name, model);
  if (notebook.toJSON.withoutViews) return;
  const whole = notebook.toJSON;
  notebook.toJSON = () => withoutViews(whole.call(notebook), notebook.flashlearnModels);
  notebook.toJSON.withoutViews = true;
  if (manager.restoredStatus) restore(notebook, manager);
  else manager.restored?.connect(() => restore(notebook, manager));
}

function withoutViews(content, models) {
  const cells = content.cells.map((cell) => (cell.outputs ? { ...cell, outputs: cell.outputs.flatMap((output) => stored(output, models)) } : cell));
  return { ...content, cells };
}

// An output without its view; an output that was a view alone is gone. Widgets that are not ours stay as they are.
function stored(output, models) {
  const name = output.data?.[VIEW]?.stored;
  if (name === undefined) return [output];
  const { [VIEW]: { stored: _, ...view }, ...data } = output.data;
  if (!Object.keys(data).length) return [];
  const film = models.get(name)?.get("film");
  if (film?.byteLength) data["image/png"] = base64(new Uint8Array(film.buffer ?? film, film.byteOffset ?? 0, film.byteLength));
  return [{ ...output, data: { ...data, [KEPT]: { ...view, stored: name } } }];
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

// The views of the models that a running kernel still has.
function restore(notebook, manager) {
  for (const cell of notebook.cells ?? []) {
    const outputs = cell.type === "code" ? cell.outputs.toJSON() : [];
    if (outputs.some((output) => has(manager, output))) cell.outputs.fromJSON(outputs.map((output) => live(manager, output)));
  }
}

const has = (manager, output) => output?.data?.[KEPT] && manager.has_model(output.data[KEPT].model_id);

function live(manager, output) {
  if (!has(manager, output)) return output;
  const { [KEPT]: view, ...data } = output.data;
  return { ...output, data: { ...data, [VIEW]: view } };
}
