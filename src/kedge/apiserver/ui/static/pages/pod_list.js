// All pods, with live usage against their requests and limits.

import { html } from "../lit.js";
import { meter } from "../meter.js";
import { table } from "../rows.js";
import { pods, podUsage, scope } from "../cluster.js";
import { amounts, ownerOf, restarts, stateOf, toneOf, used } from "../pods.js";
import { age } from "../quantity.js";
import { redraw } from "../redraw.js";
import { problem, badge } from "../parts.js";

const view = { sort: "cpu", filter: "" };
const SORTS = {
  name: (a, b) => compare(keyOf(a.pod), keyOf(b.pod)),
  cpu: (a, b) => (b.cpu ?? -1) - (a.cpu ?? -1) || SORTS.name(a, b),
  memory: (a, b) => (b.memory ?? -1) - (a.memory ?? -1) || SORTS.name(a, b),
  age: (a, b) => compare(b.pod.metadata.creationTimestamp, a.pod.metadata.creationTimestamp),
  restarts: (a, b) => restarts(b.pod) - restarts(a.pod) || SORTS.name(a, b),
};
const COLUMNS = [
  { label: "Pod", class: "wide" },
  { label: "State" },
  { label: "CPU", class: "usage" },
  { label: "Memory", class: "usage" },
  { label: "Restarts", class: "few" },
  { label: "Node", class: "far" },
  { label: "Age", class: "few" },
];

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

function keyOf(pod) {
  return `${pod.metadata.namespace}/${pod.metadata.name}`;
}

export function podListPage() {
  const watch = pods();
  return html`<h1>Pods</h1>
    ${controls()} ${problem(watch)} ${podTable(watch.all)}`;
}

function controls() {
  return html`<div class="controls">
    <label>Filter <input type="search" .value=${view.filter} placeholder="name, label, node, state" @input=${(event) => { view.filter = event.target.value; redraw(); }}></label>
    <label>Sort by <select @change=${(event) => { view.sort = event.target.value; redraw(); }}>
      ${Object.keys(SORTS).map((each) => html`<option value=${each} ?selected=${each === view.sort}>${each}</option>`)}
    </select></label>
  </div>`;
}

/** Draw a table of these pods, as the controls say. */
export function podTable(list, { filter = view.filter, label = "Pods" } = {}) {
  const usage = podUsage();
  const wanted = filter.trim().toLowerCase();
  const items = list
    .filter((pod) => !wanted || textOf(pod).includes(wanted))
    .map((pod) => {
      const own = usage.get(pod.metadata.namespace, pod.metadata.name);
      return { pod, cpu: used(own, "cpu"), memory: used(own, "memory") };
    })
    .sort(SORTS[view.sort]);
  return html`<p class="count" role="status">${items.length} of ${list.length} pods</p>
    ${table(COLUMNS, { items, key: ({ pod }) => pod.metadata.uid, row, label })}`;
}

function textOf(pod) {
  const labels = Object.entries(pod.metadata.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return [keyOf(pod), stateOf(pod), pod.spec.nodeName ?? "", ownerOf(pod).name, ...labels].join(" ").toLowerCase();
}

function row({ pod, cpu, memory }) {
  const { namespace, name, creationTimestamp } = pod.metadata;
  const state = stateOf(pod);
  return html`<div role="cell" class="wide"><a href="#/pod/${namespace}/${name}">${name}</a>${scope.namespace ? "" : html`<span class="dim">${namespace}</span>`}</div>
    <div role="cell">${badge(state, toneOf(state))}</div>
    <div role="cell" class="usage">${meter("cpu", { used: cpu, ...amounts(pod.spec, "cpu") })}</div>
    <div role="cell" class="usage">${meter("memory", { used: memory, ...amounts(pod.spec, "memory") })}</div>
    <div role="cell" class="few">${restarts(pod)}</div>
    <div role="cell" class="far">${pod.spec.nodeName ? html`<a href="#/node/${pod.spec.nodeName}">${pod.spec.nodeName}</a>` : "–"}</div>
    <div role="cell" class="few">${age(creationTimestamp)}</div>`;
}
