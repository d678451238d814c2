// The variables of a container, and where each value comes from.

import { html, nothing } from "../lit.js";
import { allContainers } from "../pods.js";
import { sourceValue } from "../downward.js";
import { get, path } from "../session.js";
import { changed, redraw } from "../redraw.js";
import { run } from "../command.js";
import { card, clipped, plainTable } from "../parts.js";
import { may, mayEnter } from "../rights.js";

const SECRET = "(secret)";
const view = { container: "", key: "", objects: new Map(), actual: null, problem: "" };

export function environmentTab(pod) {
  const containers = allContainers(pod.spec);
  const own = containers.find((each) => each.name === view.container) ?? containers[0];
  const key = `${pod.metadata.uid}/${own.name}`;
  if (view.key !== key) Object.assign(view, { key, objects: new Map(), actual: null, problem: "" });
  const rows = variables(pod, own);
  const head = ["Name", "Value", "From", ...(view.actual ? ["In the container now"] : [])];
  return html`<div class="controls">
      ${containers.length > 1 ? html`<label>Container <select @change=${(event) => { view.container = event.target.value; redraw(); }}>${containers.map((each) => html`<option ?selected=${each.name === own.name}>${each.name}</option>`)}</select></label>` : nothing}
      ${mayEnter(pod.metadata.namespace) ? html`<button @click=${() => readActual(pod, own)}>Compare with the running container</button>` : nothing}
    </div>
    ${view.problem ? html`<p role="alert" class="notice bad">${view.problem}</p>` : nothing}
    ${card(`Variables of ${own.name}`, rows.length ? plainTable("Variables", head, rows.map((each) => [html`<code>${each.name}</code>`, html`<code>${clipped(each.value)}</code>`, clipped(each.from, 300), ...(view.actual ? [html`<code>${each.value === SECRET ? SECRET : clipped(view.actual.get(each.name) ?? "–")}</code>`] : [])])) : html`<p class="dim">The manifest sets none.</p>`)}
    <p class="dim">The image, its devices and the Services of the namespace may bring more.</p>`;
}

function variables(pod, own) {
  const found = new Map();
  const put = (name, value, from) => {
    found.delete(name);
    found.set(name, { name, value, from });
  };
  for (const source of own.envFrom ?? []) {
    const [sort, ref] = source.configMapRef ? ["configmaps", source.configMapRef] : ["secrets", source.secretRef ?? {}];
    const kind = sort === "secrets" ? "Secret" : "ConfigMap";
    const data = dataOf(pod.metadata.namespace, sort, ref.name);
    if (!data) put(`${source.prefix ?? ""}…`, "(every key)", `${kind} ${ref.name}`);
    for (const [key, value] of Object.entries(data ?? {})) put(`${source.prefix ?? ""}${key}`, sort === "secrets" ? SECRET : value, `${kind} ${ref.name}, key ${key}`);
  }
  for (const variable of own.env ?? []) {
    const { value, from } = valueOf(pod, own, variable, found);
    put(variable.name, value, from);
  }
  return [...found.values()];
}

function valueOf(pod, own, { value = "", valueFrom }, before) {
  if (!valueFrom) return { value: expand(value, before), from: value.includes("$(") ? `manifest: ${value}` : "manifest" };
  const direct = sourceValue(pod, own.name, valueFrom);
  if (direct) return direct;
  if (valueFrom.secretKeyRef) return { value: SECRET, from: `Secret ${valueFrom.secretKeyRef.name}, key ${valueFrom.secretKeyRef.key}` };
  if (valueFrom.configMapKeyRef) {
    const { name, key } = valueFrom.configMapKeyRef;
    return { value: dataOf(pod.metadata.namespace, "configmaps", name)?.[key] ?? "…", from: `ConfigMap ${name}, key ${key}` };
  }
  if (valueFrom.fileKeyRef) return { value: "(in a file)", from: `volume ${valueFrom.fileKeyRef.volumeName}, file ${valueFrom.fileKeyRef.path}` };
  return { value: "", from: "nothing" };
}

/** Replace `$(NAME)` by variables before it; `$$` is a dollar sign. */
function expand(text, before) {
  return text.replace(/\$\$|\$\(([^)]*)\)/g, (whole, name) => (whole === "$$" ? "$" : (before.get(name)?.value ?? whole)));
}

/** Return the data of a ConfigMap or Secret; undefined until it is there, or if it may not be read. */
function dataOf(namespace, plural, name) {
  const key = `${plural}/${name}`;
  if (!view.objects.has(key) && may("get", plural, namespace)) {
    const objects = view.objects;
    objects.set(key, undefined);
    get(path("v1", plural, namespace, name)).then((found) => {
      // Of a Secret only the keys are kept.
      objects.set(key, plural === "secrets" ? Object.fromEntries(Object.keys(found.data ?? {}).map((each) => [each, ""])) : found.data ?? {});
      changed();
    }, () => {});
  }
  return view.objects.get(key);
}

async function readActual(pod, own) {
  try {
    const text = await run(pod.metadata.namespace, pod.metadata.name, own.name, ["env"]);
    view.actual = new Map(text.split("\n").filter((each) => each.includes("=")).map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)]));
    view.problem = "";
  } catch (error) {
    view.problem = error.message;
  }
  redraw();
}
