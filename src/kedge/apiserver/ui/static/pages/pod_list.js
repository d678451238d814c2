// All pods, with live usage against their requests and limits.

import { html, nothing } from "../lit.js";
import { meter } from "../meter.js";
import { table } from "../rows.js";
import { pods, podUsage, scope } from "../cluster.js";
import { amounts, ownerOf, readyOf, restarts, stateOf, toneOf, used } from "../pods.js";
import { age } from "../quantity.js";
import { redraw } from "../redraw.js";
import { problem, badge } from "../parts.js";

const view = { sort: "cpu", reversed: false, filter: "" };
const SORTS = {
  name: (a, b) => compare(keyOf(a.pod), keyOf(b.pod)),
  state: (a, b) => compare(RANKS[toneOf(stateOf(a.pod))], RANKS[toneOf(stateOf(b.pod))]) || compare(stateOf(a.pod), stateOf(b.pod)),
  cpu: (a, b) => (b.cpu ?? -1) - (a.cpu ?? -1),
  memory: (a, b) => (b.memory ?? -1) - (a.memory ?? -1),
  restarts: (a, b) => restarts(b.pod) - restarts(a.pod),
  node: (a, b) => compare(a.pod.spec.nodeName ?? "", b.pod.spec.nodeName ?? ""),
  age: (a, b) => compare(b.pod.metadata.creationTimestamp, a.pod.metadata.creationTimestamp),
};
const RANKS = { bad: 0, busy: 1, good: 2, done: 3 };
/** The tones of states, as the page calls them. */
export const SHOWN = { __proto__: null, "": "all", good: "running", busy: "starting or ending", bad: "in trouble", done: "completed" };
const COLUMNS = [
  { label: "Pod", class: "wide", sort: "name", ascends: true },
  { label: "State", class: "state", sort: "state", ascends: true },
  { label: "Ready", class: "few" },
  { label: "CPU", class: "usage", sort: "cpu" },
  { label: "Memory", class: "usage", sort: "memory" },
  { label: "Restarts", class: "few", sort: "restarts" },
  { label: "Node", class: "far", sort: "node", ascends: true },
  { label: "Age", class: "few", sort: "age", ascends: true },
];

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

function keyOf(pod) {
  return `${pod.metadata.namespace}/${pod.metadata.name}`;
}

/** `show` is a tone of SHOWN. */
export function podListPage(show) {
  const watch = pods();
  const tone = SHOWN[show] ? show : "";
  const list = tone ? watch.all.filter((pod) => toneOf(stateOf(pod)) === tone) : watch.all;
  return html`<h1>Pods</h1>
    ${controls(tone)} ${problem(watch)} ${podTable(list, { all: watch.items.size })}`;
}

function controls(tone) {
  const option = (value, text, chosen) => html`<option value=${value} ?selected=${value === chosen}>${text}</option>`;
  return html`<div class="controls">
    <label>Filter <input type="search" .value=${view.filter} placeholder="name, label, node, state" @input=${(event) => { view.filter = event.target.value; redraw(); }}></label>
    <label>Show <select @change=${(event) => { location.hash = event.target.value ? `#/pods?show=${event.target.value}` : "#/pods"; }}>${Object.entries(SHOWN).map(([value, text]) => option(value, text, tone))}</select></label>
    <label>Sort by <select @change=${(event) => sortBy(event.target.value)}>${Object.keys(SORTS).map((each) => option(each, each, view.sort))}</select></label>
  </div>`;
}

/** Sort by a column; the second time in the opposite order. */
function sortBy(key) {
  Object.assign(view, { reversed: view.sort === key && !view.reversed, sort: key });
  redraw();
}

/** Draw a table of these pods, as the controls say. `usage` is the watch of their usage. */
export function podTable(list, { filter = view.filter, label = "Pods", usage = podUsage(), all = list.length, named = !scope.namespace } = {}) {
  const wanted = filter.trim().toLowerCase();
  const order = (a, b) => (SORTS[view.sort](a, b) || SORTS.name(a, b)) * (view.reversed ? -1 : 1);
  const items = list
    .filter((pod) => !wanted || textOf(pod).includes(wanted))
    .map((pod) => {
      const own = usage.get(pod.metadata.namespace, pod.metadata.name);
      return { pod, cpu: used(own, "cpu"), memory: used(own, "memory") };
    })
    .sort(order);
  const sorted = { key: view.sort, reversed: view.reversed, by: sortBy };
  return html`<p class="count" role="status">${items.length} of ${all} pods</p>
    ${table(COLUMNS, { items, key: ({ pod }) => pod.metadata.uid, row: (item) => row(item, named), label, sorted })}`;
}

function textOf(pod) {
  const labels = Object.entries(pod.metadata.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return [keyOf(pod), stateOf(pod), pod.spec.nodeName ?? "", ownerOf(pod).name, ...labels].join(" ").toLowerCase();
}

function row({ pod, cpu, memory }, named) {
  const { namespace, name, creationTimestamp } = pod.metadata;
  const state = stateOf(pod);
  return html`<div role="cell" class="wide"><a href="#/pod/${namespace}/${name}" title=${name}>${name}</a>${named ? html`<span class="dim">${namespace}</span>` : nothing}</div>
    <div role="cell" class="state">${badge(state, toneOf(state))}</div>
    <div role="cell" class="few">${readyOf(pod).join("/")}</div>
    <div role="cell" class="usage">${meter("cpu", { used: cpu, ...amounts(pod.spec, "cpu") })}</div>
    <div role="cell" class="usage">${meter("memory", { used: memory, ...amounts(pod.spec, "memory") })}</div>
    <div role="cell" class="few">${restarts(pod)}</div>
    <div role="cell" class="far">${pod.spec.nodeName ? html`<a href="#/node/${pod.spec.nodeName}">${pod.spec.nodeName}</a>` : "–"}</div>
    <div role="cell" class="few">${age(creationTimestamp)}</div>`;
}
