// New objects: manifests that are checked on the server, and created.

import { html, nothing } from "../lit.js";
import { scope } from "../cluster.js";
import { call, get, warningsOf } from "../session.js";
import { redraw } from "../redraw.js";
import { objectPath, split } from "../manifest.js";

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata:
  name: hello
spec:
  containers:
  - name: main
    image: host
    command: [sh, -c, "while true; do date; sleep 1; done"]
    resources:
      requests: {cpu: 50m, memory: 16Mi}
      limits: {cpu: 200m, memory: 64Mi}
`;
const view = { text: EXAMPLE, results: [], checked: "", busy: false };

export function createPage() {
  const type = (event) => {
    Object.assign(view, { text: event.target.value, results: [] });
    redraw();
  };
  const isChecked = view.checked === view.text && view.results.every((each) => each.isGood);
  return html`<h1>New</h1>
    <p>A manifest, or several with <code>---</code> between them. Objects without a namespace go to <strong>${scope.namespace || "default"}</strong>.</p>
    <textarea class="yaml new" aria-label="Manifest" spellcheck="false" .value=${view.text} @input=${type}></textarea>
    <div class="controls">
      <button ?disabled=${view.busy} @click=${() => send(true)}>Check on the server</button>
      <button class="primary" ?disabled=${view.busy || !isChecked} @click=${() => send(false)}>Create</button>
    </div>
    <div role="status"><ul class="plain">${view.results.map(({ name, said, isGood, href, warnings }) => html`<li class="notice ${isGood ? "good" : "bad"}">${name}: ${said} ${href ? html`<a href=${href}>look</a>` : nothing}${warnings.map((each) => html`<div>${each}</div>`)}</li>`)}</ul></div>`;
}

/** Create the objects in their order, or only check them; the first refusal ends it. */
async function send(isTry) {
  Object.assign(view, { busy: true, results: [], checked: "" });
  redraw();
  const text = view.text;
  for (const document of split(text)) {
    const result = await sendOne(document, isTry);
    view.results.push(result);
    redraw();
    if (!result.isGood) break;
  }
  if (!view.results.length) view.results.push({ name: "manifest", said: "is empty", isGood: false, warnings: [] });
  Object.assign(view, { busy: false, checked: isTry ? text : "" });
  redraw();
}

async function sendOne(document, isTry) {
  const name = `${document.kind || "object"} ${document.name}`.trim();
  try {
    const { target, namespace } = await objectPath(document, scope.namespace || "default", get);
    const headers = { "Content-Type": "application/yaml" };
    const query = { fieldValidation: "Strict", fieldManager: "kedge-dashboard", ...(isTry ? { dryRun: "All" } : {}) };
    const response = await call(target, { method: "POST", headers, body: document.text, query });
    const made = await response.json();
    const href = !isTry && document.kind === "Pod" ? `#/pod/${namespace}/${made.metadata.name}` : "";
    return { name, said: isTry ? "the server would accept it." : "created.", isGood: true, href, warnings: warningsOf(response) };
  } catch (error) {
    return { name, said: error.message, isGood: false, warnings: [] };
  }
}
