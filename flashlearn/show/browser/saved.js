// What a notebook is saved with. A view of a widget is an error on the page once its kernel is gone. So what is saved
// has no views, but the words that the kernel sent along to store in their place. The live widgets stay on the page, and
// come back when the page is loaded again while their kernel runs.

const VIEW = "application/vnd.jupyter.widget-view+json";
const KEPT = "application/vnd.flashlearn.view+json"; // which model the view was of; nothing shows this type
const WORDS = { flashlearn: "words" };

// Called for every model, whether it is in sight or not. JupyterLab and Notebook 7 save what `toJSON` of the notebook
// returns; other programs have no `context`, and store widgets in their own way.
function saved({ widget_manager: manager }) {
  const notebook = manager?.context?.model;
  if (!notebook || notebook.toJSON.withoutViews) return;
  const whole = notebook.toJSON;
  notebook.toJSON = () => withoutViews(whole.call(notebook));
  notebook.toJSON.withoutViews = true;
  if (manager.restoredStatus) restore(notebook, manager);
  else manager.restored?.connect(() => restore(notebook, manager));
}

function withoutViews(content) {
  const cells = content.cells.map((cell) => (cell.outputs ? { ...cell, outputs: cell.outputs.flatMap(stored) } : cell));
  return { ...content, cells };
}

// An output without its view, and after it the words; an output that was a view alone is gone. Widgets that are not
// ours brought no words: they stay as they are.
function stored(output) {
  const words = output.data?.[VIEW]?.stored;
  if (words === undefined) return [output];
  const { [VIEW]: { stored: _, ...view }, ...data } = output.data;
  if (!Object.keys(data).length) return [];
  const kept = { ...output, data: { ...data, [KEPT]: view } };
  return words ? [kept, { output_type: "display_data", data: { "text/html": words }, metadata: WORDS }] : [kept];
}

// The views of the models that a running kernel still has.
function restore(notebook, manager) {
  for (const cell of notebook.cells ?? []) {
    const outputs = cell.type === "code" ? cell.outputs.toJSON() : [];
    if (outputs.some((output) => has(manager, output))) cell.outputs.fromJSON(outputs.flatMap((...at) => live(manager, ...at)));
  }
}

const has = (manager, output) => output?.data?.[KEPT] && manager.has_model(output.data[KEPT].model_id);
const areWords = (output) => output?.metadata?.flashlearn === WORDS.flashlearn;

function live(manager, output, at, outputs) {
  if (areWords(output) && has(manager, outputs[at - 1])) return [];
  if (!has(manager, output)) return [output];
  const { [KEPT]: view, ...data } = output.data;
  const words = areWords(outputs[at + 1]) ? outputs[at + 1].data["text/html"] : "";
  return [{ ...output, data: { ...data, [VIEW]: { ...view, stored: [words].flat().join("") } } }];
}
